"""Evaluator: held-out nodes and what they say; no method ever gets hold of it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.stream import LabelledNodes


@dataclass(frozen=True)
class Judgement:
    """Accuracy on held-out nodes, in percent; None where there is none."""

    accuracy: float | None
    by_class: list[float | None]


@dataclass(frozen=True)
class Evaluator:
    """Held-out nodes with their labels, and which nodes' labels a method has been shown.

    A label that was shown once cannot judge any more, so that only fresh ones are held out.
    """

    held_out: LabelledNodes
    shown: Tensor  # [n] bool

    @classmethod
    def empty(cls) -> Evaluator:
        """Makes one that knows no nodes."""
        nothing = torch.empty(0, dtype=torch.int64)
        return cls(LabelledNodes(nothing, nothing), torch.empty(0, dtype=torch.bool))

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
