"""Shard: the part of a graph that one of several workers holds, a range of its nodes.

It has all edges into these nodes. Where they come from nodes of others, the halo, rows are fetched
before every step over the graph. Numbers of nodes are those of the whole graph everywhere; only
rows of features, scores and the like are the range's own.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np
import torch
from torch import Tensor

from evergraph.files import physical_memory
from evergraph.stream.adjacency import Adjacency, Arcs, Pattern, edge_weight, runs
from evergraph.stream.board import Board
from evergraph.team import Team

#: The part of the memory from which on an array goes to the scratch folder.
LARGE = 32
#: Nodes whose edges are weighed at a time.
ROWS = 1 << 16
#: What a node takes of a worker's time, in edges.
NODE = 8


@dataclass(frozen=True)
class Shard:
    """A worker's nodes and the edges into them.

    Sources of edges are the nodes of the range, in order, and then the halo. Where all workers are
    on one machine and have a board, sources are all nodes.
    """

    team: Team
    bounds: Tensor  # [size + 1] int64; worker w holds the nodes from bounds[w] to bounds[w + 1]
    pattern: Pattern  # the sources that every node of the range reads
    halo: Tensor  # [h] int64, ascending; none with a board
    strength: Tensor  # [sources], what the edges of every source weigh in the whole graph
    arcs: Arcs | None = None  # of the edges, if they have weights or directions
    scratch: Path | None = None  # a folder for arrays that are too large for memory
    board: Board | None = None

    @classmethod
    def of(cls, graph: Adjacency, team: Team) -> Shard:
        """Cuts a graph that all workers know into ranges of about the same work."""
        bounds = even_bounds(graph.indptr, team.size)
        first, last = bounds[team.rank : team.rank + 2].tolist()
        begin, end = graph.indptr[first], graph.indptr[last]
        arcs = graph.arcs and graph.arcs.take(slice(int(begin), int(end)))
        src, indptr = graph.src[begin:end], graph.indptr[first : last + 1] - begin
        board = Board.of(team, graph.device)
        if board is not None:
            pattern = Pattern(indptr, src.int())
            return cls(team, bounds, pattern, src[:0], graph.strength, arcs, board=board)
        columns, halo = local_columns(src, first, last)
        sources = torch.cat([torch.arange(first, last, device=halo.device), halo])
        return cls(team, bounds, Pattern(indptr, columns), halo, graph.strength[sources], arcs)

    @property
    def num_nodes(self) -> int:
        """Counts the nodes of the whole graph."""
        return int(self.bounds[-1])

    @property
    def most(self) -> int:
        """Counts the nodes of the largest range: what all workers decide by."""
        return int((self.bounds[1:] - self.bounds[:-1]).max())

    @cached_property
    def memory(self) -> int:
        """The memory of the first worker: all take blocks of the same size."""
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))  # workers on this machine
        return int(self.team.tell(physical_memory() // here))

    @property
    def device(self) -> torch.device:
        """Where the arrays live."""
        return self.halo.device

    @cached_property
    def first(self) -> int:
        """The first node of the range."""
        return int(self.bounds[self.team.rank])

    @cached_property
    def last(self) -> int:
        """The node after the range."""
        return int(self.bounds[self.team.rank + 1])

    @property
    def own(self) -> slice:
        """Where the nodes of the range are among the sources."""
        begin = 0 if self.board is None else self.first
        return slice(begin, begin + self.last - self.first)

    @cached_property
    def weight(self) -> Tensor | None:
        """What each edge weighs, whichever way it leads, ``[E]``; None: all one."""
        return None if self.arcs is None else edge_weight(self.arcs.weights)

    @cached_property
    def mean_weight(self) -> Tensor:
        """What edges of the whole graph weigh on average, where they have weights."""
        assert self.weight is not None
        count = self.halo.new_tensor([self.weight.numel()]).double()
        total, number = self.team.sum(torch.cat([self.weight.double().sum()[None], count]))
        mean: Tensor = total / number
        return mean.to(self.weight.dtype)

    @cached_property
    def dst(self) -> Tensor:
        """The node of the range, from 0, that each edge arrives at, ``[E]``."""
        return runs(self.pattern.indptr.diff())[0]

    def summed(self, values: Tensor) -> Tensor:
        """Sums what edges have, ``[E]``, at the nodes that they arrive at, in double."""
        total = torch.zeros(self.last - self.first, dtype=torch.float64, device=self.device)
        return total.index_add_(0, self.dst, values.double())

    def edge_values(self, node: Tensor, source: Tensor | None = None) -> Tensor:
        """Multiplies the weights of edges by what their node and their source have, ``[E]``."""
        indptr, columns = self.pattern.indptr, self.pattern.columns
        values = self.empty(columns.numel())
        for first in range(0, node.numel(), ROWS):
            rows = slice(first, min(first + ROWS, node.numel()))
            edges = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
            counts = indptr[rows.start : rows.stop + 1].diff()
            part = node[rows].repeat_interleave(counts)
            values[edges] = part if source is None else part * source[columns[edges]]
        return values if self.weight is None else values * self.weight

    def empty(self, *shape: int, count: int = 1) -> Tensor:
        """Makes one of so many arrays of float32.

        If they are large together, it is a file without a name in the scratch folder.
        """
        if self.scratch is None or 4 * count * math.prod(shape) < self.memory // LARGE:
            return torch.empty(shape, device=self.device)
        with TemporaryFile(dir=self.scratch) as file:
            return torch.from_numpy(np.memmap(file, np.float32, "w+", shape=shape))

    def place(self, nodes: Tensor) -> Tensor:
        """Returns the rows of nodes here, −1 for those that others hold."""
        return torch.where((nodes >= self.first) & (nodes < self.last), nodes - self.first, -1)

    def pick(self, rows: Tensor, nodes: Tensor) -> Tensor:
        """Returns the rows of any nodes, ``[m, ...]``, of which each worker has its own."""
        return self.team.pick(rows, self.place(nodes))

    @cached_property
    def _sent(self) -> tuple[Tensor, list[int], list[int]]:
        """The rows that others read, how many each of them, and how many come from each."""
        owners = torch.searchsorted(self.bounds, self.halo, right=True) - 1
        come = torch.bincount(owners, minlength=self.team.size)
        go = torch.empty_like(come)
        exchange = torch.distributed.all_to_all_single
        exchange(go, come)
        sent = self.halo.new_empty(int(go.sum()))
        exchange(sent, self.halo, go.tolist(), come.tolist())
        return sent - self.first, go.tolist(), come.tolist()

    def blocks(self, size: int = 10_000) -> Iterator[tuple[Tensor, Tensor, Adjacency]]:
        """Yields rows of the range, the sources that they read, and the edges between them."""
        pointer, n = self.pattern.indptr, self.last - self.first
        degree = self.strength.long()
        degree[self.own] = pointer.diff()
        for nodes in torch.split(torch.arange(n, device=self.device), size):
            begin, end = int(nodes[0]), int(nodes[-1]) + 1
            edges = slice(int(pointer[begin]), int(pointer[end]))
            read = torch.cat([nodes + self.own.start, self.pattern.columns[edges].long()])
            sources, place = torch.unique(read, return_inverse=True)
            own, src = place.tensor_split([nodes.numel()])
            dst = runs(pointer[begin : end + 1].diff())[0]
            arcs = self.arcs and self.arcs.take(edges, self.strength[sources])
            yield nodes, sources, Adjacency.between(src, dst, own, degree[sources], arcs)

    @property
    def sees_all(self) -> bool:
        """Whether all nodes are sources here: of one worker, or with a board."""
        return self.team.size == 1 or self.board is not None

    def needed(self, sources: Tensor) -> Tensor:
        """Lists the nodes that some worker needs, ascending; each says which sources it does."""
        if self.board is None:
            own = torch.arange(self.first, self.last, device=self.device)
            sources = torch.cat([own, self.halo])[sources]
        needed = torch.zeros(self.num_nodes, dtype=torch.float16, device=self.device)  # few bytes
        needed[sources] = 1
        return self.team.sum(needed).nonzero().flatten()

    def held(self, nodes: Tensor) -> Tensor:
        """Returns the rows here of those of the nodes, ascending, that are of the range."""
        begin, end = torch.searchsorted(nodes, self.bounds[self.team.rank :][:2]).tolist()
        return nodes[begin:end] - self.first

    def room(self, width: int) -> Tensor | None:
        """Returns where rows of the range may be computed that :meth:`extend` is given next.

        None: anywhere. What is there goes with the second call after that.
        """
        if self.board is None:
            return None
        return self.board.room(self.last - self.first, self.first, self.num_nodes, width)

    def extend(self, rows: Tensor, among: Tensor | None = None) -> Tensor:
        """Returns the rows of all sources, ``[sources, b]``, given those of the range.

        If the nodes ``among`` alone have rows, those of the range are given; rows are returned of
        these alone, in order, where this worker :attr:`sees_all`.
        """
        if self.team.size == 1:
            return rows
        if self.board is not None:
            first, total = self.first, self.num_nodes
            if among is not None:
                first, total = int(torch.searchsorted(among, first)), among.numel()
            return self.board.show(rows, first, total)
        if among is not None:
            every = rows.new_empty(self.last - self.first, *rows.shape[1:])
            rows = every.index_copy_(0, self.held(among), rows)
        sent, go, come = self._sent
        both = self.empty(rows.shape[0] + self.halo.numel(), *rows.shape[1:]).to(rows.dtype)
        both[: rows.shape[0]] = rows
        torch.distributed.all_to_all_single(both[rows.shape[0] :], rows[sent], come, go)
        return both


def even_bounds(indptr: Tensor, parts: int) -> Tensor:
    """Cuts nodes into ranges of about as many edges each, nodes counted in, ``[parts + 1]``."""
    n = indptr.numel() - 1
    work = indptr - indptr[0] + NODE * torch.arange(n + 1, device=indptr.device)
    wanted = torch.arange(1, parts, device=indptr.device) * int(work[-1]) // parts
    inner = torch.searchsorted(work, wanted)
    return torch.cat([inner.new_zeros(1), inner, inner.new_full((1,), n)])


def local_columns(src: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
    """Numbers sources as a shard does, int32; returns the halo as well."""
    own = (src >= first) & (src < last)
    halo = torch.unique(src[~own])
    columns = torch.where(own, src - first, 0).int()
    columns[~own] = (last - first + torch.searchsorted(halo, src[~own])).int()
    return columns, halo


class SharedRows:
    """Features of all nodes of which each worker holds those of its shard; others are fetched.

    All workers fetch at the same time, each what it needs.
    """

    def __init__(self, own: Tensor, shard: Shard) -> None:
        self.own, self.shard = own, shard
        self.shape, self.device = (shard.num_nodes, own.shape[1]), own.device

    def __getitem__(self, nodes: Tensor) -> Tensor:
        """Returns the rows of some nodes."""
        owners = torch.searchsorted(self.shard.bounds, nodes, right=True) - 1
        first = self.shard.first
        return self.shard.team.ask(owners, nodes, lambda theirs: self.own[theirs - first])

    def to(self, device: torch.device | str) -> SharedRows:
        """Moves the rows that are here."""
        moved = self.own.to(device)
        return self if moved is self.own else SharedRows(moved, self.shard)
