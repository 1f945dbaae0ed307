"""State: all that an estimator is at one moment, held-out nodes included."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from evergraph.device import Plan, denormals_flushed
from evergraph.errors import InputError
from evergraph.estimator.blocks import Stored
from evergraph.estimator.config import EstimatorConfig
from evergraph.estimator.graph import GrowingGraph, Grown, Id
from evergraph.estimator.near import one_thread, predict_beside, predict_by_blocks, predict_near
from evergraph.events import OnEvent
from evergraph.files import to_device
from evergraph.methods import Method, make_method
from evergraph.methods.context import TaskContext
from evergraph.metrics import Array, calibrate, evened, shift_weights
from evergraph.stream import Adjacency, GraphView, LabelledNodes
from evergraph.stream.adjacency import find_sorted
from evergraph.stream.features import Scale
from evergraph.team import ALONE, Team
from evergraph.train import Learner, learner_state, make_context, predict, restore_learner
from evergraph.validation import Config

#: Up to so many nodes all are predicted at once; beyond that those that are asked for.
SMALL = 10_000
#: Above so many nodes a network predicts all of them in blocks.
MANY = 50_000
#: The most held-out nodes that judge one change.
MOST_JUDGED = 500
#: The share of labels that judges by default, and the largest one: it is taken as far as there are
#: fewer judges than would be enough, which know an accuracy of 70 % to 2.6 points.
USUAL_SHARE, MOST_SHARE, ENOUGH_JUDGES = 0.1, 0.2, 300
#: About how many nodes of a large graph tell the class shares of those without a label.
FEW_UNLABELLED = 200


class Comparison(Config):
    """What the watch compared: newcomers with others, or a class with what it was; in percent.

    ``low`` and ``high`` are the 95 % interval of ``value`` minus ``before``.
    """

    kind: str
    where: str  # a class or a column
    value: float
    before: float
    low: float
    high: float
    p: float = Field(ge=0, le=1)
    alarm: bool = False
    remedy: str = ""


class Entry(Config):
    """What one change did; accuracies in percent on held-out nodes.

    ``class_accuracy`` is by class in order of arrival, None without held-out nodes.
    ``class_judged`` counts the nodes it is measured on, ``class_labels`` the labels that were
    learned by then. ``watch`` has what newcomers and classes were compared with (``watch.py``),
    ``arrivals`` counts newcomers by degree, in powers of two. ``temperature`` is what
    logits are divided by for probabilities, once they are evened with ``exponent`` (see
    ``metrics.py``), ``calibration_error`` what that leaves;
    ``calibrated_on`` says which nodes tell: None, and a temperature of 1, where none can.
    """

    step: int = Field(ge=0)
    kind: str
    num_nodes: int = Field(ge=0)
    num_edges: int = Field(ge=0)
    new_nodes: int = Field(ge=0)
    removed_nodes: int = Field(ge=0)
    new_classes: list[str]
    removed_classes: list[str] = Field(default_factory=list)
    trained_on: int = Field(ge=0)
    held_out: int = Field(ge=0)
    accuracy: float | None
    class_accuracy: list[float | None]
    class_judged: list[int] = Field(default_factory=list)
    class_labels: list[int] = Field(default_factory=list)
    temperature: float = Field(default=1.0, gt=0)
    exponent: float = Field(default=0.0, ge=0, le=1)
    calibration_error: float | None = None
    calibrated_on: str | None = None
    memory_bytes: int = Field(ge=0)
    watch: list[Comparison] = Field(default_factory=list)
    arrivals: list[Annotated[int, Field(ge=0, le=1 << 20)]] = Field(default_factory=list)
    report: dict[str, Any]

    def line(self) -> bytes:
        """Returns the entry as a line of JSON."""
        try:
            return json.dumps(self.model_dump(mode="json"), allow_nan=False).encode() + b"\n"
        except ValueError:
            raise InputError(
                "Expected finite numbers in what a method reports (got NaN or infinity); correct "
                "the method."
            ) from None


@dataclass(frozen=True)
class Edits:
    """What a method changed in a graph for itself; undirected pairs ``[2, *]``."""

    added: Tensor = field(default_factory=lambda: torch.empty(2, 0, dtype=torch.int64))
    deleted: Tensor = field(default_factory=lambda: torch.empty(2, 0, dtype=torch.int64))

    @classmethod
    def between(cls, before: Adjacency, after: Adjacency) -> Edits:
        """Compares two graphs of the same nodes."""
        both, n = ((after.keys, before.keys), (before.keys, after.keys)), max(before.num_nodes, 1)
        found = []
        for here, there in both:
            keys = here[find_sorted(there, here) < 0]
            ends = torch.stack([keys % n, keys // n])
            found.append(ends[:, ends[0] < ends[1]])  # each once
        return cls(*found)

    def __bool__(self) -> bool:
        return bool(self.added.numel() or self.deleted.numel())

    def apply(self, graph: Adjacency) -> Adjacency:
        """Returns the graph as the method wants it; the same object when nothing changed."""
        return graph.edit(add=self.added, remove=self.deleted) if self else graph

    def renumbered(self, new_rows: Tensor) -> Edits:
        """Follows nodes to new rows; pairs with a removed end are dropped."""
        moved = [new_rows[pairs] for pairs in (self.added, self.deleted)]
        return Edits(*(pairs[:, (pairs >= 0).all(dim=0)] for pairs in moved))


@dataclass(frozen=True)
class GrownLabels:
    """Labelled nodes in order of arrival."""

    pairs: Grown = field(default_factory=lambda: Grown.empty(np.int64, 2))  # node and label

    @property
    def nodes(self) -> Tensor:
        """The nodes, ``[m]``."""
        return self.pairs.tensor[:, 0]

    @property
    def labels(self) -> Tensor:
        """Their labels, ``[m]``."""
        return self.pairs.tensor[:, 1]

    def append(self, more: LabelledNodes) -> GrownLabels:
        """Adds nodes."""
        if not more.nodes.numel():
            return self
        return GrownLabels(self.pairs.append(torch.stack([more.nodes, more.labels], 1).numpy()))

    def without(self, nodes: Tensor) -> GrownLabels:
        """Drops nodes; the same object if there are none of them."""
        gone = torch.isin(self.nodes, nodes)
        if not bool(gone.any()):
            return self
        return GrownLabels(Grown.of(self.pairs.array[~gone.numpy()]))

    def follow(self, new_rows: Tensor) -> GrownLabels:
        """Follows nodes to new rows, without those that were removed (−1)."""
        stay = (moved := new_rows[self.nodes]) >= 0
        return GrownLabels().append(LabelledNodes(moved[stay], self.labels[stay]))

    def relabelled(self, number: Tensor) -> GrownLabels:
        """Gives classes other numbers, ``[k]``."""
        return GrownLabels().append(LabelledNodes(self.nodes, number[self.labels]))


@dataclass(frozen=True)
class State:
    """Everything at one moment; never changed, only followed by another.

    Attributes:
        config: Complete settings.
        graph: Nodes, features and edges.
        classes: Class names in order of arrival.
        learner: The method and its network, on the CPU; nobody may change it.
        held_out: Nodes that only judge, with their labels; no method ever gets hold of them.
        shown: Nodes whose labels a method has been shown: those cannot judge any more.
        granted: Training labels so far, only for a method that declares that it needs them.
        edits: What the method changed in the graph for itself.
        history: What every change did.
        lines: The same as lines of JSON.
        columns: Names of the features, if they have any.
        scale: What the features were brought to; None before the first labels, or if nothing was.
        saved: Folder and version that this state comes from, and what is stored there.
        beside: The state that this one sees further nodes beside, to predict them; nobody keeps it.
    """

    config: EstimatorConfig
    graph: GrowingGraph
    classes: tuple[Id, ...]
    learner: Learner
    held_out: GrownLabels = field(default_factory=GrownLabels)
    shown: Grown = field(default_factory=lambda: Grown.empty(np.int64))
    granted: GrownLabels = field(default_factory=GrownLabels)
    edits: Edits = field(default_factory=Edits)
    history: tuple[Entry, ...] = ()
    lines: Grown = field(default_factory=lambda: Grown.empty(np.uint8))
    columns: tuple[str, ...] | None = None
    scale: Scale | None = None
    saved: tuple[Path, int, Stored] | None = None
    beside: State | None = None
    #: What was computed of this very state: ``logits`` of all nodes, a ``novelty`` detector.
    computed: dict[str, Any] = field(init=False, default_factory=dict, compare=False, repr=False)

    @classmethod
    def initial(cls, config: EstimatorConfig) -> State:
        """Makes the state before the first change."""
        learner = Learner(make_method(config.method, config.settings))
        directed = bool(config.parameters.settings.get("direction"))
        return cls(config, GrowingGraph.empty(directed), (), learner)

    def judge(self, device: torch.device, *, learned: bool = True) -> dict[str, Any]:
        """Judges predictions by the held-out nodes; returns what an :class:`Entry` says of them.

        Where nodes are predicted one by one, few of many judge; classes weigh as many nodes as they
        have, for probabilities as the unlabelled nodes have them. A change of which nothing is
        ``learned`` leaves the temperature as it is where fewer judge than there are.
        """
        (judges, weights), (logits, shifted) = self.judges(), self.shifted(device)
        stays = not learned and judges.nodes.numel() < self.held_out.nodes.numel()
        last = self.history[-1] if stays and self.history else None
        k, labels = len(self.classes), judges.labels
        if not labels.numel():
            own = self.learner.method.temperature
            on, temperature = (None, 1.0) if own is None else ("left-out nodes", own)
            told = {"accuracy": None, "class_accuracy": [None] * k}
            return {**told, "temperature": temperature, "calibrated_on": on}
        right = logits.argmax(dim=1) == labels
        if last is None or last.calibrated_on is None:
            found = calibrate(logits.double().numpy(), labels.numpy(), shifted)
        else:
            found = last.temperature, last.exponent, last.calibration_error
        return {
            "accuracy": 100.0 * float((right * weights).sum()) / float(weights.sum()),
            "class_accuracy": [_percent(right[labels == label]) for label in range(k)],
            "class_judged": torch.bincount(labels, minlength=k).tolist(),
            **dict(zip(("temperature", "exponent", "calibration_error"), found, strict=True)),
            "calibrated_on": "held-out nodes",
        }

    def shifted(self, device: torch.device) -> tuple[Tensor, Array]:
        """Returns logits of judges, and weights of these as unlabelled nodes have the classes."""
        judges, weights = self.judges()
        m, others = judges.nodes.numel(), judges.nodes
        if m:
            count = self.graph.num_nodes - self.held_out.pairs.length - self.shown.length
            others = self.unlabelled(1 if self._depth is None else max(1, count // FEW_UNLABELLED))
        logits = self.logits(device, torch.cat([judges.nodes, others]))
        if not m:
            return logits, weights.numpy()
        some, rest = (part.double().numpy() for part in (logits[:m], logits[m:]))
        shift = shift_weights(some, judges.labels.numpy(), weights.numpy(), rest)
        return logits[:m], weights.numpy() * shift

    @property
    def uncalibrated(self) -> bool:
        """Whether no node could tell how sure to be of predictions."""
        last = self.history[-1] if self.classes else None
        return last is not None and last.calibrated_on is None and last.temperature == 1

    def probabilities(self, logits: Tensor) -> Tensor:
        """Turns logits into calibrated probabilities, ``[m, k]``."""
        last = self.history[-1] if self.history else None
        exponent, temperature = (last.exponent, last.temperature) if last else (0.0, 1.0)
        even = torch.from_numpy(evened(logits.double().numpy(), exponent))
        return torch.softmax(even / temperature, dim=1)

    @property
    def class_labels(self) -> list[int]:
        """Counts the labels learned so far by class; guesses for a state that did not count."""
        k, fraction = len(self.classes), self.config.parameters.validation_fraction
        counts = self.history[-1].class_labels if self.history else []
        if not counts and fraction and fraction != "auto":  # which is newer than the counts
            held = torch.bincount(self.held_out.labels)
            counts = (held * (1 / fraction - 1)).round().int().tolist()
        return [*counts, *[0] * (k - len(counts))]

    def judges(self) -> tuple[LabelledNodes, Tensor]:
        """Chooses the held-out nodes that judge: all of them where all nodes are predicted.

        Otherwise, of every class those that come first by a hash. Of small classes there are more
        than their share, but not as many as of large ones: these decide the accuracy and the
        temperature. Also returns how many held-out nodes each stands for.
        """
        nodes, labels = self.held_out.nodes, self.held_out.labels
        held = torch.bincount(labels, minlength=1).double()
        if nodes.numel() > MOST_JUDGED and self._depth is not None:
            order = torch.argsort(nodes * 0x1E3779B97F4A7C15 % (1 << 61))  # wraps around
            order = order[torch.argsort(labels[order], stable=True)]
            counts = torch.bincount(labels)
            rank = torch.arange(order.numel()) - (torch.cumsum(counts, 0) - counts)[labels[order]]
            quota = MOST_JUDGED * counts.sqrt() / counts.sqrt().sum()
            chosen = order[rank < quota.round().clamp(min=1)[labels[order]]]
            nodes, labels = nodes[chosen], labels[chosen]
        weights = (held / torch.bincount(labels, minlength=1))[labels]
        return LabelledNodes(nodes.contiguous(), labels.contiguous()), weights

    def unlabelled(self, step: int = 1) -> Tensor:
        """Lists nodes without a label among every so many."""
        known = torch.zeros(n := self.graph.num_nodes, dtype=torch.bool)
        known[self.held_out.nodes] = known[self.shown.tensor] = True
        rows = torch.arange(0, n, step)
        return rows[~known[rows]]

    def logits(
        self, device: torch.device, rows: Tensor | None = None, on_event: OnEvent | None = None
    ) -> Tensor:
        """Predicts nodes over every class, ``[m, k]`` on the CPU; all nodes by default.

        All nodes are predicted once. Some of a large graph are predicted from what is around them
        if that is all that they depend on. ``on_event`` is told of every block of a large graph.
        """
        learner, n = self.learner, self.graph.num_nodes
        if self.known_logits is None and learner.next_task and n:
            depth = self._depth
            with denormals_flushed(), torch.no_grad():
                if depth is not None and rows is not None and n > 10 * rows.numel():
                    with one_thread():
                        return predict_near(self, rows, depth, device).cpu()
                if self.beside and rows is not None and (powers := self.beside.powers):
                    with one_thread():
                        return predict_beside(self, rows, powers)
                self.computed["logits"] = self._predict(device, on_event).cpu()
        found = self.known_logits
        if found is None:
            found = torch.zeros(n, len(self.classes))
        return found if rows is None else found[rows]

    @property
    def _depth(self) -> int | None:
        """How far a node's prediction reaches, None where all nodes are predicted at once."""
        context = self.learner.context
        if context is not None and context.prepared:
            return None  # all rows are there, as they were learned from
        small = self.beside is None and self.graph.num_nodes <= SMALL
        few = self.known_logits is not None or small
        return None if few else self.learner.method.reach(self.config.model.num_layers)

    @property
    def version(self) -> tuple[int, bytes]:
        """The version that the state was stored as, and its checksum."""
        assert self.saved is not None
        return self.saved[1], self.saved[2].checksum

    def once(self, key: str, make: Callable[[], Any]) -> Any:
        """Returns what was computed of this state under a key, or computes it."""
        if key not in self.computed:
            self.computed[key] = make()
        return self.computed[key]

    @property
    def known_logits(self) -> Tensor | None:
        """All nodes' logits, if they have been computed."""
        return self.computed.get("logits")

    def noting(self, **facts: Any) -> State:
        """Returns the state with other facts about it, by which no prediction changes."""
        noted = replace(self, **facts)
        noted.computed["logits"] = self.known_logits
        return noted

    def _predict(self, device: torch.device, on_event: OnEvent | None = None) -> Tensor:
        """Puts the learner before the present graph, without any label."""
        learner = self.learner_on(device)
        if learner.method.predicts_by_network and self.graph.num_nodes > MANY:
            return predict_by_blocks(self, learner, device, on_event)
        return learner.method.predict_logits(self._context(learner, device))

    def predict_together(self, device: torch.device, team: Team) -> None:
        """Predicts all nodes, which the workers of a team share, and remembers that."""
        learner = self.learner_on(device)
        if learner.next_task and self.known_logits is None:
            with denormals_flushed(), torch.no_grad():
                found = predict(learner, self._context(learner, device, team))
            self.computed["logits"] = found.cpu()

    def _context(self, learner: Learner, device: torch.device, team: Team = ALONE) -> TaskContext:
        """Makes what a method predicts from, without any label."""
        seen = self.graph.adjacency
        nobody = torch.empty(0, dtype=torch.int64)
        task, k = max(learner.next_task - 1, 0), len(self.classes)
        view = GraphView(task, self.graph.features, seen, nobody, nobody, k, ()).to(device)
        plan, seed = Plan(None, "prediction"), self.config.parameters.seed
        how = (self.config.model, self.config.training, plan)
        ctx = make_context(learner, view, *how, seed=seed, team=team)
        ctx.adjacency = self.edits.apply(seen).to(device)
        if learner.context is not None:  # of this very graph, which was learned just now
            ctx.prepared = learner.context.prepared
        return ctx

    @cached_property
    def powers(self) -> list[Tensor] | None:
        """All nodes' scores after every step of propagation, where a large graph has such."""
        closed = self.learner.method.closed_form
        if self.graph.num_nodes <= SMALL or closed is None:
            return None
        return closed.score_powers(self._context(self.learner, torch.device("cpu")))

    def learner_on(self, device: torch.device) -> Learner:
        """Returns the learner, a copy of it where the device is another than the CPU."""
        return self.learner if device.type == "cpu" else move(self.learner, self.config, device)


def move(learner: Learner, config: EstimatorConfig, device: torch.device) -> Learner:
    """Copies a learner to another device, the way it is saved and loaded."""
    state = to_device(learner_state(learner), device, copy=True)
    copied = Learner(make_method(config.method, config.settings))
    restore_learner(copied, state, config.model, device)
    return copied


def held_out_share(given: float | Literal["auto"], labels: int, method: Method[Any]) -> float:
    """Returns the share of so many labels, of all that ever came, that only judges.

    A method that leaves out what it learned has its own nodes to choose by, and fewer judge.
    """
    if given != "auto":
        return given
    wanted = 0.0 if method.leaves_out else min(MOST_SHARE, ENOUGH_JUDGES / max(1, labels))
    return max(USUAL_SHARE, wanted)


def draw_share(
    labelled: LabelledNodes,
    among: Tensor,
    fraction: float,
    generator: torch.Generator,
    *,
    held: Sequence[int] = (),
    learned: Sequence[int] = (),
) -> LabelledNodes:
    """Draws a share of every class, at least one and never all of its labels in ``among``.

    The share is one of all labels that ever came: of ``held`` nodes of each class are held out
    already, and ``learned`` have been learned.
    """
    order = torch.randperm(labelled.nodes.numel(), generator=generator)
    order = order[torch.argsort(labelled.labels[order], stable=True)]  # class by class
    classes, sizes = torch.unique(labelled.labels, return_counts=True)
    chosen = [order[:0]]
    for label, members in zip(classes.tolist(), torch.split(order, sizes.tolist()), strict=True):
        before, others = (sum(counts[label : label + 1]) for counts in (held, learned))
        total, most = before + others + members.numel(), int((among == label).sum()) - 1
        wanted = max(1, round(fraction * total)) - before
        chosen.append(members[: max(0, min(wanted, most))])
    return labelled.take(torch.sort(torch.cat(chosen)).values)


def _percent(right: Tensor) -> float | None:
    return 100.0 * int(right.sum()) / right.numel() if right.numel() else None
