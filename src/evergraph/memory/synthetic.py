"""SyntheticNodes: learned rows that stand for classes, within a budget shared by class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.memory.buffer import class_budgets
from evergraph.stream.tasks import GraphView


class SyntheticNodes:
    """Rows with labels that no node has: what is learned to stand for the nodes of a class.

    Args:
        size: The most rows of all classes together.
        most: The most rows of one class; None for any number.
    """

    def __init__(self, size: int, most: int | None = None) -> None:
        self.size, self.most = size, most
        self.rows = torch.zeros(0, 0)  # [b, d]
        self.labels = torch.zeros(0, dtype=torch.int64)  # [b], ascending
        self.counts: dict[int, int] = {}  # nodes of every class that the rows stand for

    def __len__(self) -> int:
        return self.labels.numel()

    def admit(self, x: Tensor, labels: Tensor, generator: torch.Generator) -> None:
        """Shares the budget out anew, with new nodes of rows ``x`` ``[m, d]`` among all.

        The rows of a class become the first of those it had, then new nodes' drawn at random: that
        is where learning begins.
        """
        counts = dict(self.counts)
        for label in torch.unique(labels).tolist():
            counts[label] = counts.get(label, 0) + int((labels == label).sum())
        budgets = class_budgets(counts, self.size)  # refuses before anything is changed
        parts = []
        for label in sorted(counts):
            budget = min(budgets[label], self.most or self.size)
            kept = self.rows[self.labels == label][:budget]
            new = torch.nonzero(labels == label).flatten()
            order = torch.randperm(new.numel(), generator=generator)[: budget - len(kept)]
            drawn = x[new[order.to(new.device)]]
            parts.append(torch.cat([kept, drawn]) if len(kept) else drawn)
        sizes = torch.tensor([len(part) for part in parts], device=x.device)
        self.counts, self.rows = counts, torch.cat(parts)
        self.labels = torch.tensor(sorted(counts), device=x.device).repeat_interleave(sizes)

    def to(self, device: torch.device) -> None:
        """Moves the rows to a device."""
        self.rows, self.labels = self.rows.to(device), self.labels.to(device)

    def memory_bytes(self) -> int:
        """Counts the bytes of rows and labels, and a number for each class."""
        return self.rows.nbytes + self.labels.nbytes + 16 * len(self.counts)

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors and plain numbers that restore the rows."""
        counts = {str(label): count for label, count in self.counts.items()}
        return {"rows": self.rows, "labels": self.labels, "counts": counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned; refuses what does not fit together."""
        self.rows, self.labels = state["rows"], state["labels"]
        self.counts = {int(label): int(count) for label, count in state["counts"].items()}
        whole = (
            self.rows.ndim == 2
            and self.rows.is_floating_point()
            and self.labels.dtype == torch.int64
            and self.labels.shape == self.rows.shape[:1]
            and set(self.labels.tolist()) <= self.counts.keys()
            and all(label >= 0 and count > 0 for label, count in self.counts.items())
        )
        if not whole:
            raise ValueError("synthetic nodes that do not fit together")


def check_rows(rows: Tensor, labels: Tensor, view: GraphView) -> None:
    """Refuses kept rows of other columns than a graph has, or of classes that nobody knows."""
    width, num_classes = view.num_features, view.num_classes
    known = bool(((labels >= 0) & (labels < num_classes)).all())
    if rows.shape[1:] != (width,) or not rows.is_floating_point() or not known:
        raise InputError(
            f"Expected kept rows of {width} columns and {num_classes} classes (got others); the "
            "state is damaged, so restore a copy of it."
        )
