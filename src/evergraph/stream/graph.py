"""Graph: a labelled graph as it comes from a file, cleaned and checked."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.stream.features import Features, SparseRows


@dataclass(frozen=True)
class Graph:
    """A whole graph: features, undirected edges, one label per node.

    Build it with :meth:`build`, which cleans the edges (symmetrised, no self-loops, no
    duplicates) and refuses what cannot be right.
    """

    name: str
    x: Features  # [n, d] float32
    edges: Tensor  # [2, E] int64, each undirected edge once, edges[0] < edges[1]
    y: Tensor  # [n] int64
    class_names: tuple[str, ...]

    @classmethod
    def build(
        cls,
        name: str,
        x: Features,
        edges: Tensor,
        y: Tensor,
        class_names: tuple[str, ...] | None = None,
    ) -> Graph:
        """Cleans and validates; raises :class:`InputError` naming what is wrong."""
        x = x.to(torch.float32) if isinstance(x, Tensor) else x.with_values(x.values.float())
        n = x.shape[0]
        y = y.flatten()  # OGB stores a column
        if y.numel() != n:
            raise InputError(
                f"Expected 'y' with one label per node, {n} (got {y.numel()}); "
                f"fix the labels of '{name}'."
            )
        y = y.to(torch.int64)
        if n == 0:
            raise InputError(f"Expected '{name}' with at least one node (got 0); check the file.")
        missing = int((y < 0).sum())
        if missing:
            raise InputError(
                f"Expected 'y' with a class for every node (got {missing} of {n} missing); "
                f"label those nodes of '{name}' or leave them out."
            )
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
        names = class_names or tuple(str(label) for label in range(int(y.max()) + 1))
        if int(y.max()) >= len(names):
            raise InputError(
                f"Expected 'class_names' to name every label up to {int(y.max())} "
                f"(got {len(names)} names); add the missing ones."
            )
        return cls(name, x, clean_edges(edges, n, name), y, names)

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
        parts = [self.edges, self.y]
        if isinstance(self.x, SparseRows):
            parts += [self.x.values, self.x.indices, self.x.indptr]
        else:
            parts.append(self.x)
        for part in parts:
            digest.update(str(tuple(part.shape)).encode())
            digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def clean_edges(edges: Tensor, num_nodes: int, name: str = "graph") -> Tensor:
    """Reduces a stored edge list to each undirected edge once, smaller end first, sorted."""
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise InputError(
            f"Expected 'edge_index' of shape [2, E] (got {list(edges.shape)}); "
            f"store sources and destinations of '{name}' as two rows."
        )
    edges = edges.to(torch.int64)
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
