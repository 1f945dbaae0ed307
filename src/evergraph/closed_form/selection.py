r"""Model selection: hops, ridge strength, teleport probability and mean field, by their losses.

Losses are cross-validated (:mod:`~evergraph.closed_form.cross_validation`) and add up over tasks;
the value of least total is used. Propagation and regression are linear: together they are the same
weights on the row :math:`\tilde x_i = \sum_j c_j (P^j x)_i`, so that leaving node :math:`i` out is
exact,

.. math:: \tilde x_i^\top B^{(-i)} = \tilde x_i^\top B
    - w_i\,\tilde x_i^\top (G + \lambda I)^{-1} x_i\; r_i

with :math:`r_i` its leave-one-out residual. Mean-field inference is not linear: training nodes are
left out in groups, exactly, and each is judged by scores that its group had no part in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from evergraph.closed_form.cross_validation import (
    TEMPERATURES,
    LossTotals,
    ValidationLoss,
    leave_one_out_losses,
)
from evergraph.closed_form.features import (
    PropagatedFeatures,
    Rows,
    propagation_matrix,
    readable_hops,
)
from evergraph.closed_form.propagation import (
    STEPS,
    evenly_spaced,
    mean_field,
    mix,
    powers,
    propagate,
    unary_term,
)
from evergraph.closed_form.ridge import Ridge, RidgeSystem, TrainingRows, balanced_weights
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.tasks import LabelledNodes

#: Used unless other hops are better by more than the noise.
USUAL_HOPS = "0+1+2"
#: Hops to choose from: from a node's own features alone to its surroundings alone.
HOPS = ("0", "0+1", USUAL_HOPS, "0+1+2+3", "2+3")
#: Standard errors by which other hops must be better than the usual ones.
MARGIN = 2.0
#: Ridge strengths to choose from; the weights of all rows sum to one.
STRENGTHS = (1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 2e-2, 1e-1)
#: Teleport probabilities to choose from.
TELEPORTS = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1)
#: Groups that training nodes are left out in.
GROUPS = 5
#: Most training nodes that mean-field inference is judged on, evenly spaced.
JUDGED_NODES = 2_000
#: What losses at temperatures still count when classes come, for then scores change their scale.
FADING = 0.5
#: Without and with mean-field inference, as values of a setting.
OFF, ON = 0.0, 1.0


class Selection:
    """The settings that were given or are chosen, with the losses of every value.

    Args:
        hops: Hops of the rows, or ``auto``.
        strength: Ridge strength, or ``auto``.
        teleport: Teleport probability, or ``auto``.
        mean_field: Whether mean-field inference follows, or ``auto``.
    """

    def __init__(
        self,
        hops: str,
        strength: float | Literal["auto"],
        teleport: float | Literal["auto"],
        mean_field: Literal["auto", True, False],
    ) -> None:
        self.hops: str | None = None if hops == "auto" else hops
        self.hop_losses: dict[str, float] = {}  # of every choice, on the first task
        self.strengths = STRENGTHS if strength == "auto" else (strength,)
        self.given_teleport, self.given_mean_field = teleport, mean_field
        names = ("strength", "teleport", "mean_field", "score_temperature", "unary_temperature")
        self.losses = {name: LossTotals() for name in names}  # the strength's are squared errors

    @property
    def strength(self) -> float:
        """λ: the strength of least error so far."""
        return self.losses["strength"].best

    @property
    def teleport(self) -> float:
        """α: the teleport probability that was given, or that of least loss so far."""
        given = self.given_teleport
        return self.losses["teleport"].best if given == "auto" else given

    @property
    def mean_field(self) -> bool:
        """Whether mean-field inference follows: as given, or if that has had the smaller loss."""
        given = self.given_mean_field
        return self.losses["mean_field"].best == ON if given == "auto" else given

    def select_hops(self, features: PropagatedFeatures, train: LabelledNodes) -> None:
        """Chooses the hops for good, unless that is settled; ``features`` may be of any hops."""
        if self.hops is None:
            rows = zip(HOPS, features.rows_by_hops(train.nodes, HOPS), strict=True)
            losses = {
                hops: leave_one_out_losses(x, train.labels, self.strengths) for hops, x in rows
            }
            self.hops, self.hop_losses = surely_best(losses, train.labels)

    def solve(self, system: RidgeSystem, train: TrainingRows) -> Ridge:
        """Solves for the strength of least leave-one-out error so far."""
        errors = system.leave_one_out_errors(train, self.strengths)
        self.losses["strength"].add(errors, train.labels.numel())
        return Ridge(system, self.strength)

    def infer(self, scores: Tensor, features: Rows, graph: Adjacency) -> Tensor:
        """Returns what is predicted from the ridge scores of all nodes, both ``[n, k]``."""
        propagated = propagate(scores, graph, self.teleport)
        if not self.mean_field:
            return propagated
        probabilities = self._probabilities(propagated)
        return self._inferred(unary_term(probabilities, features), probabilities, graph)

    def _probabilities(self, scores: Tensor) -> Tensor:
        return (scores / self.losses["score_temperature"].best).softmax(dim=-1)

    def _inferred(self, unary: Tensor, probabilities: Tensor, graph: Adjacency) -> Tensor:
        return mean_field(unary / self.losses["unary_temperature"].best, probabilities, graph)

    def select_inference(
        self,
        ridge: Ridge,
        train: TrainingRows,
        validation: ValidationLoss,
        *,
        rows: Rows,
        features: Rows,
        graph: Adjacency,
    ) -> None:
        """Adds up the losses of teleport and mean field, unless they are given.

        Args:
            ridge: The regression; it holds the rows of the training nodes.
            train: The rows of the current training nodes.
            validation: The loss on these nodes.
            rows: The rows of all nodes.
            features: The features of all nodes, as rows of length one.
            graph: The graph.
        """
        count = train.labels.numel()
        if self.given_teleport == "auto":
            losses = teleport_losses(ridge, train, validation, rows, graph)
            self.losses["teleport"].add(losses, count)
        if self.given_mean_field is not False and count:
            some = evenly_spaced(count, JUDGED_NODES, graph.device)
            weights = _weights_without_groups(ridge, train.x[some], train.labels[some])
            scores = propagate(rows.times(weights), graph, self.teleport)
            self._select_mean_field(scores, validation.take(some), features, graph)

    def _select_mean_field(
        self, scores: Tensor, validation: ValidationLoss, features: Rows, graph: Adjacency
    ) -> None:
        """Compares scores ``[n, (groups + 1) k]`` with what mean-field inference makes of them."""
        nodes, (n, k) = validation.train.nodes, (graph.num_nodes, len(validation.system.labels))
        count, group = nodes.numel(), torch.arange(nodes.numel(), device=nodes.device) % GROUPS
        keep = FADING if validation.new_classes else 1.0

        def apart(together: Tensor) -> Tensor:
            return together.reshape(n, -1, k).movedim(1, 0)  # [groups + 1, n, k]

        def loss(everyone: Tensor) -> float:
            return validation.of(everyone[group, nodes], everyone[-1])

        def add(name: str, everyone: Tensor) -> None:
            self.losses[name].add(validation.by_temperature(everyone[group, nodes]), count, keep)

        plain = apart(scores)
        add("score_temperature", plain)
        probabilities = self._probabilities(plain)
        unary = apart(unary_term(probabilities.movedim(0, 1).reshape(n, -1), features))
        add("unary_temperature", unary)
        inferred = self._inferred(unary, probabilities, graph)
        self.losses["mean_field"].add({OFF: loss(plain), ON: loss(inferred)}, count)

    def report(self) -> dict[str, Any]:
        """Tells what was chosen, with the losses of every value."""
        chosen = {"hops": self.hops, "strength": self.strength, "teleport": self.teleport}
        losses = {"hop_losses": dict(self.hop_losses)}
        for name in ("strength", "teleport"):
            losses[f"{name}_losses"] = self.losses[name].state_dict()
        judged = zip(("off", "on"), self.losses["mean_field"].values(), strict=False)
        losses["mean_field_losses"] = dict(judged)
        found = {name: values for name, values in losses.items() if values}
        return {**chosen, "mean_field": self.mean_field, **found}

    def memory_bytes(self) -> int:
        """Counts a number for every loss and one for the hops, if they were chosen."""
        numbers = sum(map(len, self.losses.values()))
        return 8 * (numbers + len(self.hop_losses) + bool(self.hop_losses))

    def state_dict(self) -> dict[str, Any]:
        """Returns plain values that restore the choices."""
        losses = {name: totals.state_dict() for name, totals in self.losses.items()}
        return {"hops": self.hops, "hop_losses": dict(self.hop_losses), "losses": losses}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned, or 0.1.0 wrote; refuses what does not fit."""
        self.hops = None if state["hops"] is None else readable_hops(state["hops"])
        self.hop_losses = dict(state["hop_losses"])
        losses = state["losses"] if "losses" in state else _former_losses(state)
        for name, totals in self.losses.items():
            totals.load_state_dict(losses[name])
        *_, judged, scores, unary = map(set, self.losses.values())
        if judged not in (set(), {OFF, ON}) or (scores | unary) - set(TEMPERATURES):
            raise ValueError("losses of unknown values")
        if not bool(judged) == bool(scores) == bool(unary):
            raise ValueError("mean-field inference without a temperature")


def _former_losses(state: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """Returns the losses of a state that 0.1.0 wrote; its shares were 1 − teleport."""
    reader = state["reader"]
    shares = reader["shares"].items()
    return {
        "strength": state["strengths"],
        "teleport": {repr(round(1 - float(share), 12)): loss for share, loss in shares},
        "mean_field": reader["beliefs"],
        "score_temperature": reader["scores_at"],
        "unary_temperature": reader["features_at"],
    }


def surely_best(losses: Mapping[str, Tensor], labels: Tensor) -> tuple[str, dict[str, float]]:
    """Takes the hops of least mean loss if they are surely better than the usual ones.

    That is, if the mean of what they save, node by node and classes alike, is more than
    :data:`MARGIN` times its standard error. Returns all mean losses as well.

    Args:
        losses: The loss of every node under every choice, ``[m]``.
        labels: The nodes' labels, ``[m]``.
    """
    weights, m = balanced_weights(labels), labels.numel()
    means = {hops: float((weights * loss).sum()) for hops, loss in losses.items()}
    best = min(means, key=lambda hops: means[hops])
    saved = m * weights * (losses[USUAL_HOPS] - losses[best])
    noise = float(saved.std()) / math.sqrt(m) if m > 1 else math.inf
    return (best if float(saved.mean()) > MARGIN * noise else USUAL_HOPS), means


def teleport_losses(
    ridge: Ridge,
    train: TrainingRows,
    validation: ValidationLoss,
    rows: Rows,
    graph: Adjacency,
) -> dict[float, float]:
    """Returns every teleport probability's loss; see :meth:`Selection.select_inference`."""
    mean, nodes = propagation_matrix(graph, "mean", self_loops=True), validation.train.nodes
    solved = ridge.solve(train.x, train.products)  # [m, d]
    own = train.x.new_zeros(STEPS + 1, nodes.numel())  # (P^j x)_i^T (G + λ)^-1 x_i
    for place, columns in rows.blocks():
        block = columns
        for step in range(STEPS + 1):
            block = mean.times(block.float()) if step else block
            own[step] += (block[nodes] * solved[:, place]).sum(dim=1)
    own, residuals = train.weight * own, ridge.leave_one_out_residuals(train)
    of_powers = powers(rows.times(ridge.weights), mean)
    losses = {}
    for teleport in TELEPORTS:
        everyone = mix(of_powers, teleport)
        scores = everyone[nodes] - mix(list(own), teleport)[:, None] * residuals
        losses[teleport] = validation.of(scores, everyone)
    return losses


def _weights_without_groups(ridge: Ridge, x: Tensor, labels: Tensor) -> Tensor:
    """Solves without each group of training rows, then with all, ``[d, (groups + 1) k]``."""
    group = torch.arange(labels.numel(), device=labels.device) % GROUPS
    parts = [
        ridge.system.training_rows(x[group == one], labels[group == one])
        for one in range(min(GROUPS, labels.numel()))
    ]
    return torch.cat([*map(ridge.weights_without, parts), ridge.weights], dim=1)
