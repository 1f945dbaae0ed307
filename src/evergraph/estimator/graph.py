"""GrowingGraph: a graph without labels whose nodes have names, changed by making a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.arrays import Array, Grown
from evergraph.estimator.names import Id, Names
from evergraph.stream import Adjacency, Features, SparseRows
from evergraph.stream.adjacency import pointer_of

SPARSE = ("values", "indices", "indptr")


@dataclass(frozen=True)
class Edits:
    """What a method changed in a graph for itself; undirected pairs ``[2, *]``."""

    added: Tensor = field(default_factory=lambda: torch.empty(2, 0, dtype=torch.int64))
    deleted: Tensor = field(default_factory=lambda: torch.empty(2, 0, dtype=torch.int64))

    @classmethod
    def between(cls, before: Adjacency, after: Adjacency) -> Edits:
        """Compares two graphs of the same nodes."""
        added = after.keys[~torch.isin(after.keys, before.keys)]
        deleted = before.keys[~torch.isin(before.keys, after.keys)]
        return cls(_undirected(added, before.num_nodes), _undirected(deleted, before.num_nodes))

    def __bool__(self) -> bool:
        return bool(self.added.numel() or self.deleted.numel())

    def apply(self, graph: Adjacency) -> Adjacency:
        """Returns the graph as the method wants it; the same object when nothing changed."""
        return graph.edit(add=self.added, remove=self.deleted) if self else graph

    def renumbered(self, new_rows: Tensor) -> Edits:
        """Follows nodes to new rows; pairs with a removed end are dropped."""
        moved = [new_rows[pairs] for pairs in (self.added, self.deleted)]
        return Edits(*(pairs[:, (pairs >= 0).all(dim=0)] for pairs in moved))


class Neighbourhood(NamedTuple):
    """Some nodes of a graph and what is around them, as a graph of its own."""

    nodes: Tensor  # [b] rows in the whole graph, ascending
    features: Features  # [b, d]
    adjacency: Adjacency  # all edges into nodes that are not at the rim; degrees of the whole

    def rows(self, nodes: Tensor) -> Tensor:
        """Finds nodes of the whole graph here."""
        return torch.searchsorted(self.nodes, nodes)


@dataclass
class _Star:
    """A forward star over edges, extended when it is needed; graphs that grew share it."""

    head: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    following: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    degree: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    num_ends: int = 0

    def cover(self, ends: Array, num_nodes: int) -> None:
        """Takes in ends and nodes that it lacks."""
        from evergraph.kernels import forward_star  # noqa: PLC0415 - numba is slow to import

        self.head = _with_room(self.head, num_nodes, -1)
        self.degree = _with_room(self.degree, num_nodes, 0)
        if self.num_ends < ends.size:
            self.following = _with_room(self.following, ends.size, -1)
            forward_star.extend(self.head, self.following, self.degree, ends, self.num_ends)
            self.num_ends = ends.size


@dataclass(frozen=True)
class GrowingGraph:
    """Nodes in order of arrival: their names, features and edges.

    Every change makes a new graph, which shares what did not change; growth takes the time of what
    is new. Removing nodes or edges and replacing features copies.
    """

    names: Names
    arrays: Mapping[str, Grown]  # ``dense``, or ``values``, ``indices`` and ``indptr``
    width: int  # d, 0 before the first nodes
    edges: Grown  # [E, 2] int64, undirected, each once, in order of arrival
    _star: _Star = field(default_factory=_Star, compare=False, repr=False)

    @classmethod
    def empty(cls) -> GrowingGraph:
        """Makes a graph without nodes, whose first ones decide on the features."""
        return cls(Names(Grown.empty(np.int64)), {}, 0, Grown.empty(np.int64, 2))

    @property
    def num_nodes(self) -> int:
        """Counts the nodes."""
        return len(self.names)

    @property
    def num_edges(self) -> int:
        """Counts the undirected edges."""
        return self.edges.length

    @cached_property
    def features(self) -> Features:
        """All features, ``[n, d]``; dense ones share the arrays' memory."""
        return _features(self.arrays, self.width) if self.arrays else torch.empty(0, 0)

    @cached_property
    def adjacency(self) -> Adjacency:
        """The whole graph in the order that kernels read, made when somebody needs it."""
        pairs = self.edges.tensor.T
        return Adjacency.from_edges(torch.cat([pairs, pairs.flip(0)], dim=1), self.num_nodes)

    @cached_property
    def degree(self) -> Tensor:
        """Counts each node's neighbours, ``[n]``."""
        return torch.bincount(self.edges.tensor.flatten(), minlength=self.num_nodes)

    def find(self, ids: Sequence[Id], what: str) -> Tensor:
        """Returns the rows of named nodes, ``[m]``; a name that is not there is an error."""
        found = self.names.where(ids)
        if (found < 0).any():
            at = int(np.argmax(found < 0))
            raise InputError(
                f"Expected '{what}' to name known nodes (got {ids[at]!r} in row {at + 1}); "
                "add the node first or correct the name."
            )
        return torch.from_numpy(found)

    def find_pairs(self, sides: Sequence[Sequence[Id]]) -> Tensor:
        """Returns the rows of both ends of edges, ``[2, m]``."""
        return torch.stack([self.find(side, "edges") for side in sides])

    def with_nodes(self, ids: Sequence[Id], x: Features) -> GrowingGraph:
        """Adds nodes, which must be new, without edges; features are stored as the first were."""
        if not ids:
            return self
        arrays = _append(self.arrays or _arrays(x[:0]), x)
        return replace(self, names=self.names.append(ids), arrays=arrays, width=x.shape[1])

    def with_edges(self, pairs: Tensor) -> GrowingGraph:
        """Adds undirected pairs of rows ``[2, m]``; loops and known edges change nothing."""
        low, high = pairs.min(dim=0).values, pairs.max(dim=0).values
        keys = (high * self.num_nodes + low)[low != high].numpy()
        keys = keys[np.sort(np.unique(keys, return_index=True)[1])]  # the first of each, in order
        high_rows, low_rows = np.divmod(keys, max(self.num_nodes, 1))
        new = ~self._has_edges(low_rows, high_rows)
        if not new.any():
            return self
        star = self._star if self.edges.is_newest else _Star()
        edges = self.edges.append(np.stack([low_rows[new], high_rows[new]], axis=1))
        return replace(self, edges=edges, _star=star)

    def without_edges(self, pairs: Tensor) -> GrowingGraph:
        """Removes undirected pairs of rows ``[2, m]``, which must be edges."""
        if not pairs.numel():
            return self
        missing = ~self._has_edges(pairs[0].numpy(), pairs[1].numpy())
        if missing.any():
            at = int(np.argmax(missing))
            first, second = self.names.take(pairs[:, at].numpy())
            raise InputError(
                f"Expected 'edges' to remove to exist (got {first!r} – {second!r} in row "
                f"{at + 1}, which do not touch); leave the pair out."
            )
        low, high = pairs.min(dim=0).values, pairs.max(dim=0).values
        edges, n = self.edges.array, self.num_nodes
        stay = ~np.isin(edges[:, 1] * n + edges[:, 0], (high * n + low).numpy())
        return replace(self, edges=Grown.of(edges[stay]), _star=_Star())

    def with_features(self, rows: Tensor, x: Features) -> GrowingGraph:
        """Replaces the features of some nodes."""
        if not rows.numel():
            return self
        source = torch.arange(self.num_nodes)
        source[rows] = self.num_nodes + torch.arange(rows.numel())
        copies = {key: Grown.of(part.array) for key, part in self.arrays.items()}
        both = _features(_append(copies, x), self.width)
        return replace(self, arrays=_arrays(both[source]))

    def without_nodes(self, rows: Tensor) -> tuple[GrowingGraph, Tensor]:
        """Removes nodes with their edges.

        Returns the graph and the new row of every old one, ``[n]``, −1 for the removed ones.
        """
        stay = torch.ones(self.num_nodes, dtype=torch.bool)
        stay[rows] = False
        new_rows = torch.where(stay, torch.cumsum(stay, 0) - 1, -1)
        edges = new_rows[self.edges.tensor]
        edges = edges[(edges >= 0).all(dim=1)]
        left = torch.nonzero(stay).flatten()
        names, arrays = self.names.keep(left.numpy()), _arrays(self.features[left])
        return GrowingGraph(names, arrays, self.width, Grown.of(edges.numpy())), new_rows

    def neighbourhood(self, nodes: Tensor, depth: int) -> Neighbourhood:
        """Cuts out nodes and all within ``depth`` steps, in the time that these take.

        A network of ``depth`` layers gives the nodes exactly what it gives them on the whole
        graph.
        """
        from evergraph.kernels import forward_star  # noqa: PLC0415 - numba is slow to import

        chains = self._chains()
        found, inner = forward_star.reach(*chains, nodes.numpy(), depth)
        rows, inside = np.sort(found), np.sort(found[:inner])
        newest = self._star.num_ends == chains[-1]  # of an older graph nobody has counted them
        degree = self._star.degree[rows] if newest else self.degree.numpy()[rows]
        place = np.empty(self.num_nodes, dtype=np.int64)
        place[rows] = np.arange(rows.size)
        counts = degree[place[inside]]
        near = place[forward_star.neighbours(*chains, inside, counts)]
        arrays = (near, np.repeat(place[inside], counts), degree)
        src, dst, whole = map(torch.from_numpy, arrays)
        indptr = pointer_of(dst, rows.size)
        part = Adjacency(rows.size, src, dst, indptr, symmetric=False, whole_degree=whole)
        cut_out = torch.from_numpy(rows)
        return Neighbourhood(cut_out, self.features[cut_out], part)

    def _has_edges(self, first: Array, second: Array) -> Array:
        from evergraph.kernels import forward_star  # noqa: PLC0415 - numba is slow to import

        found: Array = forward_star.has_edges(*self._chains(), first, second)
        return found

    def _chains(self) -> tuple[Array, Array, Array, int]:
        """Returns what :mod:`evergraph.kernels.forward_star` reads."""
        ends = self.edges.array.reshape(-1)
        self._star.cover(ends, self.num_nodes)
        return self._star.head, self._star.following, ends, ends.size


def _arrays(x: Features) -> dict[str, Grown]:
    """Takes features apart."""
    if isinstance(x, Tensor):
        return {"dense": Grown.of(x.numpy())}
    return {key: Grown.of(getattr(x, key).numpy()) for key in SPARSE}


def _features(arrays: Mapping[str, Grown], width: int) -> Features:
    """Puts features together again."""
    if "dense" in arrays:
        return arrays["dense"].tensor
    values, indices, indptr = (arrays[key].tensor for key in SPARSE)
    return SparseRows(values, indices, indptr, width)


def _append(arrays: Mapping[str, Grown], x: Features) -> dict[str, Grown]:
    """Puts rows below others, stored as the first ones are."""
    if "dense" in arrays:
        rows = x if isinstance(x, Tensor) else x.dense()
        return {"dense": arrays["dense"].append(rows.numpy())}
    below = x if isinstance(x, SparseRows) else sparse(x)
    new = (below.values, below.indices, below.indptr[1:] + arrays["values"].length)
    return {key: arrays[key].append(t.numpy()) for key, t in zip(SPARSE, new, strict=True)}


def sparse(x: Tensor) -> SparseRows:
    """Stores a matrix, dense or sparse in any of PyTorch's layouts, as sparse rows."""
    entries = x.to_sparse(layout=torch.sparse_coo).coalesce()
    rows, columns = entries.indices()
    counts = torch.bincount(rows, minlength=x.shape[0])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(counts, 0)])
    return SparseRows(entries.values(), columns.contiguous(), indptr, x.shape[1])


def _undirected(keys: Tensor, num_nodes: int) -> Tensor:
    """Turns directed keys into undirected pairs, each once and the smaller end first."""
    second = torch.div(keys, max(num_nodes, 1), rounding_mode="floor")
    first = keys - second * num_nodes
    once = first < second
    return torch.stack([first[once], second[once]])


def _with_room(array: Array, size: int, value: int) -> Array:
    """Returns the array with at least ``size`` entries, new ones of a value."""
    if array.size >= size:
        return array
    grown = np.full(size + size // 2, value, dtype=array.dtype)
    grown[: array.size] = array
    return grown
