r"""Model selection: rows, class weights, ridge strength, teleport probability and mean field.

Losses are cross-validated (:mod:`~evergraph.closed_form.cross_validation`) and add up over tasks;
the value of least total is used. Class weights and the strength are judged with each node left out
exactly. Score propagation and mean-field inference carry a node's label to its neighbours and back:
there training nodes are left out in groups, exactly as well, and each is judged by scores that its
group had no part in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from evergraph.closed_form.cross_validation import (
    TEMPERATURES,
    LeftOut,
    LossTotals,
    leave_one_out_losses,
    surely_best,
)
from evergraph.closed_form.features import FeatureConfig, Rows
from evergraph.closed_form.moments import Moments
from evergraph.closed_form.propagation import mean_field, propagate, softmax, unary_terms
from evergraph.closed_form.ridge import Judges, Ridge, Weighing, row_weights
from evergraph.device import evenly_spaced
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.shard import Shard
from evergraph.stream.tasks import LabelledNodes

#: Most training nodes that rows are compared on, evenly spaced.
COMPARED_NODES = 6_000
#: Most training nodes that are left out one by one, evenly spaced.
JUDGED_NODES = 4_000
#: Most training nodes that are left out in groups, evenly spaced.
GROUPED_NODES = 2_000
#: Ridge strengths to choose from; the weights of all rows sum to one.
STRENGTHS = (1e-7, 1e-6, 1e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 2e-2, 1e-1)
#: Teleport probabilities to choose from.
TELEPORTS = (1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1)
#: What losses at temperatures still count when classes come, for then scores change their scale.
FADING = 0.5
#: Without and with mean-field inference or balance, as values of a setting.
OFF, ON = 0.0, 1.0
#: Class weights that ``auto`` compares, by the power of counts; the first of equals.
WEIGHINGS = {0.0: "natural", 0.5: "square root", 1.0: "balanced"}
#: What is added up: squared errors of strengths, by class weights, and losses.
TOTALS = (
    "natural_strength",
    "root_strength",
    "strength",
    "balanced",
    "teleport",
    "mean_field",
    "score_temperature",
    "unary_temperature",
)
Metric = Literal["accuracy", "balanced_accuracy"]


class Selection:
    """The settings that were given or are chosen, with the losses of every value.

    Of the rows to choose from, ``kinds``, the usual ones come first; the other arguments are those
    of :class:`~evergraph.methods.analytic_config.AnalyticConfig`.
    """

    #: Whether the graph is so large that ``auto`` takes what is around a node for enough: then
    #: scores are not propagated and there is no mean field.
    local = False
    weights: Tensor | None = None  # what rows weigh by their label, [k], if that is given

    def __init__(
        self,
        kinds: Sequence[FeatureConfig],
        strength: float | Literal["auto"] = "auto",
        teleport: float | Literal["auto"] = "auto",
        mean_field: Literal["auto", True, False] = "auto",
        *,
        class_weight: Literal["natural", "balanced", "auto", "given"] = "auto",
        metric: Metric = "accuracy",
    ) -> None:
        self.kinds = {kind.name: kind for kind in kinds}
        self.kind: FeatureConfig | None = kinds[0] if len(self.kinds) == 1 else None
        self.kind_losses: dict[str, float] = {}  # of every choice, on the first task
        self.basis: Tensor | None = None  # what features are projected on, [d, b]
        self.strengths: tuple[float, ...] = STRENGTHS if strength == "auto" else (strength,)
        self.given_teleport, self.given_mean_field = teleport, mean_field
        self.class_weight, self.metric = class_weight, metric
        self.losses = {name: LossTotals() for name in TOTALS}

    @property
    def weighing(self) -> Weighing:
        """What rows weigh: as given, or as has had the least error."""
        if self.weights is not None:
            return self.weights
        if self.class_weight != "auto":
            return float(self.class_weight == "balanced")
        totals = self.losses["balanced"]
        return totals.best if totals else float(self.metric != "accuracy")

    @property
    def strength(self) -> float:
        """λ: the strength of least error so far."""
        return self._errors(self.weighing).best

    def _errors(self, weighing: Weighing) -> LossTotals:
        power = 0.0 if isinstance(weighing, Tensor) else weighing
        return self.losses[TOTALS[list(WEIGHINGS).index(power)]]

    @property
    def teleport(self) -> float:
        """α: the teleport probability that was given, or that of least loss so far."""
        given = self.given_teleport
        if given == "auto":
            totals = self.losses["teleport"]
            return totals.best if totals and not self.local else 1.0
        return given

    @property
    def mean_field(self) -> bool:
        """Whether mean-field inference follows: as given, or if that has had the smaller loss."""
        given = self.given_mean_field
        if given == "auto":
            totals = self.losses["mean_field"]
            return bool(totals) and not self.local and totals.best == ON
        return given

    @property
    def temperature(self) -> float:
        """What left-out predictions are best divided by; mean field is ready for the softmax."""
        totals = self.losses["score_temperature"]
        return totals.best if totals and not self.mean_field else 1.0

    def sample(self, labels: Tensor, most: int) -> Tensor:
        """Takes at most so many rows to judge by, evenly spaced; of each class if they count alike.

        Of a rare class hardly any would be among them otherwise.
        """
        if self.metric == "accuracy" or labels.numel() <= most:
            return evenly_spaced(labels.numel(), most, labels.device)
        members = [torch.nonzero(labels == label).flatten() for label in torch.unique(labels)]
        share = max(1, most // len(members))
        rows = [mine[evenly_spaced(mine.numel(), share, mine.device)] for mine in members]
        return torch.sort(torch.cat(rows)).values

    def keep_kinds(self, fit: Callable[[FeatureConfig], bool]) -> None:
        """Leaves rows that do not fit out of the choice, unless none does."""
        self.kinds = {name: kind for name, kind in self.kinds.items() if fit(kind)} or self.kinds
        if len(self.kinds) == 1:
            self.kind = next(iter(self.kinds.values()))

    def select_kind(
        self, make_rows: Callable[[FeatureConfig], Rows], train: LabelledNodes
    ) -> FeatureConfig:
        """Chooses the kind of rows for good, unless that is settled."""
        if self.kind is None:
            some = train.take(self.sample(train.labels, COMPARED_NODES))
            losses = dict[str, Tensor]()
            for name, kind in self.kinds.items():
                rows = make_rows(kind)
                place = rows.place(some.nodes)
                here = torch.nonzero(place >= 0).flatten()
                judges = Judges(some.labels, rows.own_rows(place[here])[:], here, rows.team)
                losses[name] = leave_one_out_losses(judges, self.strengths, self.weighing)
            weights = row_weights(some.labels, self.weighing)
            twin = next(iter(self.kinds.values())).model_copy(update={"constant": True})
            name, self.kind_losses = surely_best(losses, weights, twin.name)
            self.kind = self.kinds[name]
        return self.kind

    def solve(self, moments: Moments, judges: Judges) -> Ridge:
        """Adds up the errors of class weights and strengths; returns the ridge of the least.

        The moments include the judges' rows, training nodes all of them.
        """
        if self.class_weight != "auto":
            ridge = Ridge(moments, self.weighing)
            self._judge(ridge, judges)
            return ridge
        totals = self.losses["balanced"]
        options = tuple(totals) or tuple(WEIGHINGS)  # an older state goes on with its own
        ridges = {power: Ridge(moments, power) for power in options}
        wrong = {power: self._judge(ridge, judges) for power, ridge in ridges.items()}
        totals.add(wrong, judges.labels.numel())
        return ridges[totals.best]

    def _judge(self, ridge: Ridge, judges: Judges) -> float:
        """Adds up the errors of strengths; returns how wrong the one of the least is."""
        train = ridge.training_rows(judges.x, judges.labels[judges.here])
        errors = self._errors(ridge.weighing)
        found = ridge.leave_one_out_errors(train, judges, self.strengths)
        errors.add(found, judges.labels.numel())
        return self._wrong(ridge.leave_one_out_scores(train, errors.best), train.column, judges)

    def _wrong(self, scores: Tensor, column: Tensor, judges: Judges) -> float:
        """Returns the share of judges, or its mean over classes, that are predicted wrongly."""
        missed = judges.all((scores.argmax(dim=1) != column).double())  # equals stay so if shared
        return float(row_weights(judges.labels, float(self.metric != "accuracy")) @ missed)

    def infer(self, scores: Tensor, features: Rows, graph: Adjacency | Shard) -> Tensor:
        """Returns what is predicted from the ridge scores of all nodes, both ``[n, k]``."""
        propagated = propagate(scores, graph, self.teleport)
        if not self.mean_field:
            return propagated
        probabilities = self._probabilities(propagated)
        return self._inferred(unary_terms([probabilities], features)[0], probabilities, graph)

    def _probabilities(self, scores: Tensor) -> Tensor:
        return softmax(scores / self.losses["score_temperature"].best)

    def _inferred(self, unary: Tensor, probabilities: Tensor, graph: Adjacency | Shard) -> Tensor:
        return mean_field(unary / self.losses["unary_temperature"].best, probabilities, graph)

    @property
    def chooses_inference(self) -> bool:
        """Whether teleport or mean field are left to choose."""
        given = self.given_teleport != "auto" and self.given_mean_field is False
        return not given and not self.local

    def select_inference(self, judged: LeftOut, features: Rows, graph: Adjacency | Shard) -> None:
        """Adds up the losses of teleport and mean field, if there is something to choose.

        ``features`` are the features of all nodes as rows of length one.
        """
        if not judged.count:
            return
        scores, plain, likely = judged.scores(), None, 1.0
        if self.given_teleport == "auto":
            likely = self.teleport
            losses, plain = judged.teleport_losses(scores, graph, TELEPORTS, likely)
            self.losses["teleport"].add(losses, judged.count)
        if self.given_mean_field is not False:
            if plain is None or self.teleport != likely:
                plain = propagate(scores, graph, self.teleport)
            self._select_mean_field(judged.split(plain), judged, features, graph)

    def _select_mean_field(
        self, plain: Sequence[Tensor], judged: LeftOut, features: Rows, graph: Adjacency | Shard
    ) -> None:
        """Compares scores, ``[n, k]`` for every group, with what mean field makes of them."""
        keep = FADING if judged.new_classes else 1.0

        def add(name: str, everyone: Sequence[Tensor]) -> None:
            losses = judged.by_temperature(judged.pick(everyone)[0])
            self.losses[name].add(losses, judged.count, keep)

        add("score_temperature", plain)
        probabilities = [self._probabilities(one) for one in plain]
        unary = unary_terms(probabilities, features)
        add("unary_temperature", unary)
        pairs = zip(unary, probabilities, strict=True)
        inferred = (self._inferred(own, q, graph) for own, q in pairs)  # one at a time
        picked = {OFF: judged.pick(plain), ON: judged.pick(inferred)}
        losses = {value: judged.loss(*scores) for value, scores in picked.items()}
        off, on = (self._wrong(own, judged.column, judged.judges) for own, _ in picked.values())
        if self.class_weight == "auto" and on > off:  # less loss may cost what counts
            losses[ON] = max(losses.values())
        self.losses["mean_field"].add(losses, judged.count)

    def report(self) -> dict[str, Any]:
        """Tells what was chosen, with the losses of every value."""
        weighing = self.weighing
        chosen = {
            "hops": None if self.kind is None else self.kind.name,
            "class_weight": "given" if isinstance(weighing, Tensor) else WEIGHINGS[weighing],
            "strength": self.strength,
            "teleport": self.teleport,
            "mean_field": self.mean_field,
        }
        if self.basis is not None:
            chosen["columns"] = self.basis.shape[1]
        if self.local:
            chosen["local"] = True
        losses = {"hop_losses": dict(self.kind_losses)}
        losses["strength_losses"] = self._errors(weighing).state_dict()
        losses["teleport_losses"] = self.losses["teleport"].state_dict()
        words = {"mean_field": {OFF: "off", ON: "on"}, "balanced": WEIGHINGS}
        for name, options in words.items():
            totals = self.losses[name].items()
            losses[f"{name}_losses"] = {options[value]: loss for value, loss in totals}
        return {**chosen, **{name: values for name, values in losses.items() if values}}

    def memory_bytes(self) -> int:
        """Counts a number for every loss and one for the choice of rows, and the directions."""
        numbers = sum(map(len, self.losses.values()))
        numbers += len(self.kind_losses) + bool(self.kind_losses)
        return 8 * numbers + (0 if self.basis is None else self.basis.nbytes)

    def state_dict(self) -> dict[str, Any]:
        """Returns tensors and plain values that restore the choices."""
        losses = {name: totals.state_dict() for name, totals in self.losses.items()}
        kind = None if self.kind is None else self.kind.name
        return {
            "hops": kind,
            "hop_losses": dict(self.kind_losses),
            "losses": losses,
            "basis": self.basis,
            "local": self.local,
            **({} if self.weights is None else {"class_weights": self.weights}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned, or 0.1.0 wrote; refuses what does not fit."""
        hops = state["hops"]
        found = [kind for kind in self.kinds.values() if hops in (kind.name, kind.hops)]
        if hops is not None and not found:
            raise ValueError("rows of other settings")
        self.kind = None if hops is None else found[0]
        self.kind_losses = dict(state["hop_losses"])
        self.basis, self.local = state.get("basis"), state.get("local") is True
        self.weights = state.get("class_weights") if self.class_weight == "given" else None
        losses = state["losses"] if "losses" in state else _former_losses(state)
        for name, totals in self.losses.items():
            totals.load_state_dict(losses.get(name, {}))
        judged, scores, unary = (set(self.losses[name]) for name in TOTALS[-3:])
        unknown = (scores | unary) - set(TEMPERATURES) or set(self.losses["balanced"]) - set(
            WEIGHINGS
        )
        if judged not in (set(), {OFF, ON}) or unknown:
            raise ValueError("losses of unknown values")
        # What was never judged has no total to compare.
        self.strengths = tuple(self._errors(self.weighing)) or self.strengths
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
