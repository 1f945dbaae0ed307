"""State: all that an estimator is at one moment, held-out nodes included."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from evergraph.estimator.config import EstimatorConfig
from evergraph.estimator.graph import Edits, GrowingGraph, Id
from evergraph.files import to_device
from evergraph.methods import TaskContext, make_method
from evergraph.nn.device import Plan, denormals_flushed
from evergraph.stream import Adjacency, GraphView, LabelledNodes
from evergraph.train import Learner, learner_state, make_context, restore_learner
from evergraph.validation import Config


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
class Judgement:
    """Accuracy on held-out nodes, in percent; None where there is none."""

    accuracy: float | None
    by_class: list[float | None]


@dataclass(frozen=True)
class Evaluator:
    """Held-out nodes with their labels, and which nodes' labels a method has been shown.

    A label that was shown once cannot judge any more, so that only fresh ones are held out.
    No method ever gets hold of this.
    """

    held_out: LabelledNodes
    shown: Tensor  # [n] bool

    @classmethod
    def empty(cls) -> Evaluator:
        """Makes one that knows no nodes."""
        return cls(no_labels(), torch.empty(0, dtype=torch.bool))

    def renumbered(self, new_rows: Tensor) -> Evaluator:
        """Follows nodes to new rows; removed ones judge no more."""
        nodes = new_rows[self.held_out.nodes]
        held_out = LabelledNodes(nodes, self.held_out.labels).take(nodes >= 0)
        return Evaluator(held_out, self.shown[new_rows >= 0])

    def grown(self, num_nodes: int) -> Evaluator:
        """Makes room for new nodes."""
        more = torch.zeros(num_nodes - self.shown.numel(), dtype=torch.bool)
        return Evaluator(self.held_out, torch.cat([self.shown, more]))

    def admit(
        self,
        labelled: LabelledNodes,
        num_known: int,
        fraction: float,
        generator: torch.Generator,
    ) -> tuple[Evaluator, LabelledNodes]:
        """Takes new labels in; returns those that a method may see.

        Nodes that are held out already stay so, with their new label, unless its class is new:
        a class must be learned before it is judged. Of the others a share of each class is held
        out, at least one and never the last.
        """
        named_again = torch.isin(self.held_out.nodes, labelled.nodes)
        again = torch.isin(labelled.nodes, self.held_out.nodes) & (labelled.labels < num_known)
        parts = [self.held_out.take(~named_again), labelled.take(again)]
        rest = labelled.take(~again)
        if fraction:
            fresh = rest.take(~self.shown[rest.nodes])
            chosen = draw_share(fresh, rest.labels, fraction, generator)
            parts.append(chosen)
            rest = rest.take(~torch.isin(rest.nodes, chosen.nodes))
        shown = self.shown.clone()
        shown[rest.nodes] = True
        return Evaluator(join(parts), shown), rest

    def judge(self, logits: Tensor, num_classes: int) -> Judgement:
        """Measures predictions ``[n, k]`` on the held-out nodes."""
        labels = self.held_out.labels
        right = (
            logits[self.held_out.nodes].argmax(dim=1) == labels if logits.numel() else labels < 0
        )
        by_class = [percent(right[labels == label]) for label in range(num_classes)]
        return Judgement(percent(right), by_class)


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
    history: tuple[Entry, ...] = ()
    columns: tuple[str, ...] | None = None

    @classmethod
    def initial(cls, config: EstimatorConfig) -> State:
        """Makes the state before the first change."""
        learner = Learner(make_method(config.parameters.method, config.settings))
        return cls(
            config, GrowingGraph.empty(), (), learner, Evaluator.empty(), no_labels(), Edits()
        )

    @cached_property
    def shown(self) -> Adjacency:
        """The graph with the method's edits, which predictions are made on."""
        return self.edits.apply(self.graph.adjacency)

    def logits(self, device: torch.device) -> Tensor:
        """Predicts every node over every class, ``[n, k]`` on the CPU; computed once."""
        if "_logits" not in self.__dict__:
            if self.learner.next_task == 0 or self.graph.num_nodes == 0:
                found = torch.zeros(self.graph.num_nodes, len(self.classes))
            else:
                with denormals_flushed(), torch.no_grad():
                    learner = self.learner
                    if device.type != "cpu":
                        learner = copy_learner(learner, self.config, device)
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
        nothing = no_labels()
        view = GraphView(
            task=max(learner.next_task - 1, 0),
            features=self.graph.features,
            adjacency=self.graph.adjacency,
            train_nodes=nothing.nodes,
            train_labels=nothing.labels,
            num_classes=len(self.classes),
            new_classes=(),
        ).to(device)
        plan, seed = Plan(None, "prediction"), self.config.parameters.seed
        ctx = make_context(learner, view, self.config.model, self.config.training, plan, seed=seed)
        ctx.adjacency = self.shown.to(device)
        return ctx


def no_labels() -> LabelledNodes:
    """Labels no node."""
    nothing = torch.empty(0, dtype=torch.int64)
    return LabelledNodes(nothing, nothing)


def copy_learner(learner: Learner, config: EstimatorConfig, device: torch.device) -> Learner:
    """Copies a learner to a device the way it is saved and loaded, so that both are the same."""
    state = to_device(learner_state(learner), device, copy=True)
    copied = Learner(make_method(config.parameters.method, config.settings))
    restore_learner(copied, state, config.model, device)
    return copied


def draw_share(
    labelled: LabelledNodes, among: Tensor, fraction: float, generator: torch.Generator
) -> LabelledNodes:
    """Draws a share of every class, at least one and never all of its labels in ``among``."""
    order = torch.randperm(labelled.nodes.numel(), generator=generator)
    chosen = [order[:0]]
    for label in torch.unique(labelled.labels).tolist():
        members = order[labelled.labels[order] == label]
        most = int((among == label).sum()) - 1
        chosen.append(members[: min(max(1, round(fraction * members.numel())), most)])
    return labelled.take(torch.sort(torch.cat(chosen)).values)


def join(parts: list[LabelledNodes]) -> LabelledNodes:
    """Puts labelled nodes together, ascending."""
    nodes = torch.cat([part.nodes for part in parts])
    order = torch.argsort(nodes)
    return LabelledNodes(nodes[order], torch.cat([part.labels for part in parts])[order])


def percent(right: Tensor) -> float | None:
    """Returns the share of true values in percent, None of nothing."""
    return 100.0 * int(right.sum()) / right.numel() if right.numel() else None
