"""Metrics of continual learning: of the accuracy matrix, and of the probabilities given to nodes.

``matrix[i][u]`` is the accuracy, in percent, on unit ``u`` after task ``i``; a unit is a task,
or a class for the class versions. Row ``i`` holds the units learned by then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
#: Bins of the expected calibration error, of equal width.
BINS = 15
#: The most classes that a confusion matrix is told of.
MOST_CLASSES = 60
#: Logarithms of the temperatures about which the best one is looked for.
LOG_TEMPERATURES = range(-7, 8)
#: Nodes' worth of evidence that all rows are to be divided alike, and how many calibrate at most.
ALIKE, MOST_ROWS = 5, 4000
#: Steps that estimate class shares, and the most that a share counts as being another.
STEPS, MOST_SHIFT = 100, 5.0
#: The share of their effective number that nodes keep when they are weighed, and powers to try.
ENOUGH, POWERS = 0.8, 21
Matrix = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Scores:
    """PM, FM and Current of one run, in percent points; FM is None when T = 1."""

    pm: float
    fm: float | None
    current: float


def scores(matrix: Matrix, learned_at: Sequence[int] | None = None) -> Scores:
    """Summarises an accuracy matrix.

    PM is the mean of the last row. FM is the mean, over the units learned before the last
    task, of what each lost since it was learned. Current is the mean accuracy of each unit
    when it was just learned. For tasks, PM = Current − (T − 1)/T · FM. Unit ``u`` counts as learned
    after task ``learned_at[u]``, ``u`` by default.
    """
    last = matrix[-1]
    when = range(len(last)) if learned_at is None else learned_at
    fresh = [matrix[task][unit] for unit, task in enumerate(when)]
    lost = [fresh[unit] - last[unit] for unit, task in enumerate(when) if task < len(matrix) - 1]
    return Scores(
        pm=sum(last) / len(last),
        fm=sum(lost) / len(lost) if lost else None,
        current=sum(fresh) / len(fresh),
    )


@dataclass(frozen=True)
class StreamScores:
    """How a run went along a stream of steps, in percent points; FWT and BWT are None when T = 1.

    FWT, forward transfer, is the mean accuracy on the nodes of each step but the first before it
    was learned, from which that of an untrained network is not taken off; BWT, backward transfer,
    the mean change of the accuracy on each step but the last since it was learned.
    """

    new: float  # mean accuracy on the nodes of each step once it was learned
    seen: float  # accuracy on all nodes after the last step
    aauc: float  # area under the curve of accuracy on all nodes seen, steps of equal width
    fwt: float | None
    bwt: float | None


def stream_scores(
    matrix: Matrix, seen: Sequence[float], before: Sequence[float | None]
) -> StreamScores:
    """Summarises the accuracy on each step's nodes, on all seen, and on a step's before it."""
    by_step = scores(matrix)
    ahead = [value for value in before if value is not None]
    return StreamScores(
        new=by_step.current,
        seen=seen[-1],
        aauc=sum(seen) / len(seen),
        fwt=sum(ahead) / len(ahead) if ahead else None,
        bwt=None if by_step.fm is None else -by_step.fm,
    )


def probability_scores(probabilities: Array, labels: Array) -> dict[str, Any]:
    """Judges probabilities ``[n, k]`` of nodes by their labels ``[n]``, of which there are some.

    Returns the expected calibration error (:func:`calibration_error`), the Brier score (the mean
    squared distance to the one-hot label), the log loss, the balanced accuracy and the macro-F1
    over the classes that there are nodes of, the bins of a reliability diagram
    (:func:`reliability`), and the confusion matrix: row, class; column, what its nodes are given.
    Of more than :data:`MOST_CLASSES` classes there is none.
    """
    from sklearn.metrics import (  # noqa: PLC0415 - slow to import
        confusion_matrix,
        f1_score,
        recall_score,
    )

    k = probabilities.shape[1]
    small = k <= MOST_CLASSES
    found, present = probabilities.argmax(axis=1), np.unique(labels)
    given = probabilities[np.arange(labels.size), labels]
    one_hot = np.eye(k)[labels]
    mean = {"labels": present, "average": "macro", "zero_division": 0}
    return {
        "ece": calibration_error(probabilities, labels),
        "brier": float(np.square(probabilities - one_hot).sum(axis=1).mean()),
        "log_loss": float(-np.log(given.clip(min=1e-15)).mean()),
        "balanced_accuracy": 100 * float(recall_score(labels, found, **mean)),
        "macro_f1": 100 * float(f1_score(labels, found, **mean)),
        "reliability": reliability(probabilities, labels),
        "confusion": confusion_matrix(labels, found, labels=range(k)).tolist() if small else None,
    }


def calibration_error(probabilities: Array, labels: Array, weights: Array | None = None) -> float:
    """Returns the expected calibration error: how far certainty is from being right.

    It is the mean over bins, weighted by their nodes, of the distance between mean probability and
    accuracy.
    """
    count, sure, right = _bins(probabilities, labels, weights)
    return float(np.abs(sure - right).sum() / count.sum())


def reliability(probabilities: Array, labels: Array) -> list[list[float]]:
    """Returns number of nodes, mean probability and accuracy of every bin that has nodes."""
    count, sure, right = _bins(probabilities, labels)
    some = count > 0
    shown = np.stack([count, sure / count.clip(min=1), right / count.clip(min=1)])[:, some]
    return [[int(n), round(p, 4), round(a, 4)] for n, p, a in shown.T.tolist()]


def _bins(
    probabilities: Array, labels: Array, weights: Array | None = None
) -> tuple[Array, Array, Array]:
    """Bins nodes by the probability of the class they are given.

    Returns, by bin, the weights of the nodes and the sums of their probability and of being right.
    """
    weights = np.ones(labels.size) if weights is None else weights
    sure = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == labels
    bins = np.ceil(sure * BINS).astype(int).clip(1, BINS) - 1
    count, sums, hits = (
        np.bincount(bins, weights * part, minlength=BINS) for part in (1, sure, right)
    )
    return count, sums, hits


def softmax(logits: Array) -> Array:
    """Turns rows of logits into probabilities, ``[n, k]``."""
    shares: Array = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def evened(logits: Array, exponent: float) -> Array:
    """Divides every row by a power of its spread, the distance of its best from its median logit.

    With 0 rows stay as they are, with 1 all are as spread as each other; no prediction changes.
    """
    return logits / _spread(logits) ** exponent if exponent else logits


def _spread(logits: Array) -> Array:
    spread: Array = logits.max(axis=1, keepdims=True) - np.median(logits, axis=1, keepdims=True)
    return spread.clip(min=1e-9)


def fit_exponent(logits: Array, labels: Array, weights: Array) -> float:
    """Finds the exponent of :func:`evened`, beside a temperature, of least log loss; few say 0."""
    from scipy.optimize import minimize  # noqa: PLC0415 - slow to import, and large

    shown, shares = logits - logits.max(axis=1, keepdims=True), weights / weights.sum()
    place, spread, alike = np.arange(labels.size), np.log(_spread(logits)), ALIKE / labels.size

    def loss(point: Array) -> tuple[float, Array]:
        scaled = shown / np.exp(point[0] + point[1] * spread)
        found = np.exp(scaled)
        total = found.sum(axis=1)
        missed = shares @ (np.log(total) - scaled[place, labels]) + alike * point[1] ** 2
        found /= total[:, None]
        found[place, labels] -= 1
        slope = -shares * np.einsum("nk,nk->n", found, scaled)
        return missed, np.array([slope.sum(), slope @ spread[:, 0] + 2 * alike * point[1]])

    start, bounds = (math.log(fit_temperature(shown, labels, shares)), 0.0), ((None, None), (0, 1))
    how = {"ftol": 1e-14, "gtol": 1e-9}  # so that rounding does not show
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=how)
    return float(best.x[1])


def fit_temperature(logits: Array, labels: Array, weights: Array) -> float:
    """Finds what logits ``[n, k]`` are to be divided by so that they are as sure as they are right.

    That is the temperature of least Brier score. Two nodes that are of any class alike are added
    (Agresti and Coull, 1998): a few nodes which all happen to be right make nothing certain.
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - slow to import, and large

    n, k = effective(weights), logits.shape[1]
    wanted = (n * np.eye(k)[labels] + 2 / k) / (n + 2)

    def loss(point: float) -> float:
        missed = np.square(softmax(logits / math.exp(point)) - wanted).sum(axis=1)
        return float(np.average(missed, weights=weights))

    near = min(LOG_TEMPERATURES, key=loss)
    how = {"bounds": (near - 1, near + 1), "method": "bounded", "options": {"xatol": 1e-9}}
    return math.exp(minimize_scalar(loss, **how).x)


def calibrate(logits: Array, labels: Array, weights: Array) -> tuple[float, float, float | None]:
    """Fits temperature and exponent; the error of each half is with the other's temperature.

    Of more than :data:`MOST_ROWS` nodes every so many tell.
    """
    some = np.arange(0, labels.size, -(-labels.size // MOST_ROWS))
    logits, labels, weights = logits[some], labels[some], weights[some]
    exponent, half = fit_exponent(logits, labels, weights), np.arange(labels.size) % 2 == 0
    even, error = evened(logits, exponent), None
    if not half.all():
        proba = np.empty_like(logits)
        for mine in (half, ~half):
            temperature = fit_temperature(even[~mine], labels[~mine], weights[~mine])
            proba[mine] = softmax(even[mine] / temperature)
        error = calibration_error(proba, labels, weights)
    return fit_temperature(even, labels, weights), exponent, error


def shift_weights(logits: Array, labels: Array, weights: Array, others: Array) -> Array:
    """Weighs held-out nodes ``[n]`` for other class shares among the nodes to predict.

    These shares are the most likely ones given the logits of some unlabelled nodes ``[m, k]``
    (expectation maximisation, Saerens et al., 2002). A weight is the ratio of a class's shares, or
    as large a power of it as leaves :data:`ENOUGH` of the nodes' effective number, for few nodes
    that weigh much tell little (Shimodaira, 2000).
    """
    if not len(others):
        return np.ones(labels.size)
    temperature, k = fit_temperature(logits, labels, weights), logits.shape[1]
    expected = np.average(softmax(logits / temperature), axis=0, weights=weights)
    given = softmax(others / temperature) / expected.clip(min=1e-9)
    shares = expected
    for _ in range(STEPS):
        found = given * shares
        found /= found.sum(axis=1, keepdims=True)
        shares = (found.sum(axis=0) + k * expected) / (len(others) + k)  # k nodes as expected
    held = np.bincount(labels, weights, minlength=k) / weights.sum()
    ratio = (shares[labels] / held[labels]).clip(1 / MOST_SHIFT, MOST_SHIFT)
    for power in np.linspace(1, 0, POWERS):
        found = ratio**power
        if effective(weights * found) >= ENOUGH * effective(weights):
            break
    shifted: Array = found
    return shifted


def effective(weights: Array) -> float:
    """Counts the nodes of equal weight that would tell as much (Kish, 1965)."""
    return float(weights.sum() ** 2 / np.square(weights).sum())


def quantile(values: Array, weights: Array, share: float) -> float:
    """Estimates what a share of nodes is below from the values of some that weigh unevenly.

    It is Harrell and Davis' estimate (1982), a mean of all values by how likely each is to be the
    quantile: one that rests on a value or two, such as the conformal one, is farther off by chance.
    """
    from scipy.special import betainc  # noqa: PLC0415 - slow to import

    order = np.argsort(values)
    below = np.cumsum(weights[order])
    count = 1 + effective(weights)
    likely = np.diff(betainc(count * share, count * (1 - share), below / below[-1]), prepend=0)
    return float(likely @ values[order])
