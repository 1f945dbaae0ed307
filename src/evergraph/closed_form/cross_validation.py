"""Cross-validated losses: how well labels are predicted by weights that never saw them.

Only the current training nodes are judged on, each predicted without itself, so no validation node
is needed. Scores are divided by the temperature that suits them best before the softmax, so that
their scale does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from evergraph.closed_form.features import Rows
from evergraph.closed_form.propagation import coefficients, mix, powers
from evergraph.closed_form.ridge import Judges, Ridge, Weighing, fitted, row_weights
from evergraph.device import evenly_spaced
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.shard import Shard
from evergraph.stream.tasks import LabelledNodes

#: What scores are divided by before the softmax: 30 steps from 0.005 to 3.
TEMPERATURES = tuple(0.005 * 600 ** (step / 29) for step in range(30))
#: Most nodes seen before that a loss is computed on, evenly spaced.
OLD_NODES = 2_000
#: Standard errors by which other rows must be better than the usual ones.
MARGIN = 2.0
#: Groups that training nodes are left out in.
GROUPS = 5


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


def leave_one_out_losses(judges: Judges, strengths: Sequence[float], weighing: Weighing) -> Tensor:
    """Computes the cross-entropy of every judge as predicted without it, ``[m]``.

    The strength is that of least squared error, the temperature that of least loss. Squared errors
    would favour more hops whatever they are worth, because smoother rows have scores of larger
    scale. Scores are not propagated, so that no neighbour tells the label of a row left out.
    """
    ridge, train, strength = fitted(judges, strengths, weighing)
    scores = ridge.leave_one_out_scores(train, strength)
    losses = torch.stack(
        [cross_entropy(scores / t, train.column, reduction="none") for t in TEMPERATURES]
    )
    return judges.all(losses[judges.mean(losses.t(), weighing).argmin()])


def surely_best(
    losses: Mapping[str, Tensor], weights: Tensor, twin: str = ""
) -> tuple[str, dict[str, float]]:
    """Takes the rows of least mean loss if they are surely better than the usual ones.

    That is, if the mean of what they save, node by node, is more than :data:`MARGIN` times its
    standard error. Losses are ``[m]``, the usual choice first; its ``twin`` is as usual, so that
    less loss is enough. Returns all mean losses as well.
    """
    usual = next(iter(losses))
    m = losses[usual].numel()
    means = {name: float((weights * loss).sum()) for name, loss in losses.items()}
    usual = min((usual, twin), key=lambda name: means.get(name, math.inf))
    best = min(means, key=lambda name: means[name])
    saved = m * weights * (losses[usual] - losses[best])
    noise = float(saved.std()) / math.sqrt(m) if m > 1 else math.inf
    return (best if float(saved.mean()) > MARGIN * noise else usual), means


class LeftOut:
    """Training nodes left out in groups, and the loss that teleport and mean field are chosen by.

    Training nodes count by the cross-entropy of their labels. They are of the present classes
    alone, and a setting may favour these at the expense of all others. So nodes that were there
    before a class was first seen count as well: not by their label, which is no longer at hand,
    but by the probability that they are of *some* older class. They weigh what those classes
    weigh. The regression holds the rows ``x`` ``[m, d]`` of the training nodes, which are some of
    all ``rows``; ``num_seen`` nodes were there before the task.
    """

    def __init__(
        self,
        ridge: Ridge,
        rows: Rows,
        x: Tensor,
        train: LabelledNodes,
        strength: float,
        *,
        num_seen: int,
        old_classes: Collection[int],
    ) -> None:
        self.ridge, self.rows, self.train, self.strength = ridge, rows, train, strength
        self.judges = Judges(train.labels, x)
        self.count, device = train.nodes.numel(), train.nodes.device
        everyone = torch.arange(self.count, device=device)
        self.groups = [everyone[first::GROUPS] for first in range(min(GROUPS, self.count))]
        self.column = ridge.moments.columns_of(train.labels)
        self.weight = row_weights(train.labels, ridge.weighing)
        seen = evenly_spaced(num_seen, OLD_NODES, device)
        self.old_nodes = seen[~torch.isin(seen, train.nodes)]
        is_old = [label in old_classes for label in ridge.moments.labels]
        self.old, self.new_classes = torch.tensor(is_old, device=device), not all(is_old)
        self.present = float(ridge.share[torch.unique(self.column)].sum())
        # What the nodes seen before weigh; without a new class nothing can be taken from the old.
        told = self.new_classes and self.old_nodes.numel() > 0
        self.past = float(ridge.share[self.old].sum()) if told else 0.0

    def scores(self) -> Tensor:
        """Scores all nodes without each group, then with all training nodes, side by side."""
        ridge, labels = self.ridge, self.train.labels
        groups = [ridge.training_rows(self.judges.x[group], labels[group]) for group in self.groups]
        without = [ridge.weights_without(group, self.strength) for group in groups]
        return self.rows.times(torch.cat([*without, ridge.weights(self.strength)], dim=1))

    def split(self, together: Tensor) -> Sequence[Tensor]:
        """Takes apart what :meth:`scores` put side by side, each ``[n, k]``."""
        return torch.split(together, len(self.ridge.moments.labels), dim=1)

    def pick(self, everyone: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
        """Picks what is judged from such scores of all nodes.

        Returns those of the training nodes without their group ``[m, k]``, and those of the nodes
        seen before with all ``[o, k]``.
        """
        places = [*(self.train.nodes[group] for group in self.groups), self.old_nodes]
        pairs = zip(everyone, places, strict=True)
        *own, earlier = (self.rows.pick(one, place) for one, place in pairs)
        back = torch.argsort(torch.cat(self.groups))
        return torch.cat(own)[back], earlier

    def teleport_losses(
        self, scores: Tensor, graph: Adjacency | Shard, teleports: Sequence[float], likely: float
    ) -> tuple[dict[float, float], Tensor]:
        """Returns the loss of every teleport probability, given :meth:`scores`.

        What the likely one makes of all scores is returned too: it is computed on the way.
        """
        own, earlier, shares = [], [], coefficients(likely)
        mixed = scores if likely == 1 else shares[0] * scores  # 1 leaves them: no copy
        for at, step in enumerate(powers(scores, graph)):
            picked = self.pick(self.split(step))
            own.append(picked[0])
            earlier.append(picked[1])
            if at and likely < 1:
                mixed.add_(step, alpha=shares[at])
        losses = {value: self.loss(mix(own, value), mix(earlier, value)) for value in teleports}
        return losses, mixed

    def loss(self, own: Tensor, earlier: Tensor) -> float:
        """Returns the mean loss at the temperature of least loss, given what :meth:`pick` does."""

        def at(temperature: float) -> float:
            current = self.at(own, temperature)
            if not self.past:
                return current
            whole = torch.logsumexp(earlier / temperature, dim=1)
            old = torch.logsumexp(earlier[:, self.old] / temperature, dim=1)
            taken = float((whole - old).mean())
            return (self.present * current + self.past * taken) / (self.present + self.past)

        return least_loss(at)[0]

    def at(self, scores: Tensor, temperature: float) -> float:
        """Averages the cross-entropy of the training nodes' labels."""
        losses = cross_entropy(scores / temperature, self.column, reduction="none")
        return float((self.weight * losses).sum())

    def by_temperature(self, scores: Tensor) -> dict[float, float]:
        """Returns the mean cross-entropy of the training nodes at every temperature."""
        return {temperature: self.at(scores, temperature) for temperature in TEMPERATURES}
