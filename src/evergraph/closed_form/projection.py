"""Fewer columns: features projected on the directions that hold most of them.

Moments take columns² numbers. Where that would be more than a budget, features are projected first,
on directions learned without labels from the nodes of the first task.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import ByteSize, Field, TypeAdapter, ValidationError
from torch import Tensor

from evergraph.errors import InputError
from evergraph.kernels.ops import project, weight_gradient
from evergraph.rng import make_generator
from evergraph.stream.features import Features, row_lengths

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


def principal_directions(features: Features, count: int, seed: int) -> Tensor:
    """Finds orthonormal directions that hold most of the features' rows, ``[d, count]``.

    Rows count with length one. Subspace iteration from random directions; a feature that no row
    has yet gets a random one, so that it is not lost when it comes.
    """
    generator, width = make_generator(seed, "directions"), features.shape[1]
    drawn = torch.randn(width, count, generator=generator).to(features.device)
    scale = row_lengths(features).square()
    scale = torch.where(scale > 0, scale, torch.inf).reciprocal()[:, None]
    step = max(1, BLOCK // max(features.shape[0], 1))
    basis: Tensor = drawn
    with torch.no_grad():
        for _ in range(ROUNDS):
            products = [
                weight_gradient(features, scale * project(features, part.contiguous()))
                for part in torch.split(basis, step, dim=1)
            ]
            seen = torch.cat(products, dim=1)
            energy = seen.square().sum(dim=0).sqrt().max()
            basis = torch.linalg.qr(seen + SLIGHT * energy / width**0.5 * drawn).Q
    unseen = ~seen.any(dim=1)
    basis[unseen] = drawn[unseen] / count**0.5
    return basis.contiguous()
