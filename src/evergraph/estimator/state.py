"""State: all that an estimator is at one moment, and how it becomes files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.config import EstimatorConfig
from evergraph.estimator.evaluator import Evaluator
from evergraph.estimator.growing import Edits, GrowingGraph, Id, features_state
from evergraph.files import pack, to_device
from evergraph.methods import TaskContext, make_method
from evergraph.nn.device import Plan, denormals_flushed
from evergraph.stream import Adjacency, GraphView, LabelledNodes
from evergraph.train import Learner, learner_state, make_context, restore_learner
from evergraph.validation import Config

#: The files of a generation. The evaluator's is apart: nothing in it is ever shown to a method.
FILES = ("config.json", "names.json", "graph.safetensors", "learner.safetensors", "evaluator.json")


class Entry(Config):
    """What one change did; accuracies in percent on held-out nodes.

    ``class_accuracy`` is by class in order of arrival, None without held-out nodes.
    """

    step: int = Field(ge=0)
    kind: str
    num_nodes: int = Field(ge=0)
    num_edges: int = Field(ge=0)
    new_nodes: int = Field(ge=0)
    removed_nodes: int = Field(ge=0)
    new_classes: list[str]
    trained_on: int = Field(ge=0)
    held_out: int = Field(ge=0)
    accuracy: float | None
    class_accuracy: list[float | None]
    memory_bytes: int = Field(ge=0)
    report: dict[str, Any]


@dataclass(frozen=True)
class State:
    """Everything at one moment; never changed, only followed by another.

    Attributes:
        config: Complete settings.
        graph: Nodes, features and edges.
        classes: Class names in order of arrival.
        learner: The method and its network, on the CPU.
        evaluator: Held-out nodes.
        granted: Training labels so far, only for a method that declares that it needs them.
        edits: What the method changed in the graph for itself.
        shown: The graph with these edits, which predictions are made on.
        history: What every change did.
        columns: Names of the features, if they have any.
    """

    config: EstimatorConfig
    graph: GrowingGraph
    classes: tuple[Id, ...]
    learner: Learner
    evaluator: Evaluator
    granted: LabelledNodes
    edits: Edits
    shown: Adjacency
    history: tuple[Entry, ...] = ()
    columns: tuple[str, ...] | None = None

    @classmethod
    def initial(cls, config: EstimatorConfig) -> State:
        """Makes the state before the first change."""
        graph, nothing = GrowingGraph.empty(), torch.empty(0, dtype=torch.int64)
        learner = Learner(make_method(config.parameters.method, config.settings))
        granted = LabelledNodes(nothing, nothing)
        evaluator = Evaluator.empty()
        return cls(config, graph, (), learner, evaluator, granted, Edits(), graph.adjacency)

    def logits(self, device: torch.device) -> Tensor:
        """Predicts every node over every class, ``[n, k]`` on the CPU; computed once."""
        if "_logits" not in self.__dict__:
            if self.learner.next_task == 0 or self.graph.num_nodes == 0:
                found = torch.zeros(self.graph.num_nodes, len(self.classes))
            else:
                with denormals_flushed(), torch.no_grad():
                    learner = copy_learner(self.learner, self.config, device)
                    ctx = self._context(learner, device)
                    found = learner.method.predict_logits(ctx).cpu()
            self.__dict__["_logits"] = found
        logits: Tensor = self.__dict__["_logits"]
        return logits

    def adopt(self, other: State) -> None:
        """Takes over another state's predictions, which must be the same."""
        self.__dict__["_logits"] = other.__dict__["_logits"]

    def _context(self, learner: Learner, device: torch.device) -> TaskContext:
        """Puts a learner before the present graph, without any label."""
        nothing = torch.empty(0, dtype=torch.int64)
        view = GraphView(
            task=max(learner.next_task - 1, 0),
            features=self.graph.features,
            adjacency=self.graph.adjacency,
            train_nodes=nothing,
            train_labels=nothing,
            num_classes=len(self.classes),
            new_classes=(),
        ).to(device)
        plan, seed = Plan(None, "prediction"), self.config.parameters.seed
        ctx = make_context(learner, view, self.config.model, self.config.training, plan, seed=seed)
        ctx.adjacency = self.shown.to(device)
        return ctx

    def to_files(self) -> dict[str, bytes]:
        """Writes the state; the same changes give the same bytes."""
        held_out = self.evaluator.held_out
        names = {"ids": self.graph.ids, "classes": self.classes, "columns": self.columns}
        graph: dict[str, Any] = {
            "features": features_state(self.graph.features),
            "adjacency": _adjacency_state(self.graph.adjacency),
            "edits": {"added": self.edits.added, "deleted": self.edits.deleted},
            "shown": None,
            "labelled": self.evaluator.shown,
        }
        if self.shown is not self.graph.adjacency:
            graph["shown"] = _adjacency_state(self.shown)
        learner = learner_state(self.learner)
        learner["granted"] = {"nodes": self.granted.nodes, "labels": self.granted.labels}
        evaluator = {
            "held_out": [self.graph.ids[row] for row in held_out.nodes.tolist()],
            "labels": held_out.labels.tolist(),
            "history": [entry.model_dump(mode="json") for entry in self.history],
        }
        return {
            "config.json": _json(self.config.model_dump(mode="json")),
            "names.json": _json(names),
            "graph.safetensors": pack(graph),
            "learner.safetensors": pack(learner),
            "evaluator.json": _json(evaluator),
        }


def copy_learner(learner: Learner, config: EstimatorConfig, device: torch.device) -> Learner:
    """Copies a learner to a device the way it is saved and loaded, so that both are the same."""
    state = to_device(learner_state(learner), device, copy=True)
    copied = Learner(make_method(config.parameters.method, config.settings))
    restore_learner(copied, state, config.model, device)
    return copied


def _adjacency_state(graph: Adjacency) -> dict[str, Tensor]:
    return {"src": graph.src, "indptr": graph.indptr}


def _json(content: Any) -> bytes:
    try:
        return json.dumps(content, allow_nan=False).encode()
    except ValueError:
        raise InputError(
            "Expected finite numbers in what a method reports (got NaN or infinity); correct the "
            "method."
        ) from None
