"""Graph: a labelled graph as it comes from a file, cleaned and checked, and its features.

Features are a dense tensor or :class:`SparseRows`; the functions at the end take either.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.stream.adjacency import Pattern, pointer, pointer_of, runs
from evergraph.stream.times import to_steps


@dataclass(frozen=True)
class Graph:
    """A whole graph: features, undirected edges, one label per node, and maybe when each came.

    Build it with :meth:`build`, which cleans the edges (symmetrised, no self-loops, no
    duplicates) and refuses what cannot be right. Time is counted in steps from 0; an edge is
    never there before both its ends, and may come later than they do.
    """

    name: str
    x: Features  # [n, d] float32
    edges: Tensor  # [2, E] int64, each undirected edge once, edges[0] < edges[1]
    y: Tensor  # [n] int64
    class_names: tuple[str, ...]
    time: Tensor | None = None  # [n] int64, the step in which each node comes
    edge_time: Tensor | None = None  # [E] int64, the step from which on each edge is there
    times: tuple[str, ...] = ()  # names of the steps
    node_names: tuple[str, ...] = ()  # what the file calls its nodes, if it says

    @classmethod
    def build(
        cls,
        name: str,
        x: Features,
        edges: Tensor,
        y: Tensor,
        class_names: tuple[str, ...] | None = None,
        *,
        time: Tensor | None = None,
        edge_time: Tensor | None = None,
        times: tuple[str, ...] = (),
        node_names: tuple[str, ...] = (),
    ) -> Graph:
        """Cleans and validates; raises :class:`InputError` naming what is wrong.

        What ``time``, ``edge_time`` and ``times`` may be, :func:`~evergraph.stream.times.to_steps`
        says.
        """
        n, y = x.shape[0], y.flatten()  # OGB stores a column
        if y.numel() != n:
            raise InputError(
                f"Expected 'y' with one label per node, {n} (got {y.numel()}); "
                f"fix the labels of '{name}'."
            )
        if n == 0:
            raise InputError(f"Expected '{name}' with at least one node (got 0); check the file.")
        y = whole_numbers(y, "y", name)
        missing, highest = int((y < 0).sum()), int(y.max())
        if missing:
            raise InputError(
                f"Expected 'y' with a class for every node (got {missing} of {n} missing); "
                f"label those nodes of '{name}' or leave them out."
            )
        x = _checked_features(x, name)
        names = class_names or tuple(str(label) for label in range(highest + 1))
        if highest >= len(names):
            raise InputError(
                f"Expected 'class_names' to name every label up to {highest} "
                f"(got {len(names)} names); add the missing ones."
            )
        if node_names and len(node_names) != n:
            raise InputError(
                f"Expected 'names' with one name per node, {n} (got {len(node_names)}); fix the "
                f"names of '{name}'."
            )
        clean = clean_edges(edges, n, name)
        if time is None:
            return cls(name, x, clean, y, names, node_names=node_names)
        if time.shape != (n,):
            raise InputError(
                f"Expected 'time' with one time per node, {n} (got {time.numel()}); fix the times "
                f"of '{name}'."
            )
        time = whole_numbers(time, "time", name)
        if edge_time is not None:
            edge_time = whole_numbers(edge_time, "edge_time", name)
        dates = to_steps(name, time, edge_time, times, stored=edges, clean=clean)
        return cls(name, x, clean, y, names, *dates, node_names)

    @property
    def num_nodes(self) -> int:
        """Counts the nodes."""
        return self.y.numel()

    @property
    def num_edges(self) -> int:
        """Counts undirected edges."""
        return self.edges.shape[1]

    @property
    def num_features(self) -> int:
        """Counts feature columns."""
        return self.x.shape[1]

    @cached_property
    def fingerprint(self) -> str:
        """Hashes the contents: two graphs with the same hash give the same stream."""
        digest = hashlib.sha256("\0".join(self.class_names).encode())
        digest.update(str(tuple(self.x.shape)).encode())
        x = self.x
        rows = [x.values, x.indices, x.indptr] if isinstance(x, SparseRows) else [x]
        dated = [part for part in (self.time, self.edge_time) if part is not None]
        for part in (self.edges, self.y, *rows, *dated):
            digest.update(str(tuple(part.shape)).encode())
            digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def _checked_features(x: Features, name: str) -> Features:
    """Returns the features as float32, if they are finite and lie in their columns."""
    x = x.to(torch.float32) if isinstance(x, Tensor) else x.with_values(x.values.float())
    values = x.values if isinstance(x, SparseRows) else x
    bad = int((~torch.isfinite(values)).sum())
    if bad:
        raise InputError(
            f"Expected 'x' to be finite (got {bad} NaN or infinite values); "
            f"clean the features of '{name}'."
        )
    if isinstance(x, SparseRows) and x.indices.numel():
        low, high = int(x.indices.min()), int(x.indices.max())
        if low < 0 or high >= x.num_columns:
            raise InputError(
                f"Expected 'x_indices' in [0, {x.num_columns - 1}] (got {low} to {high}); "
                f"fix the features of '{name}'."
            )
    return x


def whole_numbers(given: Tensor, key: str, name: str) -> Tensor:
    """Returns numbers as int64; a fraction is refused, NaN becomes a negative number."""
    if given.is_floating_point() and bool((given.frac().abs() > 0).any()):
        raise InputError(
            f"Expected '{key}' of '{name}' in whole numbers (got fractions); round it."
        )
    return given.to(torch.int64)


def clean_edges(edges: Tensor, num_nodes: int, name: str = "graph") -> Tensor:
    """Reduces a stored edge list to each undirected edge once, smaller end first, sorted."""
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise InputError(
            f"Expected 'edge_index' of shape [2, E] (got {list(edges.shape)}); "
            f"store sources and destinations of '{name}' as two rows."
        )
    edges = whole_numbers(edges, "edge_index", name)
    if edges.numel():
        low, high = int(edges.min()), int(edges.max())
        if low < 0 or high >= num_nodes:
            raise InputError(
                f"Expected 'edge_index' in [0, {num_nodes - 1}] (got {low} to {high}); "
                f"remove edges of '{name}' to unknown nodes or add the nodes."
            )
    first, second = edges.min(dim=0).values, edges.max(dim=0).values
    keep = first != second
    keys = torch.unique(first[keep] * num_nodes + second[keep])
    first = torch.div(keys, num_nodes, rounding_mode="floor")
    return torch.stack([first, keys - first * num_nodes])


@dataclass(frozen=True)
class SparseRows:
    """A sparse ``[n, d]`` feature matrix in CSR form, float32.

    The first ``n`` rows are a prefix of every array, so a view of the nodes seen so far
    shares the memory of the whole.
    """

    values: Tensor  # [nnz] float32
    indices: Tensor  # [nnz] int64, column of each value
    indptr: Tensor  # [n + 1] int64
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        """``(n, d)``."""
        return self.indptr.numel() - 1, self.num_columns

    @property
    def device(self) -> torch.device:
        """Where the arrays live."""
        return self.values.device

    def __getitem__(self, rows: slice | Tensor) -> SparseRows:
        """Returns the first rows (``[:m]``, sharing memory) or a copy of any, in their order."""
        if isinstance(rows, slice):
            assert rows.start is None
            assert rows.step is None
            indptr = self.indptr[: rows.stop + 1]
            stop = int(indptr[-1])
            return SparseRows(self.values[:stop], self.indices[:stop], indptr, self.num_columns)
        counts = (self.indptr[1:] - self.indptr[:-1])[rows]
        owner, rank = runs(counts)
        at = self.indptr[rows][owner] + rank
        return SparseRows(self.values[at], self.indices[at], pointer(counts), self.num_columns)

    @cached_property
    def pattern(self) -> Pattern:
        """Which columns every row holds."""
        return Pattern(self.indptr, self.indices.int())

    @cached_property
    def transpose(self) -> tuple[Pattern, Tensor]:
        """The pattern by column, and where each of its values is among ``values``, ``[nnz]``."""
        order = torch.argsort(self.indices, stable=True)
        indptr = pointer_of(self.indices, self.num_columns)
        return Pattern(indptr, self.row_index()[order].int()), order

    def with_values(self, values: Tensor) -> SparseRows:
        """Returns the same pattern holding other values; what was derived of it is shared."""
        other = SparseRows(values, self.indices, self.indptr, self.num_columns)
        for derived in ("pattern", "transpose"):
            if derived in self.__dict__:
                other.__dict__[derived] = self.__dict__[derived]
        return other

    def to(self, device: torch.device | str) -> SparseRows:
        """Moves every array to a device."""
        arrays = (self.values.to(device), self.indices.to(device), self.indptr.to(device))
        return SparseRows(*arrays, self.num_columns)

    def dense(self) -> Tensor:
        """Returns the dense ``[n, d]`` matrix; for small graphs, tests and diagnostics."""
        n, d = self.shape
        out = torch.zeros(n, d, dtype=self.values.dtype, device=self.device)
        out.index_put_((self.row_index(), self.indices), self.values, accumulate=True)
        return out

    def dense_columns(self, start: int, stop: int) -> Tensor:
        """Returns the columns ``[start, stop)`` as a dense ``[n, stop - start]`` matrix."""
        pattern, order = self.transpose
        first, last = int(pattern.indptr[start]), int(pattern.indptr[stop])
        counts = pattern.indptr[start + 1 : stop + 1] - pattern.indptr[start:stop]
        columns = torch.repeat_interleave(torch.arange(stop - start, device=self.device), counts)
        out = self.values.new_zeros(self.shape[0], stop - start)
        place = (pattern.columns[first:last].long(), columns)
        return out.index_put_(place, self.values[order[first:last]], accumulate=True)

    def row_index(self) -> Tensor:
        """Returns the row of every stored value, ``[nnz]``."""
        rows = torch.arange(self.shape[0], device=self.device)
        return torch.repeat_interleave(rows, self.indptr[1:] - self.indptr[:-1])


Features = Tensor | SparseRows


def take_columns(features: Features, start: int, stop: int) -> Tensor:
    """Returns some columns of dense or sparse features as a dense matrix."""
    if isinstance(features, SparseRows):
        return features.dense_columns(start, stop)
    return features[:, start:stop]


def leanest(features: Features) -> Features:
    """Stores sparse rows densely when that takes no more memory, which is faster as well."""
    if isinstance(features, SparseRows):
        n, d = features.shape
        per_value = features.values.element_size() + features.indices.element_size()
        if n * d * features.values.element_size() <= features.values.numel() * per_value:
            return features.dense()
    return features


def row_sums(features: Features) -> Tensor:
    """Sums each row, ``[n]``."""
    if isinstance(features, SparseRows):
        sums = torch.zeros(features.shape[0], dtype=features.values.dtype, device=features.device)
        return sums.index_add_(0, features.row_index(), features.values)
    return features.sum(dim=1)


def row_lengths(features: Features) -> Tensor:
    """Computes the Euclidean length of each row, ``[n]``."""
    if isinstance(features, SparseRows):
        return row_sums(features.with_values(features.values.square())).sqrt()
    return features.square().sum(dim=1).sqrt()


def normalise_rows(features: Features) -> Features:
    """Divides each row by its sum; rows that sum to zero stay zero."""
    sums = row_sums(features)
    scale = torch.where(sums == 0, torch.ones_like(sums), sums).reciprocal()
    if isinstance(features, SparseRows):
        return features.with_values(features.values * scale[features.row_index()])
    return features * scale[:, None]


def from_scipy_parts(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, num_columns: int
) -> SparseRows:
    """Builds sparse rows from the arrays of a SciPy CSR matrix."""
    return SparseRows(
        torch.from_numpy(np.ascontiguousarray(data, dtype=np.float32)),
        torch.from_numpy(np.ascontiguousarray(indices, dtype=np.int64)),
        torch.from_numpy(np.ascontiguousarray(indptr, dtype=np.int64)),
        num_columns,
    )
