"""The reader: how scores become what is shown, chosen by what every way has cost so far.

Scores are mixed with those of neighbours by a share (:mod:`~evergraph.closed_form.reading`); then,
if that has cost less, beliefs are exchanged (:mod:`~evergraph.closed_form.beliefs`). Exchanging is
not linear, so a single node cannot be left out by a formula: training nodes are left out in groups,
exactly, and each node is judged by the scores that its group had no part in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from evergraph.closed_form.beliefs import exchange, neighbours
from evergraph.closed_form.calibration import TEMPERATURES
from evergraph.closed_form.evidence import Evidence
from evergraph.closed_form.features import RowSource
from evergraph.closed_form.own_features import OwnFeatures
from evergraph.closed_form.questions import Known, Questions
from evergraph.closed_form.reading import judge_shares, read
from evergraph.closed_form.ridge import RidgeFactor
from evergraph.closed_form.smoothing import Smoothing, smoothing
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.tasks import LabelledNodes

#: Groups that training nodes are left out in.
GROUPS = 5
#: Most training nodes that beliefs are judged on, evenly spaced.
MOST_JUDGED = 2_000
#: What evidence on temperatures still counts when classes come, for then scores change their scale.
FADING = 0.5
OFF, ON = 0.0, 1.0


@dataclass
class Surroundings:
    """A graph as it is read: rows of its nodes, their own features, their neighbours."""

    rows: RowSource
    features: RowSource
    graph: Adjacency

    @cached_property
    def average(self) -> Smoothing:
        """Averages over a node and its neighbours."""
        return smoothing(self.graph, "mean", self_loops=True)

    @cached_property
    def around(self) -> Smoothing:
        """Sums over a node's neighbours."""
        return neighbours(self.graph)

    @cached_property
    def own(self) -> OwnFeatures:
        """Regression on nodes' own features."""
        return OwnFeatures(self.features, self.graph.num_nodes, self.graph.device)


class Reader:
    """Shares and beliefs, and what they have cost.

    Args:
        share: Share of scores that comes from neighbours, or ``auto``.
        beliefs: Whether beliefs are exchanged, or ``auto``.
    """

    def __init__(
        self, share: float | Literal["auto"], beliefs: Literal["auto", "on", "off"]
    ) -> None:
        self.fixed_share = share
        self.mode = beliefs
        self.shares = Evidence()  # losses of nodes left out, and of nodes seen before
        self.beliefs = Evidence()  # the same, without and with beliefs
        self.scores_at = Evidence()  # losses of scores at every temperature
        self.features_at = Evidence()  # of what features tell at every temperature

    @property
    def share(self) -> float:
        """The share of scores that comes from neighbours: what has cost least so far."""
        return self.shares.best if self.fixed_share == "auto" else self.fixed_share

    @property
    def exchanges(self) -> bool:
        """Whether beliefs are exchanged: what has cost less so far."""
        return self.mode == "on" or (self.mode == "auto" and self.beliefs.best == ON)

    def judge(
        self,
        factor: RidgeFactor,
        place: Surroundings,
        trained: LabelledNodes,
        known: Known,
        x: Tensor,
    ) -> None:
        """Adds up what every way of reading costs, as far as it is not given.

        Args:
            factor: The equations, decomposed; they hold the rows of the training nodes.
            place: The graph.
            trained: The current training nodes with their labels.
            known: Nodes and classes before this task.
            x: The rows of the training nodes, ``[m, d]``.
        """
        if self.fixed_share == "auto":
            asked = Questions(factor.system, trained, known)
            costs = judge_shares(factor, place.rows, place.average, trained, asked, x=x)
            self.shares.add(costs, trained.nodes.numel())
        if self.mode != "off" and trained.nodes.numel():
            step = max(1, -(-trained.nodes.numel() // MOST_JUDGED))
            chosen = torch.arange(0, trained.nodes.numel(), step, device=x.device)
            some = trained.take(chosen)
            asked = Questions(factor.system, some, known)
            if len(factor.system.labels) > len(known.classes):
                self.scores_at.fade(FADING)
                self.features_at.fade(FADING)
            self._judge_beliefs(factor, place, some, asked, x[chosen])

    def _judge_beliefs(
        self,
        factor: RidgeFactor,
        place: Surroundings,
        trained: LabelledNodes,
        asked: Questions,
        x: Tensor,
    ) -> None:
        count = trained.nodes.numel()
        group = torch.arange(count, device=x.device) % GROUPS
        whole = factor.weights()
        weights = [
            factor.weights_without(whole, x[group == one], trained.labels[group == one])
            for one in range(min(GROUPS, count))
        ]
        scores = place.rows.times(torch.cat([*weights, whole], dim=1))  # side by side
        n, k = scores.shape[0], whole.shape[1]

        def apart(everyone: Tensor) -> Tensor:
            return everyone.reshape(n, -1, k).movedim(1, 0)  # [groups + 1, n, k]

        def cost(everyone: Tensor) -> float:
            return asked.cost(everyone[group, trained.nodes], everyone[-1])

        plain = apart(read(scores, place.average, self.share))
        self.scores_at.add(asked.by_temperature(plain[group, trained.nodes]), count)
        beliefs = self._believed(plain)
        told = apart(place.own.tell(beliefs.movedim(0, 1).reshape(n, -1)))
        self.features_at.add(asked.by_temperature(told[group, trained.nodes]), count)
        heard = exchange(told / self.features_at.best, beliefs, place.around)
        self.beliefs.add({OFF: cost(plain), ON: cost(heard)}, count)

    def _believed(self, scores: Tensor) -> Tensor:
        return (scores / self.scores_at.best).softmax(dim=-1)

    def read(self, scores: Tensor, place: Surroundings) -> Tensor:
        """Returns what is shown for the scores of all nodes, ``[n, k]``."""
        shown = read(scores, place.average, self.share)
        if not self.exchanges:
            return shown
        beliefs = self._believed(shown)
        own = place.own.tell(beliefs) / self.features_at.best
        return exchange(own, beliefs, place.around)

    def report(self) -> dict[str, Any]:
        """Tells what was chosen and what each way has cost."""
        told: dict[str, Any] = {"share": self.share, "beliefs": "on" if self.exchanges else "off"}
        if self.shares.costs:
            told["share_loss"] = self.shares.told()
        if self.beliefs.costs:
            costs = self.beliefs.costs
            told["beliefs_loss"] = {"off": costs[OFF], "on": costs[ON]}
        return told

    @property
    def _parts(self) -> dict[str, Evidence]:
        return {
            "shares": self.shares,
            "beliefs": self.beliefs,
            "scores_at": self.scores_at,
            "features_at": self.features_at,
        }

    def memory_bytes(self) -> int:
        """Counts what every way has cost."""
        return sum(part.memory_bytes() for part in self._parts.values())

    def state_dict(self) -> dict[str, Any]:
        """Returns plain values that restore the costs."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        heard, at = set(self.beliefs.costs), (self.scores_at.costs, self.features_at.costs)
        if heard not in (set(), {OFF, ON}) or any(set(part) - set(TEMPERATURES) for part in at):
            raise ValueError("costs of unknown ways to read")
        if any(bool(part) != bool(heard) for part in at):
            raise ValueError("beliefs without a temperature")
