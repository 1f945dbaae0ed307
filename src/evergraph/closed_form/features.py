r"""Feature rows of a closed-form learner: features propagated over the graph, of length one.

Row ``i`` is the mean or the concatenation, over the chosen hops ``k``, of row ``i`` of
:math:`S^k X` divided by its length. Columns are computed in blocks: nothing of the size of nodes
× columns is held beyond one block, and sparse features are not made dense beyond that either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from evergraph.device import make_generator
from evergraph.errors import InputError
from evergraph.files import physical_memory
from evergraph.kernels.ops import SparseMatrix, project
from evergraph.stream.adjacency import Adjacency, Pattern, pointer, runs
from evergraph.stream.features import Features, row_lengths, take_columns
from evergraph.stream.shard import Shard
from evergraph.team import ALONE, Team
from evergraph.validation import Config

#: Numbers of a block of columns, over all nodes, and the columns that it has even if they are more,
#: where memory allows: what an edge reads anywhere in memory takes as long for one as for many.
BLOCK, WIDE = 1 << 27, 64
#: Numbers of a cache line: blocks are so many columns wide, or a multiple.
LINE = 16
#: Most numbers of rows that are held, over all nodes; more are computed again when needed.
HELD = 1 << 28
#: How many times the nodes whose rows are wanted there must be for the others to be left out.
FEW = 10
#: ``auto`` is for a learner that chooses, as of other settings; rows are computed of one kind.
Combine = Literal["auto", "concatenate", "sum"]
Normalisation = Literal["auto", "symmetric", "mean"]


class FeatureConfig(Config):
    """Which feature rows are used."""

    hops: str = "0+1+2"  # powers of the propagation matrix, joined by +; 0 is X itself
    combine: Combine = "sum"  # hops are put side by side (concatenate) or added up
    #: ``unit`` scales a node's features to length one before they are propagated, so that all
    #: neighbours weigh the same whatever their features add up to.
    scaling: Literal["unit", "none"] = "unit"
    #: ``symmetric`` divides an edge by the root of both degrees, ``mean`` by the degree of the node
    #: that receives; ``auto`` is symmetric for hops that are added up, mean for hops side by side.
    normalisation: Normalisation = "symmetric"
    self_loops: bool = True  # whether a node is among its own neighbours
    #: Random columns that the features are projected on first; None takes them as they are. They
    #: are drawn from the seed whenever needed and never kept.
    projection: int | None = Field(default=None, ge=1)
    #: What projected columns go through; ``relu`` and ``cos`` give random non-linear features.
    activation: Literal["none", "relu", "cos"] = "none"
    bandwidth: float = Field(default=1.0, gt=0)  # scale of the activation's argument
    #: Whether a column of √d stands beside d features, so that rows of length one still tell how
    #: long the features are; ``auto``, the estimator's default, chooses with the hops.
    constant: Literal["auto", True, False] = False
    #: Whether means over the nodes that lead to a node and over those that it leads to stand beside
    #: hops side by side; ``auto``, the estimator's default, chooses with the hops where edges have
    #: directions.
    direction: Literal["auto", True, False] = False

    @field_validator("hops", mode="before")
    @classmethod
    def _readable_hops(cls, value: object) -> str:
        return "auto" if value == "auto" else readable_hops(value)

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

    @property
    def reach(self) -> int:
        """Counts the steps from a node to what its row depends on."""
        return self.powers[-1]

    @property
    def name(self) -> str:
        """The hops, joined by ``+`` where they are added up and by ``|`` side by side."""
        hops = self.hops if self.combine == "sum" else self.hops.replace("+", "|")
        hops += "|in|out" if self.direction is True else ""
        return f"{hops} and a constant" if self.constant is True else hops

    @property
    def parts(self) -> int:
        """Counts the hops, and the two directions if they stand beside them."""
        return len(self.powers) + 2 * (self.direction is True)

    @property
    def blocks(self) -> int:
        """Counts the blocks of columns that stand side by side."""
        return 1 if self.combine == "sum" else self.parts

    def check_memory(self, num_features: int, num_rows: int) -> None:
        """Refuses a projection if its directions and the moments of its rows cannot fit."""
        columns, there = self.projection or 0, physical_memory()
        needed = columns * (4 * num_features + 8 * min(num_rows, columns))
        if needed > there:
            raise InputError(
                f"Expected 'projection' to fit into {there / 1e9:.1f} GB of memory (got {columns} "
                f"columns, which take {needed / 1e9:.1f} GB); choose fewer."
            )


def readable_hops(value: object) -> str:
    """Returns hops joined by ``+`` in ascending order, or refuses them."""
    parts = str(value).split("+")
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise InputError(
            f"Expected 'hops' as distinct numbers joined by + (got '{value}'); write for "
            "example 0+1."
        )
    return "+".join(str(hop) for hop in sorted(map(int, parts)))


@dataclass(frozen=True)
class PropagationMatrix:
    """A weighted graph as a matrix; the diagonal is apart, so that no looped graph is built."""

    matrix: SparseMatrix
    diagonal: Tensor | None = None  # [n]
    own: Tensor | None = None  # [n], which row each node is itself; None: in place
    shard: Shard | None = None  # whose rows are given, where several workers share a graph
    among: Tensor | None = None  # the nodes, of all workers, whose rows it is given; None: all

    def times(self, rows: Tensor, *, passing: bool = False) -> Tensor:
        """Multiplies ``[n, b]`` from the left, without gradient.

        If it is ``passing``, what comes out goes once the step after the next is made.
        """
        read, room = rows, None
        if self.shard is not None:
            read = self.shard.extend(rows, self.among)
            room = self.shard.room(rows.shape[1]) if passing and self.own is None else None
        out = self.matrix.times(read.contiguous(), room)
        itself = rows if self.own is None else rows.index_select(0, self.own)
        return out if self.diagonal is None else out.addcmul_(self.diagonal[:, None], itself)

    def only(self, nodes: Tensor) -> PropagationMatrix:
        """Returns a matrix that computes the rows of some nodes alone."""
        pattern, values = self.matrix.pattern, self.matrix.values
        counts = pattern.indptr.diff()[nodes]
        row, place = runs(counts)
        edges = pattern.indptr[nodes][row] + place
        matrix = SparseMatrix(Pattern(pointer(counts), pattern.columns[edges]), values[edges])
        diagonal = None if self.diagonal is None else self.diagonal[nodes]
        return PropagationMatrix(matrix, diagonal, nodes, self.shard)

    def read(self) -> Tensor:
        """Lists the nodes whose rows :meth:`only` some nodes read, here or at another worker."""
        assert self.own is not None
        begin = 0 if self.shard is None else self.shard.own.start
        sources = torch.cat([self.matrix.pattern.columns.long(), self.own + begin])
        return torch.unique(sources) if self.shard is None else self.shard.needed(sources)

    def after(self, nodes: Tensor) -> PropagationMatrix:
        """Returns a matrix that is given the rows of these nodes alone, all that it reads."""
        assert self.own is not None
        mine = nodes if self.shard is None else self.shard.held(nodes)
        own, matrix = torch.searchsorted(mine, self.own), self.matrix
        if self.shard is None or self.shard.sees_all:
            columns = torch.searchsorted(nodes, matrix.pattern.columns.long()).int()
            matrix = SparseMatrix(Pattern(matrix.pattern.indptr, columns), matrix.values)
        return PropagationMatrix(matrix, self.diagonal, own, self.shard, nodes)


def propagation_matrix(
    graph: Adjacency | Shard, normalisation: Normalisation, self_loops: bool
) -> PropagationMatrix:
    r"""Returns :math:`D^{-1/2} \tilde A D^{-1/2}` or :math:`D^{-1} \tilde A` (``mean``).

    :math:`\tilde A` is the graph with the weights of its edges, with every node its own neighbour,
    of weight one, if ``self_loops``, and :math:`D` its degrees, in the whole graph where this is a
    part of one. Without any neighbour a row is zero.
    """
    degree = (graph.strength + int(self_loops)).double()
    degree = torch.where(degree > 0, degree, 1)
    own = degree if graph.own is None else degree[graph.own]
    if normalisation == "symmetric":
        values = graph.edge_values(own.rsqrt().float(), degree.rsqrt().float())
    else:
        values = graph.edge_values(own.reciprocal().float())
    diagonal = own.reciprocal().float() if self_loops else None
    matrix = SparseMatrix(graph.pattern, values)
    if isinstance(graph, Shard):
        return PropagationMatrix(matrix, diagonal, shard=graph)
    return PropagationMatrix(matrix, diagonal, graph.own)


class Panels:
    """Rows that are finished when they are taken, like those of a tensor.

    Every hop's columns lie in several arrays, side by side; ``finish`` makes rows of hops.
    """

    def __init__(
        self, hops: Sequence[Sequence[Tensor]], finish: Callable[[Sequence[Tensor]], Tensor]
    ) -> None:
        self.hops, self.finish = hops, finish

    def __getitem__(self, rows: slice | Tensor) -> Tensor:
        return self.finish([torch.cat([part[rows] for part in hop], dim=1) for hop in self.hops])


class Rows(ABC):
    """One row per node of a graph, ``[n, width]``; computed block by block of columns.

    Where several workers share a graph each computes those of its ``shard``.
    """

    width: int
    shard: Shard | None = None

    @property
    def team(self) -> Team:
        """The workers that share the graph."""
        return ALONE if self.shard is None else self.shard.team

    def place(self, nodes: Tensor) -> Tensor:
        """Returns where nodes are among the rows here, −1 for those that others have."""
        return nodes if self.shard is None else self.shard.place(nodes)

    def pick(self, values: Tensor, nodes: Tensor) -> Tensor:
        """Returns what nodes have of values that each worker has of its own, ``[m, ...]``."""
        return self.team.pick(values, self.place(nodes))

    @abstractmethod
    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yields columns of all nodes, ``[n, b]``, with their place; each once."""

    def rows(self, nodes: Tensor) -> Tensor:
        """Returns the rows of some nodes, ``[m, width]``."""
        return self._collect(lambda block: self.pick(block, nodes))

    def own_rows(self, at: Tensor) -> Tensor | Panels:
        """Returns the rows at some places here, ``[m, width]``."""
        return self._collect(lambda block: block[at])

    def _collect(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        """Puts what is taken of every block side by side, in the order of columns."""
        parts = {place.start: of(block) for place, block in self.blocks()}
        return torch.cat([parts[start] for start in sorted(parts)], dim=-1)

    def times(self, weights: Tensor) -> Tensor:
        """Multiplies the rows of all nodes by ``weights`` ``[width, k]``."""
        products = (block @ weights[place].to(block.dtype) for place, block in self.blocks())
        out = next(products)
        for product in products:
            out += product
        return out

    def mean(self, count: int) -> Tensor:
        """Averages the rows of the first ``count`` nodes, ``[width]`` in double precision."""
        here = count if self.shard is None else max(0, count - self.shard.first)
        total = self._collect(lambda block: block[:here].sum(dim=0, dtype=torch.float64))
        return self.team.sum(total) / count


class EmbeddingRows(Rows):
    """A network's embeddings ``[n, d]`` as rows of length one; rows of zeros stay."""

    def __init__(self, h: Tensor) -> None:
        lengths = h.norm(dim=1, keepdim=True)
        self.unit = h / torch.where(lengths > 0, lengths, 1)
        self.width = h.shape[1]

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yields all columns at once."""
        yield slice(0, self.width), self.unit


class PropagatedFeatures(Rows):
    """Features propagated over a graph, computed when they are needed.

    With a graph for every step, from what a step reads to what it gives, rows are those of the
    nodes that the last one gives. ``basis`` are directions that the features are projected on,
    ``[d, b]``; without it there are random ones or none, as ``config`` says. Rows of several kinds
    for the same nodes share what they have ``known``. Where rows of some nodes alone are wanted,
    ``some``, none are held and no more are computed than these need.
    """

    def __init__(
        self,
        features: Features,
        graph: Adjacency | tuple[Adjacency, ...] | Shard,
        config: FeatureConfig,
        seed: int,
        basis: Tensor | None = None,
        *,
        known: dict[Any, Tensor] | None = None,
        some: bool = False,
    ) -> None:
        self._known = known
        self.features, self.config, self.seed = features, config, seed
        self.graph = graph
        self.num_nodes = features.shape[0]
        if isinstance(graph, tuple) and graph:
            self.num_nodes = graph[-1].num_nodes
        self.shard = graph if isinstance(graph, Shard) else None
        most, memory = features.shape[0], physical_memory()
        shown = most  # rows that share a block
        if self.shard is not None:  # all workers decide alike, for they compute blocks together
            most, memory = self.shard.most, self.shard.memory
            shown = self.shard.num_nodes if self.shard.sees_all else most
        self.basis = basis
        if basis is not None:
            self._own = basis.shape[1]
        else:
            self._own = config.projection or features.shape[1]
        self.columns = self._own + (config.constant is True)  # of one hop
        self.width = self.columns * config.blocks
        wide = max((BLOCK // 4 if some else BLOCK) // max(shown, 1), WIDE)
        step = min(wide, memory // 64 // max(most, 1))  # columns of a block
        self._step = step // LINE * LINE or max(1, step)
        self._room = min(HELD, memory // 32)
        held = self.width * max(most, self.num_nodes)
        self._holds = config.reach > 0 and held <= self._room and not some
        self._some = some or self._in_passes

    @property
    def _in_passes(self) -> bool:
        """Whether all rows need a first pass for their lengths; those of few nodes do not."""
        return self._step < self.columns and not self._holds

    def rows(self, nodes: Tensor) -> Tensor:
        """Returns the rows of some nodes, ``[m, width]``."""
        if not self._some and self._known is None:
            return super().rows(nodes)
        place = self.place(nodes)
        here = torch.unique(place[place >= 0])
        return self.team.pick(
            self._few_rows(here), torch.where(place >= 0, torch.searchsorted(here, place), -1)
        )

    def _few_rows(self, here: Tensor) -> Tensor:
        """Returns the rows at some places here, which are ascending, ``[m, width]``."""
        config = self.config
        key = (config.normalisation, config.self_loops, config.scaling, config.constant)
        directions = ("in", "out") if config.direction is True else ()
        wanted: list[Any] = [(key, way) for way in (*config.powers, *directions)]
        known = {} if self._known is None else self._known
        if not all(one in known for one in wanted):
            powers = range(config.reach + 1)
            parts = self._hops_of(here, powers)
            for way, hop in zip((*powers, *directions), parts, strict=True):
                known[key, way] = torch.cat(hop, dim=1)
        return self._finish([known[one] for one in wanted])

    def own_rows(self, at: Tensor) -> Tensor | Panels:
        """Returns the rows at some places here, ``[m, width]``; on disk if they may be many."""
        if self._known is not None:
            here, back = torch.unique(at, return_inverse=True)
            return self._few_rows(here)[back]
        if not self._some:
            return super().own_rows(at)
        here, back = torch.unique(at, return_inverse=True)
        wanted, place = (here, back) if self._are_few(here) else (None, at)

        def take(block: Tensor) -> Tensor:
            if self.shard is None:
                return block[place]
            count = -(-self.columns * self.config.parts // block.shape[1])
            panel = self.shard.empty(at.numel(), block.shape[1], count=count)
            return torch.index_select(block, 0, place, out=panel)

        return Panels(self._hops(self.config.powers, take, wanted), self._finish)

    def times(self, weights: Tensor) -> Tensor:
        """Multiplies the rows of all nodes by ``weights`` ``[width, k]``.

        Where hops are linear they are multiplied as they come and divided by their lengths after.
        """
        hops, n = self.config.parts, self.num_nodes
        linear = self.config.activation == "none" and hops * n * weights.shape[1] <= self._room
        if not self._in_passes or not linear:
            return super().times(weights)
        found = torch.zeros(hops, n, weights.shape[1], device=self.features.device)
        squares = torch.zeros(hops, n, dtype=torch.float64, device=self.features.device)
        for index, start, block in self._propagated():
            first = start + (index * self.columns if self.config.combine == "concatenate" else 0)
            found[index] += block @ weights[first : first + block.shape[1]].to(block.dtype)
            squares[index] += block.square().sum(dim=1)
        length = squares.sqrt().float()
        share = hops if self.config.combine == "sum" else hops**0.5
        return found.div_((share * torch.where(length > 0, length, 1))[:, :, None]).sum(dim=0)

    def _hops(
        self, powers: Sequence[int], take: Callable[[Tensor], Tensor], wanted: Tensor | None = None
    ) -> list[list[Tensor]]:
        """Takes something of every block of columns of S^k X, by k and then by columns.

        Blocks are of all nodes, or of those ``wanted`` here.
        """
        count = len(powers) + 2 * (self.config.direction is True)
        hops: list[list[Tensor]] = [[] for _ in range(count)]
        for index, _, block in self._propagated(powers, wanted):
            hops[index].append(take(block))
        return hops

    def _hops_of(self, here: Tensor, powers: Sequence[int]) -> list[list[Tensor]]:
        """Takes the rows at some places; a few of a large graph depend on few rows on the way."""
        if self._are_few(here):
            return self._hops(powers, lambda block: block, here)
        return self._hops(powers, lambda block: block[here])

    def _are_few(self, here: Tensor) -> bool:
        """Tells whether rows at some places need far fewer than all."""
        return not isinstance(self.graph, tuple) and self._outnumber(here, FEW)

    def _outnumber(self, counted: Tensor, times: int = 1) -> bool:
        """Tells whether there are so many times as many nodes; all workers decide alike."""
        n = self.num_nodes if self.shard is None else self.shard.num_nodes
        count = torch.tensor(counted.numel(), device=counted.device)
        return n >= times * int(self.team.sum(count))

    def _finish(self, hops: Sequence[Tensor]) -> Tensor:
        """Makes rows of hops, each ``[m, columns]``."""
        lengths = [torch.linalg.vector_norm(hop, dim=1) for hop in hops]
        pairs = zip(hops, lengths, strict=True)
        units = [self._activate(hop, torch.where(n > 0, n, 1), 0) for hop, n in pairs]
        if self.config.combine == "concatenate":
            return torch.cat(units, dim=1)
        return torch.stack(units).sum(dim=0)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Yields finished columns of all nodes, ``[n, b]``, with their place in a row.

        They are held if they were propagated and are few, for they are needed again; no caller may
        change them.
        """
        yield from self._held if self._holds else self._finished()

    @cached_property
    def _held(self) -> list[tuple[slice, Tensor]]:
        return list(self._finished())

    def _finished(self) -> Iterator[tuple[slice, Tensor]]:
        last = len(self.config.powers) - 1
        added: list[Tensor] = []  # the hops so far of the present columns, when they are added up
        whole = self._step >= self.columns  # then a second pass would tell nothing new
        lengths = None if whole else self.hop_lengths
        for index, start, block in self._propagated():
            length = torch.linalg.vector_norm(block, dim=1) if lengths is None else lengths[index]
            side_by_side = self.config.combine == "concatenate"
            onto = added[0] if index and not side_by_side else None
            unit = self._activate(block, torch.where(length > 0, length, 1), start, onto)
            if side_by_side:
                first = index * self.columns + start
                yield slice(first, first + unit.shape[1]), unit
                continue
            added = [unit]
            if index == last:
                yield slice(start, start + unit.shape[1]), added[0]

    @cached_property
    def hop_lengths(self) -> Tensor:
        """The lengths of every hop's rows, ``[hops, n]``."""
        n, hops = self.num_nodes, self.config.parts
        squares = torch.zeros(hops, n, dtype=torch.float64, device=self.features.device)
        for index, _, block in self._propagated():
            squares[index] += block.square().sum(dim=1)
        return squares.sqrt().float()

    def _activate(
        self, block: Tensor, length: Tensor, start: int, onto: Tensor | None = None
    ) -> Tensor:
        """Applies the activation to columns of rows made unit, then shares length among hops.

        Adds them ``onto`` those of other hops, if there are any.
        """
        hops = self.config.parts
        share = hops if self.config.combine == "sum" else hops**0.5
        if self.config.activation == "none":
            scale = (share * length)[:, None]
            return block / scale if onto is None else onto.addcdiv_(block, scale)
        argument = self.config.bandwidth * self.columns**0.5 * block / length[:, None]
        if self.config.activation == "relu":
            shaped = argument.relu()
        else:
            shaped = (argument + self._phases[start : start + block.shape[1]]).cos()
        unit = torch.mul(shaped, (2 / self.columns) ** 0.5 / share)
        return unit if onto is None else onto.add_(unit)

    def _propagated(
        self, powers: Sequence[int] | None = None, wanted: Tensor | None = None
    ) -> Iterator[tuple[int, int, Tensor]]:
        """Yields columns of S^k X, ``[n, b]``, with the place of k and of the first column.

        They are of all nodes, or of those ``wanted`` here, and go when the next ones are taken.
        """
        powers = self.config.powers if powers is None else powers
        matrices, directed, places = self.matrices, self.directed, self.places
        led_to = places[1] if directed else None
        if wanted is not None:
            matrices, places = self._steps(wanted)
            directed, led_to = [matrix.only(wanted) for matrix in directed], None
        for start in range(0, self.columns, self._step):
            block = self._columns(start, min(start + self._step, self.columns))
            for index, matrix in enumerate(directed, len(powers)):
                led = matrix.times(block)
                yield index, start, led if led_to is None else led[led_to]
            # Where each of the nodes is among the rows, as fewer and fewer are given.
            for power, place in enumerate(places):
                if power:
                    block = matrices[power - 1].times(block, passing=True)
                if power in powers:
                    yield powers.index(power), start, block if place is None else block[place]

    def _steps(self, wanted: Tensor) -> tuple[list[PropagationMatrix], list[Tensor | None]]:
        """Returns the matrices of the steps as far as wanted nodes need them.

        Also returns where these are among the rows that 0, 1, … steps give. Steps before one that
        reads most nodes give the rows of all.
        """
        steps, places, given = list[PropagationMatrix](), list[Tensor | None](), wanted
        whole = list(self.matrices)
        while whole:
            if steps:
                if not self._outnumber(steps[0].matrix.pattern.columns):
                    break
                nodes = steps[0].read()
                steps[0] = steps[0].after(nodes)
                given = nodes if self.shard is None else self.shard.held(nodes)
            steps.insert(0, whole.pop().only(given))
            places.insert(0, torch.searchsorted(given, wanted))
        return [*whole, *steps], [wanted] * (len(whole) + 1) + places

    def _columns(self, start: int, stop: int) -> Tensor:
        """Returns columns of the features or of their projection, rows scaled as configured."""
        last = min(stop, self._own)
        if self.directions is None or start == last:
            block = take_columns(self.features, start, last)
        else:
            with torch.no_grad():
                block = project(self.features, self.directions[:, start:last])
        unscaled = self.config.scaling == "none"
        if unscaled and stop == last:
            return block
        room = None if self.shard is None else self.shard.room(stop - start)
        out = block.new_empty(block.shape[0], stop - start) if room is None else room
        lengths = block.new_ones(1) if unscaled else self.lengths[:, None]
        torch.div(block, lengths, out=out[:, : last - start])
        if stop > last:
            out[:, last - start :].fill_(self.features.shape[1] ** 0.5).div_(lengths)
        return out

    @cached_property
    def lengths(self) -> Tensor:
        """The lengths of all nodes' features, one for those of zeros, ``[n]``."""
        known: dict[Any, Tensor] = {} if self._known is None else self._known
        if "lengths" not in known:
            known["lengths"] = row_lengths(self.features)
        lengths = known["lengths"]
        if self.config.constant is True:
            lengths = (lengths.square() + self.features.shape[1]).sqrt()
        return torch.where(lengths > 0, lengths, 1)

    @cached_property
    def matrices(self) -> list[PropagationMatrix]:
        """One for every step."""
        how = (self.config.normalisation, self.config.self_loops)
        if isinstance(self.graph, tuple):
            return [propagation_matrix(graph, *how) for graph in self.graph]
        return [propagation_matrix(self.graph, *how)] * self.config.reach

    @cached_property
    def directed(self) -> list[PropagationMatrix]:
        """Means over in- and over out-neighbours, of the first step, if they stand beside hops."""
        if self.config.direction is not True:
            return []
        graph, found = self.graph[0] if isinstance(self.graph, tuple) else self.graph, []
        assert graph.arcs is not None
        for led in graph.arcs.weights.t():
            total = graph.summed(led)
            shares = led * torch.where(total > 0, total, 1).reciprocal().float()[graph.dst]
            found.append(PropagationMatrix(SparseMatrix(graph.pattern, shares), shard=self.shard))
        return found

    @cached_property
    def places(self) -> list[Tensor | None]:
        """Where the nodes are among what 0, 1, … steps give; None: all of it, in order."""
        if not isinstance(self.graph, tuple):
            return [None] * (self.config.reach + 1)
        places: list[Tensor | None] = [None]
        for graph in reversed(self.graph):
            last = places[0]
            places.insert(0, graph.own if last is None or graph.own is None else graph.own[last])
        return places

    @cached_property
    def directions(self) -> Tensor | None:
        """What features are projected on, ``[d, columns]``; random ones never change."""
        if self.basis is not None or self.config.projection is None:
            return self.basis
        generator = make_generator(self.seed, "random features")
        shape = (self.features.shape[1], self._own)
        return torch.randn(shape, generator=generator).to(self.features.device)

    @cached_property
    def _phases(self) -> Tensor:
        generator = make_generator(self.seed, "random phases")
        turns = torch.rand(self.columns, generator=generator).to(self.features.device)
        return 2 * torch.pi * turns
