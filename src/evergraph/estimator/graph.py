"""GrowingGraph: a graph without labels whose nodes have names, changed by making a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.stream import Adjacency, Features, SparseRows

Id = str | int


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
        return cls(undirected(added, before.num_nodes), undirected(deleted, before.num_nodes))

    def apply(self, graph: Adjacency) -> Adjacency:
        """Returns the graph as the method wants it; the same object when nothing changed."""
        if not self.added.numel() and not self.deleted.numel():
            return graph
        return graph.edit(add=self.added, remove=self.deleted)

    def renumbered(self, new_rows: Tensor) -> Edits:
        """Follows nodes to new rows; pairs with a removed end are dropped."""
        moved = [new_rows[pairs] for pairs in (self.added, self.deleted)]
        return Edits(*(pairs[:, (pairs >= 0).all(dim=0)] for pairs in moved))


@dataclass(frozen=True)
class GrowingGraph:
    """Nodes in order of arrival: their names, features and edges.

    Every change makes a new graph; what did not change is shared.
    """

    ids: tuple[Id, ...]
    features: Features  # [n, d]
    adjacency: Adjacency

    @classmethod
    def empty(cls) -> GrowingGraph:
        """Makes a graph without nodes, whose first ones decide on the features."""
        edges = torch.empty(2, 0, dtype=torch.int64)
        return cls((), torch.empty(0, 0), Adjacency.from_edges(edges, 0))

    @property
    def num_nodes(self) -> int:
        """Counts the nodes."""
        return len(self.ids)

    @cached_property
    def rows(self) -> Mapping[Id, int]:
        """Finds nodes by name."""
        return {name: row for row, name in enumerate(self.ids)}

    def find(self, ids: Sequence[Id], what: str) -> Tensor:
        """Returns the rows of named nodes, ``[m]``; a name that is not there is an error."""
        found = list(map(self.rows.get, ids))
        if None in found:
            at = found.index(None)
            raise InputError(
                f"Expected '{what}' to name known nodes (got {ids[at]!r} in row {at + 1}); "
                "add the node first or correct the name."
            )
        return torch.tensor(found, dtype=torch.int64)

    def find_pairs(self, sides: Sequence[Sequence[Id]]) -> Tensor:
        """Returns the rows of both ends of edges, ``[2, m]``."""
        return torch.stack([self.find(side, "edges") for side in sides])

    def with_nodes(self, ids: Sequence[Id], x: Features) -> GrowingGraph:
        """Adds nodes, which must be new, without edges."""
        if not ids:
            return self
        features = stack(self.features, x) if self.features.shape[1] else x
        n = len(self.ids) + len(ids)
        edges = torch.stack([self.adjacency.src, self.adjacency.dst])
        grown = Adjacency.from_edges(edges, n)
        return GrowingGraph((*self.ids, *ids), features, grown)

    def with_edges(self, pairs: Tensor) -> GrowingGraph:
        """Adds undirected pairs of rows ``[2, m]``; loops and known edges change nothing."""
        return self._edited(pairs, pairs[:, :0])

    def without_edges(self, pairs: Tensor) -> GrowingGraph:
        """Removes undirected pairs of rows ``[2, m]``, which must be edges."""
        missing = ~self.adjacency.has_edges(pairs[0], pairs[1])
        if bool(missing.any()):
            at = int(torch.nonzero(missing)[0])
            first, second = (self.ids[row] for row in pairs[:, at].tolist())
            raise InputError(
                f"Expected 'edges' to remove to exist (got {first!r} – {second!r} in row "
                f"{at + 1}, which do not touch); leave the pair out."
            )
        return self._edited(pairs[:, :0], pairs)

    def _edited(self, added: Tensor, removed: Tensor) -> GrowingGraph:
        if not added.numel() and not removed.numel():
            return self
        return replace(self, adjacency=self.adjacency.edit(added, removed))

    def with_features(self, rows: Tensor, x: Features) -> GrowingGraph:
        """Replaces the features of some nodes."""
        if not rows.numel():
            return self
        source = torch.arange(self.num_nodes)
        source[rows] = self.num_nodes + torch.arange(rows.numel())
        both = stack(self.features, x)
        return replace(self, features=both[source])

    def without_nodes(self, rows: Tensor) -> tuple[GrowingGraph, Tensor]:
        """Removes nodes with their edges.

        Returns the graph and the new row of every old one, ``[n]``, −1 for the removed ones.
        """
        stay = torch.ones(self.num_nodes, dtype=torch.bool)
        stay[rows] = False
        new_rows = torch.where(stay, torch.cumsum(stay, 0) - 1, -1)
        edges = new_rows[torch.stack([self.adjacency.src, self.adjacency.dst])]
        edges = edges[:, (edges >= 0).all(dim=0)]
        left = torch.nonzero(stay).flatten()
        ids = tuple(self.ids[row] for row in left.tolist())
        graph = Adjacency.from_edges(edges, len(ids))
        return GrowingGraph(ids, self.features[left], graph), new_rows


def stack(first: Features, second: Features) -> Features:
    """Puts rows below others, stored as the first ones are."""
    if isinstance(first, Tensor):
        below = second if isinstance(second, Tensor) else second.dense()
        return torch.cat([first, below])
    rows = second if isinstance(second, SparseRows) else sparse(second)
    return SparseRows(
        torch.cat([first.values, rows.values]),
        torch.cat([first.indices, rows.indices]),
        torch.cat([first.indptr, first.indptr[-1] + rows.indptr[1:]]),
        first.num_columns,
    )


def sparse(x: Tensor) -> SparseRows:
    """Stores a matrix, dense or sparse in any of PyTorch's layouts, as sparse rows."""
    entries = x.to_sparse(layout=torch.sparse_coo).coalesce()
    rows, columns = entries.indices()
    counts = torch.bincount(rows, minlength=x.shape[0])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(counts, 0)])
    return SparseRows(entries.values(), columns.contiguous(), indptr, x.shape[1])


def undirected(keys: Tensor, num_nodes: int) -> Tensor:
    """Turns directed keys into undirected pairs, each once and the smaller end first."""
    second = torch.div(keys, max(num_nodes, 1), rounding_mode="floor")
    first = keys - second * num_nodes
    once = first < second
    return torch.stack([first[once], second[once]])
