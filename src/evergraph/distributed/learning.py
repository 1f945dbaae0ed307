"""Learning and predicting a graph in parts: every worker has one, the first speaks for all."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.device import Plan, denormals_flushed, make_generator
from evergraph.distributed.parts import GraphPart
from evergraph.errors import InputError, import_extra
from evergraph.estimator.config import EstimatorConfig, make_config, read_config
from evergraph.estimator.state import draw_share, held_out_share
from evergraph.events import OnEvent
from evergraph.files import pack, read_regular, unpack, write_atomic
from evergraph.kernels.cpu import load_kernels
from evergraph.methods import TaskContext, make_method
from evergraph.metrics import calibrate, evened
from evergraph.stream import LabelledNodes
from evergraph.team import ALONE, Team
from evergraph.train import (
    Learner,
    check_team,
    learn_task,
    learner_state,
    make_context,
    restore_learner,
)

LEARNED = "learned.safetensors"
#: Above so many nodes a method is shown a large graph.
LARGE = 50_000
#: Nodes whose predictions are written at a time.
ROWS = 1 << 17


@dataclass(frozen=True)
class Learned:
    """What was learned of a partition, to predict all of it."""

    config: EstimatorConfig
    learner: Learner
    about: dict[str, Any]  # what is told of it: accuracy, temperature and the like

    def write(self, folder: Path, team: Team = ALONE) -> None:
        """Keeps it beside the parts: what the first worker has, on every host."""
        content = {"config": self.config.model_dump(mode="json"), "about": self.about}
        content = team.tell({**content, "learner": learner_state(self.learner)})
        if os.environ.get("LOCAL_RANK", "0") == "0":
            write_atomic(folder / LEARNED, pack(content))

    @classmethod
    def read(cls, folder: Path) -> Learned:
        """Reads what :meth:`write` wrote."""
        try:
            content = unpack(read_regular(folder / LEARNED))
            config = read_config(content["config"])
            learner = Learner(make_method(config.method, config.settings))
            restore_learner(learner, content["learner"], config.model, "cpu")
            return cls(config, learner, dict(content["about"]))
        except FileNotFoundError:
            raise InputError(
                f"Expected '{folder}' to have learned something (got nothing so far); run "
                f"'evergraph learn {folder}' first."
            ) from None
        except InputError:
            raise
        except Exception:  # whatever foreign bytes bring about
            raise InputError(
                f"Expected to read '{folder / LEARNED}' (it is damaged); learn again."
            ) from None


def learn_parts(
    folder: Path, given: Mapping[str, Any], team: Team, on_event: OnEvent | None = None
) -> Learned:
    """Learns all labels of a graph in parts, but for some of each class that judge.

    Its seconds are told by stage: ``start`` loads what is loaded once, ``work`` is all the rest.
    """
    begin, config = time.perf_counter(), make_config({"method": "analytic", **given})
    part = GraphPart.open(folder, team)
    load_kernels()
    team.wait()
    started = time.perf_counter()
    learner = Learner(make_method(config.method, config.settings))
    check_team(learner.method, config.training, team)
    labelled, parameters = part.labelled(), config.parameters
    if not labelled.nodes.numel():
        raise InputError(f"Expected labels in '{folder}' (got none); cut a graph that has some.")
    held = labelled.take(labelled.nodes < 0)
    count = labelled.nodes.numel()
    if share := held_out_share(parameters.validation_fraction, count, learner.method):
        generator = make_generator(parameters.seed, "held out", 0)
        held = draw_share(labelled, labelled.labels, share, generator)
    trained = labelled.take(~torch.isin(labelled.nodes, held.nodes))
    ctx = _context(part, config, learner, trained)
    ctx.class_names = [str(name) for name in part.contents.classes]
    with denormals_flushed():
        for event in learn_task(learner, ctx):
            if on_event is not None:
                on_event(event)
        with ctx.stage("evaluate"):
            about = _judge(learner, ctx, held)
    counts = {"nodes": part.contents.num_nodes, "trained_on": trained.nodes.numel()}
    seconds = {"start": started - begin, **ctx.seconds, "work": time.perf_counter() - started}
    told = {**counts, **about, "seconds": seconds, "report": ctx.report}
    learned = Learned(config, learner, told)
    learned.write(folder, team)
    return learned


def _context(
    part: GraphPart, config: EstimatorConfig, learner: Learner, trained: LabelledNodes
) -> TaskContext:
    """Puts a learner before a part."""
    view = part.view(trained, LARGE, whole=learner.method.parallel == "batches")
    size = config.training.batch_size
    plan = Plan(size if isinstance(size, int) else None, "each worker has its part")
    how = (config.model, config.training, plan)
    return make_context(learner, view, *how, seed=config.parameters.seed, team=part.team)


def _own_logits(learner: Learner, ctx: TaskContext) -> Tensor:
    """Predicts the nodes of this worker's part, ``[size, k]``."""
    if learner.method.predicts_by_network:
        return ctx.observe_own(ctx.network)[0]
    return learner.method.predict_logits(ctx)


def _judge(learner: Learner, ctx: TaskContext, held: LabelledNodes) -> dict[str, Any]:
    """Measures accuracy and calibrates on held-out nodes, as far as there are any."""
    own, closed = learner.method.temperature, learner.method.closed_form
    if not held.nodes.numel():
        return {"held_out": 0, "temperature": 1.0 if own is None else own, "exponent": 0.0}
    if closed is not None and closed.selection.local:
        judged = closed.predict_nodes(ctx, held.nodes)
    else:
        assert ctx.view.shard is not None
        judged = ctx.view.shard.pick(_own_logits(learner, ctx), held.nodes)
    right = judged.argmax(dim=1) == held.labels
    weights = np.ones(held.nodes.numel())
    found = calibrate(judged.double().numpy(), held.labels.numpy(), weights)
    return {
        "held_out": held.nodes.numel(),
        "accuracy": 100.0 * float(right.double().mean()),
        **dict(zip(("temperature", "exponent", "calibration_error"), found, strict=True)),
    }


def predict_parts(folder: Path, output: Path, team: Team) -> int:
    """Writes the class of every node with its probability, a Parquet file for each part."""
    parquet = import_extra("pyarrow.parquet", "tables", "pyarrow for Parquet files")
    arrow = import_extra("pyarrow", "tables", "pyarrow for Parquet files")
    part, learned = GraphPart.open(folder, team), Learned.read(folder)
    learner, config = learned.learner, learned.config
    none = torch.empty(0, dtype=torch.int64)
    ctx = _context(part, config, learner, LabelledNodes(none, none))
    with denormals_flushed(), torch.no_grad():
        logits = _own_logits(learner, ctx)
    output.mkdir(parents=True, exist_ok=True)
    names = np.array([str(name) for name in part.contents.classes])
    kinds = {"id": arrow.string(), "label": arrow.string(), "probability": arrow.float64()}
    passing = output / f".part-{part.number:04d}.parquet"
    with parquet.ParquetWriter(passing, arrow.schema(kinds)) as writer:
        for first in range(0, part.size, ROWS):
            block = logits[first : first + ROWS].double().numpy()
            even = torch.from_numpy(evened(block, learned.about["exponent"]))
            best = torch.softmax(even / learned.about["temperature"], dim=1).max(dim=1)
            columns = {
                "id": [str(name) for name in part.names(first, first + block.shape[0])],
                "label": names[best.indices.numpy()],
                "probability": best.values.numpy(),
            }
            writer.write_table(arrow.table(columns, arrow.schema(kinds)))
    passing.rename(output / f"part-{part.number:04d}.parquet")
    team.wait()
    return part.contents.num_nodes
