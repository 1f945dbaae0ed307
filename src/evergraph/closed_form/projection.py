"""Fewer columns: features projected on the directions that hold most of them.

Moments take columns² numbers. Where that would be more than a budget, features are projected first,
on directions learned without labels from the nodes of the first task.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Annotated

import torch
from pydantic import ByteSize, Field, TypeAdapter, ValidationError
from torch import Tensor

from evergraph.device import make_generator
from evergraph.errors import InputError
from evergraph.kernels.ops import project, weight_gradient
from evergraph.stream.features import Features, row_lengths
from evergraph.team import ALONE, Team

#: Rounds of subspace iteration.
ROUNDS = 3
#: Weight of random directions, for where the features have fewer than are asked for.
SLIGHT = 1e-6
#: Most numbers of projected features held at once.
BLOCK = 1 << 25


def readable_bytes(value: str | int) -> int:
    """Returns a number of bytes written as such or as ``64MB``, or refuses it."""
    try:
        return int(TypeAdapter(Annotated[ByteSize, Field(gt=0)]).validate_python(value))
    except ValidationError:
        raise InputError(
            f"Expected 'memory' as a number of bytes (got '{value}'); write for example 64MB."
        ) from None


def fitting_columns(memory: int, num_features: int, blocks: int, item: int) -> int:
    """Returns how many columns a hop may have for all that is kept to fit into a budget.

    That is the scatter of so many ``blocks`` side by side, in numbers of ``item`` bytes, and the
    directions in single precision, unless the features need none.
    """
    scatter = blocks**2 * item
    if scatter * num_features**2 <= memory:
        return num_features
    half = 2 * num_features  # of the four bytes of every feature
    return max(1, min(num_features, int((math.sqrt(half**2 + scatter * memory) - half) / scatter)))


def principal_directions(features: Features, count: int, seed: int, team: Team = ALONE) -> Tensor:
    """Finds orthonormal directions that hold most of the features' rows, ``[d, count]``.

    Rows count with length one. Subspace iteration from random directions; a feature that no row
    has yet gets a random one, so that it is not lost when it comes. Each worker of a team has some
    of the rows; sums are of double precision, so that weak directions do not depend on their order.
    """
    generator, width = make_generator(seed, "directions"), features.shape[1]
    drawn = torch.randn(width, count, generator=generator).to(features.device).double()
    scale = row_lengths(features).double().square()
    scale = torch.where(scale > 0, scale, torch.inf).reciprocal()[:, None]
    basis: Tensor = drawn
    with torch.no_grad():
        for _ in range(ROUNDS):
            seen = team.sum(_products(features, scale, basis))
            energy = seen.square().sum(dim=0).sqrt().max()
            basis = torch.linalg.qr(seen + SLIGHT * energy / width**0.5 * drawn).Q
    unseen = ~seen.any(dim=1)
    basis[unseen] = drawn[unseen] / count**0.5
    return basis.float().contiguous()


def _products(features: Features, scale: Tensor, basis: Tensor) -> Tensor:
    """Computes X^T D X B, ``[d, count]``, holding no more of X B than a block."""
    step = max(1, BLOCK // max(basis.shape[1], 1))
    if isinstance(features, Tensor):
        seen = torch.zeros_like(basis)
        for first in range(0, features.shape[0], step):
            rows = features[first : first + step].double()
            seen += rows.t() @ (scale[first : first + step] * (rows @ basis))
        return seen
    step = max(1, BLOCK // max(features.shape[0], 1))
    parts, wide = (
        torch.split(basis, step, dim=1),
        replace(features, values=features.values.double()),
    )
    products = [weight_gradient(wide, scale * project(wide, p.contiguous())) for p in parts]
    return torch.cat(products, dim=1)
