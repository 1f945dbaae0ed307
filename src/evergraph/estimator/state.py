"""State: all that an estimator is at one moment, held-out nodes included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from pydantic import Field
from torch import Tensor

from evergraph.estimator.config import EstimatorConfig
from evergraph.estimator.graph import Edits, GrowingGraph, Id
from evergraph.files import to_device
from evergraph.methods import make_method
from evergraph.nn.device import Plan, denormals_flushed
from evergraph.stream import GraphView, LabelledNodes
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
class State:
    """Everything at one moment; never changed, only followed by another.

    Attributes:
        config: Complete settings.
        graph: Nodes, features and edges.
        classes: Class names in order of arrival.
        learner: The method and its network, on the CPU.
        held_out: Nodes that only judge, with their labels; no method ever gets hold of them.
        shown: Which nodes' labels a method has been shown, ``[n]``: those cannot judge any more.
        granted: Training labels so far, only for a method that declares that it needs them.
        edits: What the method changed in the graph for itself.
        history: What every change did.
        columns: Names of the features, if they have any.
    """

    config: EstimatorConfig
    graph: GrowingGraph
    classes: tuple[Id, ...]
    learner: Learner
    held_out: LabelledNodes
    shown: Tensor
    granted: LabelledNodes
    edits: Edits
    history: tuple[Entry, ...] = ()
    columns: tuple[str, ...] | None = None

    @classmethod
    def initial(cls, config: EstimatorConfig) -> State:
        """Makes the state before the first change."""
        learner = Learner(make_method(config.parameters.method, config.settings))
        none, shown = no_labels(), torch.empty(0, dtype=torch.bool)
        return cls(config, GrowingGraph.empty(), (), learner, none, shown, none, Edits())

    def accuracy(self, device: torch.device) -> tuple[float | None, list[float | None]]:
        """Returns the accuracy on all held-out nodes and by class.

        In percent, None where no node is held out.
        """
        logits, labels = self.logits(device), self.held_out.labels
        right = (
            logits[self.held_out.nodes].argmax(dim=1) == labels if logits.numel() else labels < 0
        )
        by_class = [_percent(right[labels == label]) for label in range(len(self.classes))]
        return _percent(right), by_class

    def logits(self, device: torch.device) -> Tensor:
        """Predicts every node over every class, ``[n, k]`` on the CPU; computed once."""
        if "_logits" not in self.__dict__:
            if self.learner.next_task == 0 or self.graph.num_nodes == 0:
                found = torch.zeros(self.graph.num_nodes, len(self.classes))
            else:
                with denormals_flushed(), torch.no_grad():
                    found = self._predict(device).cpu()
            self.__dict__["_logits"] = found
        logits: Tensor = self.__dict__["_logits"]
        return logits

    @property
    def known_logits(self) -> Tensor | None:
        """What :meth:`logits` has computed already."""
        return self.__dict__.get("_logits")

    def adopt(self, other: State) -> None:
        """Takes over another state's predictions, which must be the same."""
        self.__dict__["_logits"] = other.__dict__["_logits"]

    def _predict(self, device: torch.device) -> Tensor:
        """Puts the learner before the present graph, without any label."""
        learner = self.learner
        if device.type != "cpu":
            learner = move_learner(learner, self.config, device)
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
        ctx.adjacency = self.edits.apply(self.graph.adjacency).to(device)
        return learner.method.predict_logits(ctx)


def no_labels() -> LabelledNodes:
    """Labels no node."""
    nothing = torch.empty(0, dtype=torch.int64)
    return LabelledNodes(nothing, nothing)


def move_learner(learner: Learner, config: EstimatorConfig, device: torch.device) -> Learner:
    """Copies a learner to another device, the way it is saved and loaded."""
    state = to_device(learner_state(learner), device, copy=True)
    copied = Learner(make_method(config.parameters.method, config.settings))
    restore_learner(copied, state, config.model, device)
    return copied


def follow(labelled: LabelledNodes, new_rows: Tensor) -> LabelledNodes:
    """Follows nodes to new rows, without those that were removed (−1)."""
    nodes = new_rows[labelled.nodes]
    return LabelledNodes(nodes, labelled.labels).take(nodes >= 0)


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


def _percent(right: Tensor) -> float | None:
    return 100.0 * int(right.sum()) / right.numel() if right.numel() else None
