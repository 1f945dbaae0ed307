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
#: Logarithms of the temperatures that logits may be divided by.
LOG_TEMPERATURES = (math.log(1e-3), math.log(1e3))
#: Logits below are those of classes that cannot be.
IMPOSSIBLE = -1e8
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
    when it was just learned. For tasks, PM = Current − (T − 1)/T · FM.

    Args:
        matrix: Accuracies, lower triangular.
        learned_at: The task after which each unit counts as learned; unit ``u`` after task
            ``u`` by default.
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
    """How a run went along a time stream, in percent points; FWT and BWT are None when T = 1.

    Attributes:
        new: Mean accuracy on the nodes of each step once it was learned.
        seen: Accuracy on all nodes after the last step.
        aauc: Area under the curve of accuracy on all nodes seen, every step of equal width.
        fwt: Forward transfer: mean accuracy on the nodes of each step but the first before it
            was learned. The accuracy of an untrained network is not taken off.
        bwt: Backward transfer: mean change of the accuracy on each step but the last since it was
            learned.
    """

    new: float
    seen: float
    aauc: float
    fwt: float | None
    bwt: float | None


def stream_scores(
    matrix: Matrix, seen: Sequence[float], before: Sequence[float | None]
) -> StreamScores:
    """Summarises a run along a time stream.

    Args:
        matrix: Accuracies on the nodes of each step after each step, lower triangular.
        seen: Accuracy on all nodes seen, after each step.
        before: Accuracy on each step's nodes before it was learned; None for the first.
    """
    by_step = scores(matrix)
    ahead = [value for value in before if value is not None]
    return StreamScores(
        new=by_step.current,
        seen=seen[-1],
        aauc=sum(seen) / len(seen),
        fwt=sum(ahead) / len(ahead) if ahead else None,
        bwt=None if by_step.fm is None else -by_step.fm,
    )


def probability_scores(probabilities: Array, labels: Array) -> dict[str, float]:
    """Judges probabilities ``[n, k]`` of nodes by their labels ``[n]``, of which there are some.

    Returns the expected calibration error (:func:`calibration_error`), the Brier score (the mean
    squared distance to the one-hot label), the log loss, the balanced accuracy and the macro-F1
    over the classes that there are nodes of.
    """
    from sklearn.metrics import f1_score, recall_score  # noqa: PLC0415 - slow to import

    found, present = probabilities.argmax(axis=1), np.unique(labels)
    given = probabilities[np.arange(labels.size), labels]
    one_hot = np.eye(probabilities.shape[1])[labels]
    mean = {"labels": present, "average": "macro", "zero_division": 0}
    return {
        "ece": calibration_error(probabilities, labels),
        "brier": float(np.square(probabilities - one_hot).sum(axis=1).mean()),
        "log_loss": float(-np.log(given.clip(min=1e-15)).mean()),
        "balanced_accuracy": 100 * float(recall_score(labels, found, **mean)),
        "macro_f1": 100 * float(f1_score(labels, found, **mean)),
    }


def calibration_error(probabilities: Array, labels: Array, weights: Array | None = None) -> float:
    """Returns the expected calibration error: how far certainty is from being right.

    Nodes are binned by the probability of the class they are given; the error is the mean over
    bins, weighted by their nodes, of the distance between mean probability and accuracy.
    """
    weights = np.ones(labels.size) if weights is None else weights
    sure = probabilities.max(axis=1)
    gaps = weights * (sure - (probabilities.argmax(axis=1) == labels))
    bins = np.ceil(sure * BINS).astype(int).clip(1, BINS)
    return float(np.abs(np.bincount(bins, gaps)).sum() / weights.sum())


def fit_temperature(logits: Array, labels: Array, weights: Array) -> float:
    """Finds what logits ``[n, k]`` are to be divided by for the least log loss (Guo et al., 2017).

    The loss is convex in the inverse of the temperature, so that there is one minimum. A share of
    1 / (n + 2) of each label is spread over all classes, so that a few nodes which all happen to be
    right make nothing certain.
    """
    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - slow to import

    given = logits[np.arange(labels.size), labels]
    can_be = given > IMPOSSIBLE
    logits, given, weights = logits[can_be], given[can_be], weights[can_be]
    if not given.size:
        return 1.0
    possible = logits[:, (logits > IMPOSSIBLE).all(axis=0)]
    spread = 1 / (given.size + 2)
    target = (1 - spread) * given + spread * possible.mean(axis=1)
    highest = possible.max(axis=1)
    below, missing = possible - highest[:, None], highest - target

    def loss(log_temperature: float) -> float:
        inverse = math.exp(-log_temperature)
        return float(weights @ (np.log(np.exp(below * inverse).sum(axis=1)) + missing * inverse))

    found = minimize_scalar(loss, bounds=LOG_TEMPERATURES, method="bounded")
    return math.exp(found.x)
