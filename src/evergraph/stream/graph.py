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
    """A whole graph: features, undirected edges, a label per node, optionally times of arrival.

    Build it with :meth:`build`, which cleans the edges (symmetrised, no self-loops, no
    duplicates) and refuses what cannot be right. Time is counted in steps from 0; an edge never
    arrives before both its ends, and may arrive later.
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

        See :func:`to_steps` for what ``time``, ``edge_time`` and ``times`` may be.
        """
        n = x.shape[0]
        y = y[:, 0] if y.shape == (n, 1) else y  # OGB stores a column
        shapes = {"y": y.shape, "names": (len(node_names) or n,), "time": (n,)}
        if time is not None:
            shapes["time"] = time.shape
        for key, shape in shapes.items():
            if shape != (n,):
                raise InputError(
                    f"Expected '{key}' with one value per node, {n} (got "
                    f"{' × '.join(map(str, shape))}); fix those of '{name}'."
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
        clean = clean_edges(edges, n, name)
        if time is None:
            return cls(name, x, clean, y, names, node_names=node_names)
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
    if isinstance(x, SparseRows):
        check_range(x.indices, x.num_columns, "x_indices", f"fix the features of '{name}'")
    return x


def check_range(given: Tensor, count: int, what: str, remedy: str) -> None:
    """Refuses places that are not among so many."""
    if given.numel() and (int(given.min()) < 0 or int(given.max()) >= count):
        found = f"{int(given.min())} to {int(given.max())}"
        raise InputError(f"Expected '{what}' in [0, {count - 1}] (got {found}); {remedy}.")


def whole_numbers(given: Tensor, key: str, name: str) -> Tensor:
    """Returns numbers as int64; a fraction is refused, NaN and infinity become −1."""
    if given.is_floating_point():
        given = torch.where(given.isfinite(), given, -1)
        if bool((given.frac() != 0).any()):
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
    remedy = f"remove edges of '{name}' to unknown nodes or add the nodes"
    check_range(edges, num_nodes, "edge_index", remedy)
    first, second = edges.min(dim=0).values, edges.max(dim=0).values
    keep = first != second
    keys = torch.unique(first[keep] * num_nodes + second[keep])
    first = torch.div(keys, num_nodes, rounding_mode="floor")
    return torch.stack([first, keys - first * num_nodes])


def to_steps(
    name: str,
    time: Tensor,
    edge_time: Tensor | None,
    times: tuple[str, ...],
    *,
    stored: Tensor,
    clean: Tensor,
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Returns the step of every node ``[n]`` and clean edge ``[E]``, and what steps are called.

    Times are places among ``times``, the names of the steps; without these any whole numbers, of
    which each becomes a step. An edge that is ``stored`` ``[2, S]`` more than once is there from
    the earliest on; without ``edge_time``, from its later end on. ``clean`` is what
    :func:`clean_edges` made of them.
    """
    n, ends = int(time.numel()), time[stored.long()].amax(dim=0)
    edge_time = ends if edge_time is None else edge_time
    if edge_time.shape != ends.shape:
        raise InputError(
            f"Expected 'edge_time' with one time per stored edge, {ends.numel()} (got "
            f"{edge_time.numel()}); fix the times of '{name}'."
        )
    early = int((edge_time < ends).sum())
    if early:
        raise InputError(
            f"Expected every edge of '{name}' to come no earlier than both its ends (got {early} "
            "that do); correct 'edge_time'."
        )
    if not times:
        numbers, time = torch.unique(time, return_inverse=True)
        edge_time = torch.searchsorted(numbers, edge_time)  # what comes between comes with the next
        times = tuple(map(str, numbers.tolist()))
    for key, steps in (("time", time), ("edge_time", edge_time)):
        remedy = f"'times' of '{name}' names the steps that have nodes, so correct one of them"
        check_range(steps, len(times), key, remedy)
    first, second = stored.long().sort(dim=0).values
    proper = first != second
    place = torch.searchsorted(clean[0] * n + clean[1], (first * n + second)[proper])
    latest = torch.full((clean.shape[1],), len(times))
    return time, latest.scatter_reduce(0, place, edge_time[proper], "amin"), times
