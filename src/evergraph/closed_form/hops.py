r"""Which hops to read, chosen without a label beyond those of the current training nodes.

Every choice of hops is judged by leaving each training node out of ridge regression: the loss is
the cross-entropy of its label under its scores, divided by the temperature that suits the choice
best. Squared errors would favour more hops whatever they are worth, because smoother rows have
scores of larger scale; mistakes alone are few. Labels are not smoothed, so that a node left out
tells its label to nobody.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from evergraph.closed_form.calibration import calibrated_losses
from evergraph.closed_form.moments import Moments
from evergraph.closed_form.ridge import RidgeSystem, class_shares, left_out_errors

#: Read unless another choice is better by more than the noise.
USUAL = "0+1+2"
#: From a node's own features alone to its surroundings alone.
CHOICES = ("0", "0+1", USUAL, "0+1+2+3", "2+3")
#: Standard errors by which another choice must be better than the usual one.
MARGIN = 2.0


@dataclass(frozen=True)
class HopChoice:
    """The hops chosen, and the mean loss of every choice, classes alike."""

    hops: str
    losses: Mapping[str, float]


def choose_hops(
    rows: Iterable[tuple[str, Tensor]], labels: Tensor, strengths: Sequence[float]
) -> HopChoice:
    """Compares choices of hops by leaving one out and takes one by the rule of :func:`decide`.

    Args:
        rows: Choices with the rows that they give the training nodes, ``[m, d]``; read one at
            a time.
        labels: The nodes' labels, ``[m]``.
        strengths: Ridge strengths; each choice takes the one that suits it best.
    """
    return decide({hops: left_out_losses(x, labels, strengths) for hops, x in rows}, labels)


def left_out_losses(x: Tensor, labels: Tensor, strengths: Sequence[float]) -> Tensor:
    """Computes the loss of every row as predicted without it, ``[m]``.

    The strength is that of least squared error, the temperature that of least loss.
    """
    moments = Moments()
    moments.update(x, labels)
    system = RidgeSystem(moments)
    errors = left_out_errors(system, x, labels, strengths)
    factor = system.decompose(min(errors, key=lambda strength: errors[strength]))
    scores = factor.left_out_scores(factor.weights(), x, labels)
    return calibrated_losses(scores, system.columns_of(labels), class_shares(labels))


def decide(losses: Mapping[str, Tensor], labels: Tensor) -> HopChoice:
    """Takes the choice of least mean loss if it is surely better than the usual one.

    That is, if the mean of what it saves, node by node and classes alike, is more than
    :data:`MARGIN` times its standard error.

    Args:
        losses: The loss of every node under every choice, ``[m]``.
        labels: The nodes' labels, ``[m]``.
    """
    shares, m = class_shares(labels), labels.numel()
    means = {hops: float((shares * loss).sum()) for hops, loss in losses.items()}
    best = min(means, key=lambda hops: means[hops])
    saved = m * shares * (losses[USUAL] - losses[best])
    noise = float(saved.std()) / math.sqrt(m) if m > 1 else math.inf
    return HopChoice(best if float(saved.mean()) > MARGIN * noise else USUAL, means)
