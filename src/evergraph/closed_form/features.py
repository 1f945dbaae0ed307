r"""The rows that a closed-form learner reads: features smoothed over the graph, of length one.

Row ``i`` is the mean or the concatenation, over the chosen hops ``k``, of row ``i`` of
:math:`S^k X` divided by its length. Columns are computed in blocks: nothing of the size of nodes
× columns is held beyond one block, and sparse features are not made dense beyond that either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from evergraph.closed_form.smoothing import Smoothing, smoothing
from evergraph.errors import InputError
from evergraph.kernels.ops import project
from evergraph.rng import make_generator
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.graph import Features, row_lengths, take_columns
from evergraph.validation import Config

#: Most numbers of a block of columns, over all nodes.
BLOCK = 1 << 25


class FeatureConfig(Config):
    """Which rows are read.

    Attributes:
        hops: Powers of the smoothing matrix that are used, joined by ``+``; ``0`` is X itself.
        combine: Whether hops are put side by side (``concatenate``) or added up (``sum``).
        scaling: ``unit`` scales a node's features to length one before they are smoothed, so that
            neighbours are heard alike whatever their features add up to; ``none`` does not.
        normalisation: ``symmetric`` divides an edge by the root of both degrees, ``mean`` by
            the degree of the node that reads.
        self_loops: Whether a node is among its own neighbours.
        projection: Random columns that the features are projected on first; None reads them as
            they are. They are drawn from the seed whenever needed and never kept.
        activation: What projected columns go through; ``relu`` and ``cos`` give random
            non-linear features.
        bandwidth: Scale of the activation's argument.
    """

    hops: str = "0+1+2"
    combine: Literal["concatenate", "sum"] = "sum"
    scaling: Literal["unit", "none"] = "unit"
    normalisation: Literal["symmetric", "mean"] = "symmetric"
    self_loops: bool = True
    projection: int | None = Field(default=None, ge=1)
    activation: Literal["none", "relu", "cos"] = "none"
    bandwidth: float = Field(default=1.0, gt=0)

    @field_validator("hops", mode="before")
    @classmethod
    def _readable_hops(cls, value: object) -> str:
        return readable_hops(value)

    @model_validator(mode="after")
    def _activation_needs_columns(self) -> FeatureConfig:
        if self.activation != "none" and self.projection is None:
            raise InputError(
                f"Expected 'projection' beside 'activation' {self.activation} (got none); set the "
                "number of random columns, for example 2000."
            )
        return self

    @property
    def powers(self) -> list[int]:
        """The hops as numbers, ascending."""
        return [int(part) for part in self.hops.split("+")]


def readable_hops(value: object) -> str:
    """Returns hops joined by ``+`` in ascending order, or refuses them."""
    parts = str(value).split("+")
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise InputError(
            f"Expected 'hops' as distinct numbers joined by + (got '{value}'); write for "
            "example 0+1."
        )
    return "+".join(str(hop) for hop in sorted(map(int, parts)))


class RowSource(Protocol):
    """Rows of all nodes of a graph."""

    def rows(self, nodes: Tensor) -> Tensor:
        """Returns the rows of some nodes, ``[m, d]`` in double precision."""
        ...

    def times(self, weights: Tensor) -> Tensor:
        """Multiplies the rows of all nodes by ``weights`` ``[d, k]``."""
        ...

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yields columns of the rows of all nodes, ``[n, b]``, with their place; each once."""
        ...


@dataclass(frozen=True)
class HeldRows:
    """Rows of length one that are held as a whole: those of a network's embeddings."""

    unit: Tensor  # [n, d]

    @classmethod
    def of(cls, h: Tensor) -> HeldRows:
        """Scales every row of ``h`` to length one; rows of zeros stay."""
        lengths = h.double().norm(dim=1, keepdim=True)
        return cls(h.double() / torch.where(lengths > 0, lengths, 1))

    def rows(self, nodes: Tensor) -> Tensor:
        """Returns the rows of some nodes, ``[m, d]`` in double precision."""
        return self.unit[nodes]

    def times(self, weights: Tensor) -> Tensor:
        """Multiplies the rows of all nodes by ``weights`` ``[d, k]``."""
        return self.unit @ weights

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yields all columns at once."""
        yield slice(0, self.unit.shape[1]), self.unit


@dataclass
class SmoothedFeatures:
    """The rows of all nodes of a graph, computed when they are asked for."""

    features: Features
    graph: Adjacency
    config: FeatureConfig
    seed: int

    @property
    def width(self) -> int:
        """Counts the columns of a row."""
        return self.columns * (1 if self.config.combine == "sum" else len(self.config.powers))

    @property
    def columns(self) -> int:
        """Counts the columns of one hop."""
        return self.config.projection or self.features.shape[1]

    def rows(self, nodes: Tensor) -> Tensor:
        """Returns the rows of some nodes, ``[m, width]`` in double precision."""
        out = torch.zeros(nodes.numel(), self.width, dtype=torch.float64, device=nodes.device)
        for place, block in self.blocks():
            out[:, place] = block[nodes].double()
        return out

    def rows_by_hops(self, nodes: Tensor, choices: Sequence[str]) -> Iterator[Tensor]:
        """Yields the rows of some nodes as each choice of hops makes them; smooths once."""
        powers = sorted({int(part) for choice in choices for part in choice.split("+")})
        hops = "+".join(map(str, powers))
        wide = self.config.model_copy(update={"hops": hops, "combine": "concatenate"})
        side_by_side = SmoothedFeatures(self.features, self.graph, wide, self.seed).rows(nodes)
        blocks = torch.split(side_by_side.mul_(len(powers) ** 0.5), self.columns, dim=1)
        for choice in choices:
            mine = [blocks[powers.index(int(part))] for part in choice.split("+")]
            if self.config.combine == "sum":
                yield sum(mine[1:], mine[0]) / len(mine)
            else:
                yield torch.cat(mine, dim=1) / len(mine) ** 0.5

    def times(self, weights: Tensor) -> Tensor:
        """Multiplies the rows of all nodes by ``weights`` ``[width, k]``."""
        out = weights.new_zeros(self.graph.num_nodes, weights.shape[1])
        for place, block in self.blocks():
            out += block.double() @ weights[place]
        return out

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yields finished columns of all nodes, ``[n, b]``, with their place in a row.

        A single block is held, for it is asked for again and again; no caller may change it.
        """
        if self._step < self.width:
            yield from self._finished()
        else:
            yield from self._held

    @cached_property
    def _held(self) -> list[tuple[slice, Tensor]]:
        return list(self._finished())

    def _finished(self) -> Iterator[tuple[slice, Tensor]]:
        last = len(self.config.powers) - 1
        added: list[Tensor] = []  # the hops so far of the columns at hand, when they are added up
        for index, start, block in self._smoothed():
            unit = self._activate(block * self._scales[index][:, None], start)
            if self.config.combine == "concatenate":
                first = index * self.columns + start
                yield slice(first, first + unit.shape[1]), unit
                continue
            added = [added[0].add_(unit)] if index else [unit]
            if index == last:
                yield slice(start, start + unit.shape[1]), added[0]

    @cached_property
    def _scales(self) -> Tensor:
        """What every hop's rows are multiplied by to have length one, ``[hops, n]``."""
        n, hops = self.graph.num_nodes, len(self.config.powers)
        squares = torch.zeros(hops, n, dtype=torch.float64, device=self.graph.device)
        for index, _, block in self._smoothed():
            squares[index] += block.double().square().sum(dim=1)
        return torch.where(squares > 0, squares, torch.inf).rsqrt().float()

    def _activate(self, block: Tensor, start: int) -> Tensor:
        """Applies the activation to columns of unit rows, then shares length among hops."""
        if self.config.activation != "none":
            argument = self.config.bandwidth * self.columns**0.5 * block
            if self.config.activation == "relu":
                block = argument.relu()
            else:
                block = (argument + self._phases[start : start + block.shape[1]]).cos()
            block = block * (2 / self.columns) ** 0.5
        hops = len(self.config.powers)
        return block / (hops if self.config.combine == "sum" else hops**0.5)

    def _smoothed(self) -> Iterator[tuple[int, int, Tensor]]:
        """Yields columns of S^k X, ``[n, b]``, with the place of k and of the first column."""
        powers = self.config.powers
        for start, columns in self._columns():
            block = columns
            for power in range(powers[-1] + 1):
                if power:
                    block = self._operator.times(block)
                if power in powers:
                    yield powers.index(power), start, block

    def _columns(self) -> Iterator[tuple[int, Tensor]]:
        """Yields columns of the features or of their projection, with the first one's place."""
        for start in range(0, self.columns, self._step):
            stop = min(start + self._step, self.columns)
            if self.config.projection is None:
                block = take_columns(self.features, start, stop)
            else:
                with torch.no_grad():
                    block = project(self.features, self._directions[:, start:stop])
            yield start, block if self.config.scaling == "none" else block / self._lengths[:, None]

    @property
    def _step(self) -> int:
        """Counts the columns of a block."""
        return max(1, BLOCK // max(self.graph.num_nodes, 1))

    @cached_property
    def _lengths(self) -> Tensor:
        """The lengths of all nodes' features, one for those of zeros, ``[n]``."""
        lengths = row_lengths(self.features)
        return torch.where(lengths > 0, lengths, 1)

    @cached_property
    def _operator(self) -> Smoothing:
        return smoothing(self.graph, self.config.normalisation, self.config.self_loops)

    @cached_property
    def _directions(self) -> Tensor:
        """Random directions, the same at every task and on every device, ``[d, projection]``."""
        generator = make_generator(self.seed, "random features")
        shape = (self.features.shape[1], self.columns)
        return torch.randn(shape, generator=generator).to(self.graph.device)

    @cached_property
    def _phases(self) -> Tensor:
        generator = make_generator(self.seed, "random phases")
        turns = torch.rand(self.columns, generator=generator).to(self.graph.device)
        return 2 * torch.pi * turns
