"""The two questions that every way of reading scores is judged by.

Training nodes are asked for their class. They are of the present classes alone, and a way of
reading may favour these by drowning all others. So nodes that were there before a class was first
seen are asked as well, not for their class, which nobody knows any more, but for being of one of
the classes known before; they count for as many classes as those are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.closed_form.calibration import TEMPERATURES, least_loss
from evergraph.closed_form.ridge import RidgeSystem, class_shares
from evergraph.stream.tasks import LabelledNodes

#: Most nodes seen before that are asked, evenly spaced.
MOST_ASKED = 20_000


@dataclass(frozen=True)
class Known:
    """What is known of nodes before a task: ``num_nodes`` were there, of these classes."""

    num_nodes: int
    classes: Sequence[int]

    def nodes_beside(self, nodes: Tensor) -> Tensor:
        """Returns nodes that were there before and are not among ``nodes``, ``[b]``."""
        step = max(1, -(-self.num_nodes // MOST_ASKED))
        before = torch.arange(0, self.num_nodes, step, device=nodes.device)
        return before[~torch.isin(before, nodes)]


class Questions:
    """Training nodes with their labels, and nodes known before.

    Args:
        system: Tells which column of scores belongs to which class.
        trained: Training nodes that are asked for their class.
        known: Nodes and classes before this task.
    """

    def __init__(self, system: RidgeSystem, trained: LabelledNodes, known: Known) -> None:
        self.column = system.columns_of(trained.labels)
        self.alike = class_shares(trained.labels)
        self.present = int(torch.unique(trained.labels).numel())
        self.before = known.nodes_beside(trained.nodes)
        classes = set(known.classes)
        device = trained.nodes.device
        self.old = torch.tensor([label in classes for label in system.labels], device=device)
        none = bool(self.old.all()) or not self.before.numel()
        self.asked = 0 if none else int(self.old.sum())

    def cost(self, scores: Tensor, everyone: Tensor) -> float:
        """Returns the mean loss over classes, at the temperature of least loss.

        Args:
            scores: Scores of the training nodes, each left out, ``[m, k]``.
            everyone: Scores of all nodes, ``[n, k]``.
        """
        earlier = everyone[self.before]

        def loss(temperature: float) -> float:
            told = self.told(scores, temperature)
            if not self.asked:
                return told
            whole = torch.logsumexp(earlier / temperature, dim=1)
            old = torch.logsumexp(earlier[:, self.old] / temperature, dim=1)
            intruded = float((whole - old).mean())
            return (self.present * told + self.asked * intruded) / (self.present + self.asked)

        return least_loss(loss)[0]

    def told(self, scores: Tensor, temperature: float) -> float:
        """Averages the cross-entropy of the training nodes' labels, classes alike."""
        losses = cross_entropy(scores / temperature, self.column, reduction="none")
        return float((self.alike * losses).sum())

    def by_temperature(self, scores: Tensor) -> dict[float, float]:
        """Returns what the first question costs at every temperature."""
        return {temperature: self.told(scores, temperature) for temperature in TEMPERATURES}
