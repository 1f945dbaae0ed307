"""Adjacency: who is whose neighbour, immutable, in the orders that kernels read.

An :class:`Adjacency` holds the edges; a :class:`Pattern` is the CSR form of it that one kernel
reads, with its rows cut into blocks for threads and into :class:`Chunks` for GPU programs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from evergraph.team import ALONE, Team

#: Blocks of about equal work that threads take rows in.
BLOCKS = 64
#: Most edges that one GPU program sums; longer rows are cut.
CHUNK = 256


@dataclass(frozen=True)
class OnDevice:
    """What moves to a device with all that it holds."""

    def to(self, device: torch.device | str) -> Self:
        """Moves every tensor; what is there already stays the same object."""
        held = {part.name: getattr(self, part.name) for part in fields(self)}
        moved = {name: _moved(value, device) for name, value in held.items()}
        same = all(moved[name] is value for name, value in held.items())
        return self if same else replace(self, **moved)


def _moved(value: Any, device: torch.device | str) -> Any:
    if isinstance(value, dict):
        return {key: _moved(item, device) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_moved(item, device) for item in value)
    return value.to(device) if isinstance(value, Tensor | OnDevice) else value


@dataclass(frozen=True)
class Adjacency(OnDevice):
    """A graph as directed edges sorted by (destination, source), both directions of each.

    ``indptr`` is the CSR pointer by destination: the edges that arrive at node ``i`` are
    ``indptr[i]:indptr[i + 1]``. Self-loops are absent unless the object came from
    :attr:`with_self_loops`. Nothing is changed in place; :meth:`edit` returns a new one.
    Only a part of a graph may fail to be ``symmetric``; its ``whole_degree`` holds the degrees
    that the nodes have in the whole graph. The edges of a part may lead from more sources to
    fewer nodes (:meth:`between`); ``own`` then holds the source that is the node itself.
    Where edges have weights or lead one way there are ``arcs``; they are heard both ways all the
    same, but for who asks for the two :attr:`ways`.
    """

    num_nodes: int
    src: Tensor  # [E] int64
    dst: Tensor  # [E] int64, non-decreasing
    indptr: Tensor  # [n + 1] int64
    symmetric: bool = True
    whole_degree: Tensor | None = None  # [num_sources] int64, only of a part
    own: Tensor | None = None  # [n] int64; None: every source is a node, in the same order
    arcs: Arcs | None = None  # None: all edges weigh one, both ways
    team: ClassVar[Team] = ALONE  # whoever has it has all of it, unlike a shard

    @classmethod
    def from_edges(
        cls, edges: Tensor, num_nodes: int, symmetric: bool = True, arcs: Arcs | None = None
    ) -> Adjacency:
        """Sorts directed ``edges`` ``[2, E]`` (source, destination) into CSR order.

        The edges must be clean: no duplicates, both directions present if ``symmetric``.
        """
        keys, none = edges[1] * num_nodes + edges[0], edges[0, :0]
        graph = cls(num_nodes, none, none, none, symmetric)._joined_by(torch.sort(keys).values)
        return graph if arcs is None else replace(graph, arcs=arcs.take(torch.argsort(keys)))

    @classmethod
    def between(
        cls, src: Tensor, dst: Tensor, own: Tensor, whole_degree: Tensor, arcs: Arcs | None = None
    ) -> Adjacency:
        """Joins ``whole_degree.numel()`` sources to ``own.numel()`` nodes; edges come sorted."""
        n = own.numel()
        return cls(n, src, dst, pointer_of(dst, n), False, whole_degree, own, arcs)

    def _joined_by(self, keys: Tensor) -> Adjacency:
        """Returns the same nodes with the edges of other :attr:`keys`, which ascend."""
        dst = torch.div(keys, max(self.num_sources, 1), rounding_mode="floor")
        src, indptr = keys - dst * self.num_sources, pointer_of(dst, self.num_nodes)
        return replace(self, src=src, dst=dst, indptr=indptr, arcs=None)

    @property
    def num_edges(self) -> int:
        """Counts directed edges: twice the undirected ones when there are no loops."""
        return self.src.numel()

    @property
    def num_sources(self) -> int:
        """Counts the nodes that edges may come from."""
        if self.own is None or self.whole_degree is None:
            return self.num_nodes
        return self.whole_degree.numel()

    @property
    def device(self) -> torch.device:
        """Where the arrays live."""
        return self.src.device

    @cached_property
    def degree(self) -> Tensor:
        """Counts each node's neighbours, ``[n]``."""
        return self.indptr[1:] - self.indptr[:-1]

    @cached_property
    def weight(self) -> Tensor | None:
        """What each edge weighs, whichever way it leads, ``[E]``; None: all one."""
        return None if self.arcs is None else edge_weight(self.arcs.weights)

    @property
    def mean_weight(self) -> Tensor:
        """What edges weigh on average, where they have weights."""
        assert self.weight is not None
        return self.weight.mean()

    def extend(self, rows: Tensor) -> Tensor:
        """Returns the rows that edges come from: those of all nodes, as they are given."""
        return rows

    @cached_property
    def strength(self) -> Tensor:
        """What the edges of every source weigh in the whole graph, ``[num_sources]``."""
        if self.arcs is None or self.weight is None:
            return self.degree if self.whole_degree is None else self.whole_degree
        return self.summed(self.weight) if self.arcs.strength is None else self.arcs.strength

    def summed(self, values: Tensor) -> Tensor:
        """Sums what edges have, ``[E]``, at the nodes that they arrive at, ``[n]`` in double."""
        total = torch.zeros(self.num_nodes, dtype=torch.float64, device=self.device)
        return total.index_add_(0, self.dst, values.double())

    def weighed_as(self, whole: Adjacency, nodes: Tensor | None = None) -> Adjacency:
        """Takes weights over from a graph, whose ``nodes`` these are; edges it lacks weigh one."""
        if whole.arcs is None:
            return self
        src, dst = (end if nodes is None else nodes[end] for end in (self.src, self.dst))
        wanted, arcs = dst * whole.num_sources + src, torch.ones(src.numel(), 2, device=src.device)
        if whole.num_edges:
            keys, order = torch.sort(whole.keys)  # those of a part may not be
            at = find_sorted(keys, wanted)
            arcs = torch.where((at >= 0)[:, None], whole.arcs.weights[order[at]], arcs)
        strength = None if nodes is None else whole.strength[nodes]
        return replace(self, arcs=Arcs(arcs, whole.arcs.directed, strength))

    @cached_property
    def keys(self) -> Tensor:
        """Encodes every edge as ``dst * num_sources + src``, ascending, ``[E]``."""
        return self.dst * self.num_sources + self.src

    @cached_property
    def by_source(self) -> Tensor:
        """Orders edge positions by (source, destination), ``[E]``."""
        return torch.argsort(self.src, stable=True)

    @cached_property
    def source_indptr(self) -> Tensor:
        """The CSR pointer over :attr:`by_source`, ``[n + 1]``."""
        return pointer_of(self.src, self.num_sources)

    @cached_property
    def pattern(self) -> Pattern:
        """Which rows every node reads: its neighbours."""
        return Pattern(self.indptr, self.src.int())

    @cached_property
    def transpose(self) -> Pattern:
        """Which rows read every node: the same ones, unless the graph is a sampled part."""
        if self.symmetric:
            return self.pattern
        return Pattern(self.source_indptr, self.dst[self.by_source].int())

    @cached_property
    def with_self_loops(self) -> Adjacency:
        """The same graph with every node its own neighbour as well."""
        nodes = torch.arange(self.num_nodes, device=self.device)
        own = nodes if self.own is None else self.own
        keys = torch.unique(torch.cat([self.keys, nodes * self.num_sources + own]))
        return self._joined_by(keys).weighed_as(self)

    @cached_property
    def ways(self) -> tuple[Adjacency, Adjacency] | None:
        """The edges that lead to every node, and those that lead away from it, from where they end.

        Every node is its own neighbour in both. None where edges have no direction.
        """
        looped = self.with_self_loops
        if looped.arcs is None or not looped.arcs.directed:
            return None
        there = (looped._joined_by(looped.keys[led > 0]) for led in looped.arcs.weights.t())
        to, away = (replace(graph, symmetric=False) for graph in there)
        return to, away

    @cached_property
    def symmetric_weights(self) -> Tensor:
        r"""The entries of :math:`D^{-1/2} (A + I) D^{-1/2}` as doubles, loops included.

        A sampled part that knows the degrees of the graph it comes from takes those, and lets
        the neighbours drawn stand for the ones that were not: sums are then right on average,
        and exact when all were drawn. Without them, degrees are edges that arrive within the part.
        """
        looped = self.with_self_loops
        root = (self.strength.double() + 1).rsqrt()
        itself = looped.dst if self.own is None else self.own[looped.dst]
        values = looped.edge_values(root if self.own is None else root[self.own], root)
        if self.whole_degree is not None:
            degree = self.whole_degree if self.own is None else self.whole_degree[self.own]
            stands_for = degree.double() / self.degree.clamp(min=1)
            values = torch.where(looped.src == itself, values, values * stands_for[looped.dst])
        return values

    @cached_property
    def mean_weights(self) -> Tensor:
        """What each edge weighs in the average over its target's neighbours, ``[E]``."""
        if self.weight is None:
            return self.degree.double().reciprocal()[self.dst]
        return self.weight / self.summed(self.weight)[self.dst]

    def edge_values(self, node: Tensor, source: Tensor | None = None) -> Tensor:
        """Multiplies the weights of edges by what their node and their source have, ``[E]``."""
        values = node[self.dst] if source is None else node[self.dst] * source[self.src]
        return values if self.weight is None else values * self.weight

    def has_edges(self, src: Tensor, dst: Tensor) -> Tensor:
        """Tells for each pair whether it is an edge; shapes broadcast."""
        return find_sorted(self.keys, dst * self.num_nodes + src) >= 0

    def edges_into(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        """Lists the neighbours of the given nodes.

        Returns ``(owner, neighbour)``: the position in ``nodes`` and the neighbouring node
        of every edge, grouped by owner, each ``[sum of degrees]``.
        """
        owner, rank = runs(self.degree[nodes])
        return owner, self.src[self.indptr[nodes][owner] + rank]

    def edit(self, add: Tensor, remove: Tensor) -> Adjacency:
        """Returns a graph with undirected pairs added and removed, both ``[2, *]``.

        Removal comes first: a pair in both lists ends up present. Adding an existing edge
        or removing a missing one changes nothing; self-loops cannot be added.
        """
        n, keys = self.num_nodes, self.keys
        if remove.numel():
            gone, stay = find_sorted(keys, _both_ways(remove, n)), torch.ones_like(keys) > 0
            stay[gone[gone >= 0]] = False
            keys = keys[stay]
        if add.numel():
            add = add[:, add[0] != add[1]]
            keys = torch.unique(torch.cat([keys, _both_ways(add, n)]))
        after = self._joined_by(keys).weighed_as(self)
        if self.whole_degree is None:
            return after
        arcs = after.arcs
        if arcs is not None and self.weight is not None and after.weight is not None:
            strength = self.strength + after.summed(after.weight) - self.summed(self.weight)
            arcs = replace(arcs, strength=strength)
        degree = self.whole_degree + after.degree - self.degree
        return replace(after, whole_degree=degree, arcs=arcs)


@dataclass(frozen=True)
class Arcs(OnDevice):
    """What edges weigh from their source to their destination and back, zero where they lead not.

    A part of a graph also knows its ``strength``: what nodes' edges weigh in the whole graph.
    """

    weights: Tensor  # [E, 2] float32
    directed: bool  # whether it tells anything which way edges lead
    strength: Tensor | None = None  # [num_sources] float64

    def take(self, edges: Tensor | slice, strength: Tensor | None = None) -> Arcs:
        """Returns those of some edges, maybe in another part."""
        strength = self.strength if strength is None else strength
        return Arcs(self.weights[edges], self.directed, strength)


@dataclass(frozen=True)
class Pattern:
    """CSR: row ``i`` reads ``columns[indptr[i]:indptr[i + 1]]``."""

    indptr: Tensor  # [n + 1] int64
    columns: Tensor  # [E] int32

    @property
    def num_rows(self) -> int:
        """Counts the rows."""
        return self.indptr.numel() - 1

    @cached_property
    def blocks(self) -> Tensor:
        """Cuts the rows into runs of about equally many edges and rows, ``[BLOCKS + 1]``."""
        n = self.num_rows
        work = self.indptr + torch.arange(n + 1, device=self.indptr.device)
        bounds = torch.arange(BLOCKS + 1, device=self.indptr.device) * int(work[-1]) // BLOCKS
        return torch.searchsorted(work, bounds)

    @cached_property
    def chunks(self) -> Chunks:
        """Cuts long rows for GPU programs; see :class:`Chunks`."""
        degree = self.indptr[1:] - self.indptr[:-1]
        counts = torch.div(degree + CHUNK - 1, CHUNK, rounding_mode="floor").clamp_(min=1)
        owner, rank = runs(counts)
        bounds = torch.cat([self.indptr[owner] + CHUNK * rank, self.indptr[-1:]])
        hubs = torch.nonzero(counts > 1).flatten()
        cut = (counts > 1)[owner]
        place = torch.where(cut, self.num_rows - 1 + torch.cumsum(cut, 0), owner)
        hub_of, _ = runs(counts[hubs])
        return Chunks(bounds, owner, place, pointer(counts), hubs, hub_of, pointer(counts[hubs]))


@dataclass(frozen=True)
class Chunks:
    """Rows cut into chunks of at most :data:`CHUNK` edges; a row without edges has an empty one.

    A program sums a chunk as if it were a row. The sums of a longer row's chunks (a "hub's") go to
    places behind those of all rows, to be joined.
    """

    bounds: Tensor  # [c + 1] pointer of chunks into edges
    owner: Tensor  # [c] row
    place: Tensor  # [c] where the sum goes: the row, from n on for a hub's
    rows: Tensor  # [n + 1] pointer of rows into chunks
    hubs: Tensor  # [k] rows of several chunks
    hub_of: Tensor  # [s] which of the hubs each place behind the rows belongs to
    parts: Tensor  # [k + 1] pointer of hubs into these places


def find_sorted(keys: Tensor, wanted: Tensor) -> Tensor:
    """Returns where whole numbers are among keys that ascend, −1 where they are not."""
    if not keys.numel():
        return torch.full_like(wanted, -1)
    at = torch.searchsorted(keys, wanted).clamp_(max=keys.numel() - 1)
    return torch.where(keys[at] == wanted, at, -1)


def edge_weight(arcs: Tensor) -> Tensor:
    """Returns what edges ``[E, 2]`` weigh, the mean of both ways where they lead both, ``[E]``."""
    return arcs.sum(dim=1) / (arcs > 0).sum(dim=1)


def pointer(counts: Tensor) -> Tensor:
    """Adds lengths up to a CSR pointer, ``[n + 1]``."""
    indptr = torch.zeros(counts.numel() + 1, dtype=torch.int64, device=counts.device)
    torch.cumsum(counts, 0, out=indptr[1:])
    return indptr


def pointer_of(index: Tensor, num_rows: int) -> Tensor:
    """Makes the CSR pointer of entries that lie in the given rows, ``[num_rows + 1]``."""
    return pointer(torch.bincount(index, minlength=num_rows))


def runs(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Lists the entries of rows of the given lengths: the row of each, and its place there."""
    owner = torch.repeat_interleave(torch.arange(counts.numel(), device=counts.device), counts)
    return owner, torch.arange(owner.numel(), device=counts.device) - pointer(counts)[owner]


def _both_ways(pairs: Tensor, num_nodes: int) -> Tensor:
    return torch.cat([pairs[0] * num_nodes + pairs[1], pairs[1] * num_nodes + pairs[0]])
