"""Cross-validated losses: how well labels are predicted by weights that never saw them.

Only the current training nodes are judged on, each predicted without itself, so no validation node
is needed. Scores are divided by the temperature that suits them best before the softmax, so that
their scale does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.closed_form.moments import Moments
from evergraph.closed_form.propagation import evenly_spaced
from evergraph.closed_form.ridge import Ridge
from evergraph.stream.tasks import LabelledNodes

#: What scores are divided by before the softmax: 30 steps from 0.005 to 3.
TEMPERATURES = tuple(0.005 * 600 ** (step / 29) for step in range(30))
#: Most nodes seen before that a loss is computed on, evenly spaced.
OLD_NODES = 2_000


class LossTotals(dict[float, float]):
    """Losses summed over tasks, one total per value of a setting."""

    def add(self, losses: Mapping[float, float], count: int, keep: float = 1.0) -> None:
        """Adds mean losses over ``count`` nodes to what it keeps of the totals so far."""
        for value, loss in losses.items():
            self[value] = keep * self.get(value, 0.0) + loss * count

    @property
    def best(self) -> float:
        """The value of least total; the first of equals."""
        return min(self, key=lambda value: self[value])

    def state_dict(self) -> dict[str, float]:
        """Returns the totals under names that JSON can write."""
        return {repr(value): loss for value, loss in self.items()}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.clear()
        self.update({float(value): float(loss) for value, loss in state.items()})


def least_loss(loss: Callable[[float], float]) -> tuple[float, float]:
    """Returns the least loss over temperatures and the temperature it has."""
    return min((loss(temperature), temperature) for temperature in TEMPERATURES)


def leave_one_out_losses(
    x: Tensor, labels: Tensor, strengths: Sequence[float], balanced: bool
) -> Tensor:
    """Computes the cross-entropy of every row as predicted without it, ``[m]``.

    The strength is that of least squared error, the temperature that of least loss. Squared errors
    would favour more hops whatever they are worth, because smoother rows have scores of larger
    scale. Scores are not propagated, so that no neighbour tells the label of a row left out.
    """
    moments = Moments()
    moments.update(x, labels)
    ridge = Ridge(moments, balanced)
    train = ridge.training_rows(x.double(), labels)
    errors = ridge.leave_one_out_errors(train, strengths)
    scores = ridge.leave_one_out_scores(train, min(errors, key=lambda strength: errors[strength]))
    weights = ridge.judging_weights(train.column)

    def at(temperature: float) -> Tensor:
        return cross_entropy(scores / temperature, train.column, reduction="none")

    return at(least_loss(lambda temperature: float((weights * at(temperature)).sum()))[1])


class ValidationLoss:
    """The loss that teleport and mean field are chosen by, from the scores of nodes.

    Training nodes count by the cross-entropy of their labels. They are of the present classes
    alone, and a setting may favour these at the expense of all others. So nodes that were there
    before a class was first seen count as well: not by their label, which is not kept, but by the
    probability that they are of *some* older class. They weigh what those classes weigh.

    Args:
        ridge: Tells which column of scores belongs to which class, and what classes weigh.
        train: Training nodes with their labels.
        num_seen: Nodes that were there before this task.
        old_classes: Classes known before this task.
    """

    def __init__(
        self, ridge: Ridge, train: LabelledNodes, num_seen: int, old_classes: Collection[int]
    ) -> None:
        self.nodes, self.column = train.nodes, ridge.moments.columns_of(train.labels)
        self.weights = ridge.judging_weights(self.column)
        seen = evenly_spaced(num_seen, OLD_NODES, train.nodes.device)
        self.old_nodes = seen[~torch.isin(seen, train.nodes)]
        is_old = [label in old_classes for label in ridge.moments.labels]
        self.old = torch.tensor(is_old, device=train.nodes.device)
        self.new_classes = not all(is_old)
        self.present = float(ridge.share[torch.unique(self.column)].sum())
        # What the nodes seen before weigh; without a new class nothing can be taken from the old.
        told = self.new_classes and self.old_nodes.numel() > 0
        self.past = float(ridge.share[self.old].sum()) if told else 0.0

    def of(self, scores: Tensor, earlier: Tensor) -> float:
        """Returns the mean loss over classes, at the temperature of least loss.

        Args:
            scores: Scores of the training nodes, each left out, ``[m, k]``.
            earlier: Scores of ``old_nodes``, ``[o, k]``.
        """

        def loss(temperature: float) -> float:
            current = self.at(scores, temperature)
            if not self.past:
                return current
            whole = torch.logsumexp(earlier / temperature, dim=1)
            old = torch.logsumexp(earlier[:, self.old] / temperature, dim=1)
            taken = float((whole - old).mean())
            return (self.present * current + self.past * taken) / (self.present + self.past)

        return least_loss(loss)[0]

    def at(self, scores: Tensor, temperature: float) -> float:
        """Averages the cross-entropy of the training nodes' labels."""
        losses = cross_entropy(scores / temperature, self.column, reduction="none")
        return float((self.weights * losses).sum())

    def by_temperature(self, scores: Tensor) -> dict[float, float]:
        """Returns the mean cross-entropy of the training nodes at every temperature."""
        return {temperature: self.at(scores, temperature) for temperature in TEMPERATURES}
