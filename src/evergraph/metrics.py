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
