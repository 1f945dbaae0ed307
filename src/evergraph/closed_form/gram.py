r"""Products of rows, decomposed: what every ridge regression solves with.

:math:`A^\top A + \lambda I` of rows :math:`A` is never larger than it must be: with fewer rows than
columns :math:`A A^\top + \lambda I` is decomposed instead, which gives the same solutions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


class Gram:
    """The smaller of the two products of some rows with themselves.

    Args:
        rows: The matrix A, ``[a, d]`` in double precision.
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        self.wide = rows.shape[0] < rows.shape[1]
        self.gram = rows @ rows.t() if self.wide else rows.t() @ rows
        self._products: tuple[Tensor, Tensor] | None = None

    def products(self, x: Tensor) -> Tensor:
        """Computes A x of every row, ``[a, m]``; once for the same rows at many strengths."""
        if self._products is None or self._products[0] is not x:
            self._products = x, self.rows @ x.t()
        return self._products[1]

    def lower(self, strength: float) -> Tensor:
        """Decomposes for one strength: the lower triangular factor."""
        matrix = self.gram.clone()
        matrix.diagonal().add_(strength)
        factor: Tensor = torch.linalg.cholesky(matrix)
        return factor


@dataclass(frozen=True)
class GramFactor:
    """A :class:`Gram` decomposed for one strength."""

    system: Gram
    strength: float
    lower: Tensor

    def regress(self, targets: Tensor) -> Tensor:
        """Computes (A^T A + λ)^-1 A^T t of targets ``[a, k]``: the weights, ``[d, k]``."""
        rows = self.system.rows
        if not self.system.wide:
            weights: Tensor = torch.cholesky_solve(rows.t() @ targets, self.lower)
            return weights
        # (A^T A + λ)^-1 A^T = A^T (A A^T + λ)^-1.
        inner: Tensor = torch.cholesky_solve(targets, self.lower)
        return rows.t() @ inner

    def solve(self, x: Tensor) -> Tensor:
        """Computes (A^T A + λ)^-1 x of every row, ``[m, d]``."""
        if not self.system.wide:
            direct: Tensor = torch.cholesky_solve(x.t(), self.lower).t()
            return direct
        inner = torch.cholesky_solve(self.system.products(x), self.lower)  # [a, m]
        return (x - inner.t() @ self.system.rows) / self.strength

    def leverage(self, x: Tensor) -> Tensor:
        """Computes x^T (A^T A + λ)^-1 x of every row, ``[m]``."""
        if not self.system.wide:
            return _solved(self.lower, x.t()).square().sum(dim=0)
        inside = _solved(self.lower, self.system.products(x)).square().sum(dim=0)
        return (x.square().sum(dim=1) - inside) / self.strength

    def own_leverage(self) -> Tensor:
        """Computes the leverage of every row of A itself, ``[a]``."""
        if not self.system.wide:
            return self.leverage(self.system.rows)
        # A (A^T A + λ)^-1 A^T = I - λ (A A^T + λ)^-1.
        return 1 - self.strength * torch.cholesky_inverse(self.lower).diagonal()


def _solved(lower: Tensor, right: Tensor) -> Tensor:
    solution: Tensor = torch.linalg.solve_triangular(lower, right, upper=False)
    return solution
