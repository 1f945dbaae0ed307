"""The watch: tests whether a change made things worse, or brought other nodes than before.

Newcomers are compared with the nodes that were there, both as they are after the change: if nodes
come in random order the two could change places, so that tests err as often as they say. Accuracy
by class is compared with the best that is surely known of it. And predictions are compared with
those of a classifier that knows features alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.ridge import Judges, fitted, row_weights
from evergraph.closed_form.selection import STRENGTHS
from evergraph.device import evenly_spaced
from evergraph.estimator.inputs import Change
from evergraph.estimator.state import MOST_JUDGED, Comparison, State
from evergraph.metrics import Array
from evergraph.stream import LabelledNodes
from evergraph.stream.features import take_columns

#: So many newcomers, or judges of a class, can tell anything: fewer are not compared with others.
FEW_NEWCOMERS, FEW_JUDGES = 50, 5
#: So many labels of a change, and held-out nodes, tell what features alone are worth.
ENOUGH_LABELS, ENOUGH_HELD_OUT = 100, 20
#: Most labels that a classifier of features alone learns from.
MOST_LEARNED = 2_000
#: How often a change without any drift raises an alarm, all tests together.
FALSE_ALARMS = 0.05
#: Nodes on either side of a test, of more a sample is: of features, of which at most so many values
#: are read, and of predictions.
MOST_ROWS, MOST_VALUES, MOST_PREDICTED = 1_000, 8_000_000, 500
#: The most alarms of one kind that are kept; the least deviation of confidences, by rounding.
KEPT, LEAST = 5, 1e-4
#: An interval of 95 %, in standard errors, and the same for the distance of two distributions.
Z, KOLMOGOROV = 1.960, 1.358
#: What is compared: what an alarm says, and what helps.
ALARMS = {
    "accuracy": (
        "Class {where!r} fell from {before:.1f} % to {value:.1f} % on held-out nodes (by {low:.1f} "
        "to {high:.1f} points)",
        "check its latest labels and label more of its nodes",
    ),
    "confidence": (
        "New nodes get a mean confidence of {value:.1f} %, earlier ones {before:.1f} % (by "
        "{low:.1f} to {high:.1f} points)",
        "label some of them, the least sure first, and learn them",
    ),
    "features": (
        "New nodes differ in column {columns} (in the first {value:.1f} % of them exceed what "
        "{before:.1f} % did before, p = {p:.1g})",
        "check how these columns are made; if the change is real, label some of the new nodes and "
        "learn them",
    ),
    "degrees": (
        "New nodes have {more} neighbours than others ({value:.1f} % of them exceed what "
        "{before:.1f} % did before, p = {p:.1g})",
        "check that all of their edges are there and none too many",
    ),
}
KINDS = tuple(ALARMS)
#: What helps a class that a buffer has too few nodes of.
LARGER = "label more of its nodes, or begin with a larger buffer"


def watch(state: State, change: Change, device: torch.device) -> dict[str, Any]:
    """Compares what the last change left with what was before; says what its entry is to have.

    Newcomers of classes that are new themselves are left out: that these differ is known.
    """
    graph, fresh = state.graph, set(state.history[-1].new_classes)
    first = graph.num_nodes - len(change.ids)
    novel = [node for node, name in change.labels.items() if str(name) in fresh]
    new = torch.arange(first, graph.num_nodes)
    new = new[~torch.isin(new, graph.find(novel, "labels"))]
    found, arrivals = _accuracy(state), list[int]()
    if min(new.numel(), first) >= FEW_NEWCOMERS:
        found += _confidence(state, new, first, device)
        most = max(FEW_NEWCOMERS, min(MOST_ROWS, MOST_VALUES // max(graph.width, 1)))
        some, others = _some(new, most), evenly_spaced(first, most, new.device)
        found += _features(state, some, others)
        degrees, arrivals = _degrees(state, some, others)
        found += degrees
    return {"watch": found, "arrivals": arrivals}


def sentences(found: list[Comparison]) -> list[str]:
    """Says of every alarm what it is and what to do; columns are told together."""
    alarms, told = [one for one in found if one.alarm], dict[str, str]()
    columns = ", ".join(repr(one.where) for one in alarms if one.kind == "features")
    for one in alarms:
        low, high = sorted((abs(one.low), abs(one.high)))
        more = "fewer" if one.value < one.before else "more"
        about = one.model_dump() | {"low": low, "high": high, "more": more, "columns": columns}
        key = "" if one.kind == "features" else f"{one.kind} {one.where}"
        told.setdefault(key, f"{ALARMS[one.kind][0].format(**about)}: {one.remedy}.")
    return list(told.values())


def wilson(right: Any, count: Any) -> tuple[Any, Any]:
    """Returns the 95 % interval of a share (Wilson, 1927)."""
    centre, room = right + Z**2 / 2, Z * (right * (count - right) / count + Z**2 / 4) ** 0.5
    return (centre - room) / (count + Z**2), (centre + room) / (count + Z**2)


def interval(accuracy: float | None, judged: int) -> dict[str, Any]:
    """Returns an accuracy in percent with its 95 % interval, where the judges were counted."""
    low = high = None
    if accuracy is not None and judged:
        low, high = (round(100 * end, 2) for end in wilson(accuracy * judged / 100, judged))
    return {"n": judged, "mean": accuracy, "std": None, "low": low, "high": high}


def newcombe(new: tuple[Any, Any], old: tuple[Any, Any]) -> tuple[Any, Any]:
    """Returns the 95 % interval of the difference of two shares, (part, count) (Newcombe, 1998)."""
    (low, high), (low_old, high_old) = wilson(*new), wilson(*old)
    a, b = new[0] / new[1], old[0] / old[1]
    below = ((a - low) ** 2 + (high_old - b) ** 2) ** 0.5
    return a - b - below, a - b + ((high - a) ** 2 + (b - low_old) ** 2) ** 0.5


def _decide(
    kind: str, found: Array, where: Sequence[Any] = ("",), remedy: str = ""
) -> list[Comparison]:
    """Raises alarms by Holm's rule over comparisons ``[5, c]``; each kind has a part of the rate.

    A comparison is its p, the newcomers' share or mean, the others', and the interval of the
    difference.
    """
    order = np.argsort(found[0], kind="stable")[:KEPT]
    corrected = found[0, order] * (found.shape[1] - np.arange(order.size))
    count = int(np.logical_and.accumulate(corrected <= FALSE_ALARMS / len(KINDS)).sum())
    kept = []
    for at in order[: max(count, 1)].tolist():
        value, before, low, high = (round(100 * float(part), 4) for part in found[1:, at])
        ends, name = {"value": value, "before": before, "low": low, "high": high}, str(where[at])
        told = {"alarm": count > 0, "remedy": remedy or ALARMS[kind][1] if count else ""}
        kept.append(Comparison(kind=kind, where=name, p=float(found[0, at]), **ends, **told))
    return kept


def _accuracy(state: State) -> list[Comparison]:
    """Compares each class with the past change whose judges are surest that it was good."""
    since = max((at for at, e in enumerate(state.history) if e.removed_classes), default=0)
    entries = state.history[since:]
    if len(entries) == 1 or not state.classes:
        return []
    # Judges of each class after every change, and the share that was right, [k, changes].
    judged = (e.class_judged or [0] * len(e.class_accuracy) for e in entries)
    both = (judged, (e.class_accuracy for e in entries))
    count, share = (np.array([*zip_longest(*part, fillvalue=0)], dtype=float) for part in both)
    right = np.rint(np.nan_to_num(share) * count / 100)  # None without judges
    surely = np.where(count >= FEW_JUDGES, wilson(right, count.clip(min=1))[0], -1)
    best = surely[:, :-1].argmax(axis=1)
    known = np.flatnonzero((surely[:, -1] >= 0) & (surely[np.arange(len(best)), best] >= 0))
    now, then = ((right[known, at], count[known, at]) for at in (-1, best[known]))
    method = state.learner.method
    forgets = method.buffer is not None and not method.takes_back
    names = [state.classes[at] for at in known.tolist()]
    return _decide("accuracy", _shares(now, then, fewer=True), names, LARGER if forgets else "")


def _confidence(state: State, new: Tensor, first: int, device: torch.device) -> list[Comparison]:
    """Compares the mean confidence of nodes whose labels were never learned (Welch's test)."""
    free = torch.ones(state.graph.num_nodes, dtype=torch.bool)
    free[state.shown.tensor] = False
    sides = [_some(rows[free[rows]], MOST_PREDICTED) for rows in (new, torch.arange(first))]
    if not state.classes or min(rows.numel() for rows in sides) < FEW_NEWCOMERS:
        return []
    from scipy.stats import ttest_ind  # noqa: PLC0415 - slow to import

    proba = state.probabilities(state.logits(device, torch.cat(sides))).max(dim=1).values.numpy()
    mine, others = np.split(proba, [sides[0].numel()])
    if max(mine.std(), others.std()) < LEAST:  # all alike
        return []
    ends = ttest_ind(mine, others, equal_var=False).confidence_interval()
    p = ttest_ind(mine, others, equal_var=False, alternative="less").pvalue
    return _decide("confidence", np.array([[p, mine.mean(), others.mean(), *ends]]).T)


def _features(state: State, new: Tensor, old: Tensor) -> list[Comparison]:
    """Compares every column: how often it is not zero, or its distribution where it seldom is."""
    every = (0, state.graph.width)
    x, y = (take_columns(state.graph.take(rows), *every) for rows in (new, old))
    some, others = ((side != 0).sum(dim=0).numpy() for side in (x, y))
    found = _shares((some, len(x)), (others, len(y)))
    usual = np.flatnonzero(some + others > (len(x) + len(y)) / 2)
    found[:, usual] = _distributions(x[:, usual], y[:, usual])
    return _decide("features", found, state.columns or range(1, state.graph.width + 1))


def _shares(now: tuple[Any, Any], then: tuple[Any, Any], *, fewer: bool = False) -> Array:
    """Tests shares, (part, count), by Fisher: by the lower tail, or twice the smaller one."""
    from scipy.stats import hypergeom  # noqa: PLC0415 - slow to import

    law = hypergeom(now[1] + then[1], now[0] + then[0], now[1])
    less, more = law.cdf(now[0]), law.sf(now[0] - 1)
    p = np.minimum(1, less if fewer else 2 * np.minimum(less, more))
    return np.stack([p, now[0] / now[1], then[0] / then[1], *newcombe(now, then)])


def _distributions(x: Tensor, y: Tensor) -> Array:
    """Tests columns by Kolmogorov and Smirnov; shares are those above where they differ most."""
    from scipy.special import kolmogorov  # noqa: PLC0415 - slow to import

    sides = [side.t().double().contiguous().sort().values for side in (x, y)]
    both = torch.cat(sides, dim=1).sort().values
    above = [1 - torch.searchsorted(side, both, right=True) / side.shape[1] for side in sides]
    at = (above[0] - above[1]).abs().argmax(dim=1, keepdim=True)
    a, b = (side.gather(1, at)[:, 0].double().numpy() for side in above)
    root = (len(x) * len(y) / (len(x) + len(y))) ** 0.5
    room = KOLMOGOROV / root
    return np.stack([kolmogorov(np.abs(a - b) * root), a, b, a - b - room, a - b + room])


def _degrees(state: State, new: Tensor, old: Tensor) -> tuple[list[Comparison], list[int]]:
    """Compares degrees with those of the nodes there, and with those of earlier newcomers.

    Where nodes gather edges with time newcomers always have few: both must differ, and the larger
    p counts. The first batch is no newcomer: until there are any, those without an edge count.
    """
    sides = [state.graph.degree_of(rows)[:, None] for rows in (new, old)]
    sizes = torch.frexp(sides[0].double()).exponent  # 0, 1, 2 to 3, 4 to 7, …
    past = [size for e in state.history[1:-1] for size in enumerate(e.arrivals)]
    before = np.repeat(*np.array(past, dtype=np.int64).reshape(-1, 2).T)
    if before.size < FEW_NEWCOMERS:
        mine, others = ((side == 0).sum(dim=0).numpy() for side in sides)
        also = _shares((mine, len(new)), (others, len(old)))
    else:
        also = _distributions(sizes, torch.from_numpy(before)[:, None])
    found = _distributions(*sides)
    found[0] = np.maximum(found[0], also[0])
    return _decide("degrees", found), torch.bincount(sizes[:, 0]).tolist()


def features_alone(state: State, trained: LabelledNodes, device: torch.device) -> dict[str, Any]:
    """Compares predictions with ridge regression on the features of the nodes just learned.

    Both predict held-out nodes among the classes of these, by the metric that was asked for.
    """
    classes, held = torch.unique(trained.labels), state.held_out
    at = _some(torch.nonzero(torch.isin(held.labels, classes)).flatten(), MOST_JUDGED)
    judges = LabelledNodes(held.nodes[at], held.labels[at])
    if judges.nodes.numel() < ENOUGH_HELD_OUT or classes.numel() < 2:
        return {}
    some = trained.take(evenly_spaced(trained.nodes.numel(), MOST_LEARNED, trained.nodes.device))
    asked = {**state.config.training.model_dump(), **state.config.settings}
    balanced = asked["class_weight"] == "balanced" or (
        asked["class_weight"] == "auto" and asked["metric"] != "accuracy"
    )
    x, others = (_with_constant(state, part.nodes) for part in (some, judges))
    ridge, _, strength = fitted(Judges(some.labels, x), STRENGTHS, balanced)
    alone = classes[(others @ ridge.weights(strength)).argmax(dim=1)] == judges.labels
    mine = state.logits(device, judges.nodes)[:, classes].argmax(dim=1)
    gained = 100 * (alone.double() - (classes[mine] == judges.labels).double())
    weights = row_weights(judges.labels, balanced).double()
    better, noise = float((weights * gained).sum()), float((weights * gained).square().sum().sqrt())
    return {"features_alone": {"better": better, "noise": noise, "judged": judges.nodes.numel()}}


def _with_constant(state: State, nodes: Tensor) -> Tensor:
    """Returns features of about length one and a column of ones, ``[m, d + 1]``."""
    x = take_columns(state.graph.take(nodes), 0, state.graph.width).double()
    return torch.cat([x / x.shape[1] ** 0.5, torch.ones_like(x[:, :1])], dim=1)


def _some(rows: Tensor, most: int) -> Tensor:
    return rows[evenly_spaced(rows.numel(), most, rows.device)]
