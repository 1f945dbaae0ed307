"""How well scores tell labels, whatever their scale: losses at the temperature that suits best."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn.functional import cross_entropy

#: What scores are divided by before the softmax: 30 steps from 0.005 to 3.
TEMPERATURES = tuple(0.005 * 600 ** (step / 29) for step in range(30))


def least_loss(loss: Callable[[float], float]) -> tuple[float, float]:
    """Returns the least loss over temperatures and the temperature it has."""
    return min((loss(temperature), temperature) for temperature in TEMPERATURES)


def calibrated_losses(scores: Tensor, column: Tensor, shares: Tensor) -> Tensor:
    """Computes the cross-entropy of every row at the temperature of least mean loss, ``[m]``.

    Args:
        scores: Scores of every class, ``[m, k]``.
        column: The column of each row's label, ``[m]``.
        shares: What each row weighs in the mean, ``[m]``.
    """

    def at(temperature: float) -> Tensor:
        return cross_entropy(scores / temperature, column, reduction="none")

    return at(least_loss(lambda temperature: float((shares * at(temperature)).sum()))[1])
