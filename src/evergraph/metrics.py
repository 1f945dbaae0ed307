"""Metrics of continual learning: pure functions of the accuracy matrix.

``matrix[i][u]`` is the accuracy, in percent, on unit ``u`` after task ``i``; a unit is a task,
or a class for the class versions. Row ``i`` holds the units learned by then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
