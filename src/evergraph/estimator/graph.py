"""GrowingGraph: a graph without labels whose nodes have names, changed by making a new one.

All that grows is here, arrays, names and edges: how snapshots share their memory must be right in
one place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.nn.receptive_field import FEW, evenly
from evergraph.stream import Adjacency, Features, SparseRows
from evergraph.stream.adjacency import Arcs, edge_weight

if TYPE_CHECKING:
    from evergraph.estimator.array_files import Mapped

Id = str | int
Array = np.ndarray[Any, np.dtype[Any]]
#: Names of nodes; whole numbers may be an array, so that nothing loops over them.
Ids = Sequence[Id] | Array
SPARSE = ("values", "indices", "indptr")
#: The largest share of nodes whose features are stored beside the rest.
MOST_PATCHED = 1 / 16
#: Up to so many edges all are compared with new ones.
FEW_EDGES = 20_000
#: The most nodes: edges are pairs of rows in four bytes each.
MOST_NODES = 1 << 31
_extending = threading.Lock()


@dataclass
class _Buffer:
    """Memory with room behind what is used."""

    data: Array
    used: int
    mapped: Mapped | None = None

    def __reduce__(self) -> Any:
        return _Buffer, (self.data, self.used)  # a copy is memory of its own


@dataclass(frozen=True, eq=False)
class Grown:
    """Rows in order of arrival, ``[n, ...]``; never changed, only followed by a longer one.

    Whoever appends to a snapshot first writes behind its end, into the memory that both share;
    whoever comes second copies.

    Attributes:
        length: n.
        lineage: The same object for all that one array grew into, so that a store knows which
            rows it has.
    """

    _buffer: _Buffer
    length: int
    lineage: object

    @classmethod
    def of(cls, data: Array, length: int | None = None, mapped: Mapped | None = None) -> Grown:
        """Takes an array; what is behind ``length`` is room."""
        n = data.shape[0] if length is None else length
        return cls(_Buffer(data, n, mapped), n, object())

    @classmethod
    def empty(cls, dtype: Any, *shape: int) -> Grown:
        """Makes an array without rows."""
        return cls.of(np.empty((0, *shape), dtype=dtype))

    @property
    def array(self) -> Array:
        """The rows; nobody may change them."""
        return self._buffer.data[: self.length]

    @property
    def tensor(self) -> Tensor:
        """The rows as a tensor that shares their memory."""
        return torch.from_numpy(self.array)

    @property
    def is_newest(self) -> bool:
        """Tells whether nobody has appended to this snapshot."""
        return self._buffer.used == self.length

    def has_room(self, count: int) -> bool:
        """Tells whether so many rows can be appended without copying those that are there."""
        return self.is_newest and self.length + count <= self._buffer.data.shape[0]

    def replaced(self, at: Array, rows: Array) -> Grown:
        """Returns a copy with other rows at some places, of the same lineage."""
        data = self.array.copy()
        data[at] = rows
        return Grown(_Buffer(data, self.length), self.length, self.lineage)

    def overwrite(self, at: Array, rows: Array) -> None:
        """Writes other rows to some places of an array that nobody else has yet."""
        self._buffer.data[at] = rows
        self._buffer.mapped = None  # no file has these

    def take(self, rows: Tensor) -> Tensor:
        """Copies some rows; of a matrix three times as fast as by brackets."""
        taken = self.tensor.index_select(0, rows)
        if self._buffer.mapped is not None:
            self._buffer.mapped.count(rows.numel())
        return taken

    def at_hand(self) -> AbstractContextManager[None]:
        """Keeps rows that are read from a file in memory until the end."""
        mapped = self._buffer.mapped
        return nullcontext() if mapped is None else mapped.hold()

    def append(self, rows: Array) -> Grown:
        """Returns the array with rows below, in the time that these take on average."""
        begin, end = self.length, self.length + rows.shape[0]
        buffer = self._buffer
        if not self.is_newest or end > buffer.data.shape[0]:
            data = np.empty((end + end // 2, *buffer.data.shape[1:]), dtype=buffer.data.dtype)
            data[:begin] = self.array
            if self.is_newest:
                buffer.used = -1  # who appends to this snapshot from now on is second
            buffer = _Buffer(data, begin)
        buffer.data[begin:end] = rows
        buffer.used = end
        return Grown(buffer, end, self.lineage)


@dataclass
class _Index:
    """Rows by key in sorted runs, each less than half as long as the one before.

    It is extended when it is needed; names that grew share it.
    """

    runs: tuple[tuple[Array, Array], ...] = ()  # keys, ascending, and their rows

    def cover(self, keys: Array) -> None:
        """Takes in keys that it lacks."""
        if sum(run[0].size for run in self.runs) >= keys.size:
            return  # who looks a name up does not wait for another thread
        with _extending:  # who predicts may do so while another thread learns
            runs = list(self.runs)
            begin = sum(run[0].size for run in runs)
            if begin >= keys.size:
                return
            order = np.argsort(keys[begin:], kind="stable")
            runs.append((keys[begin:][order], (begin + order).astype(np.int32)))
            while len(runs) > 1 and 2 * runs[-1][0].size >= runs[-2][0].size:
                both, rows = (np.concatenate(parts) for parts in zip(*runs[-2:], strict=True))
                order = np.argsort(both, kind="stable")
                runs[-2:] = [(both[order], rows[order])]
            self.runs = tuple(runs)

    def find(self, keys: Array) -> Array:
        """Returns the row of each key, −1 where there is none."""
        found = np.full(keys.size, -1)
        for there, rows in self.runs:
            at = np.searchsorted(there, keys).clip(max=there.size - 1)
            found = np.where(there[at] == keys, rows[at], found)
        return found


@dataclass(frozen=True)
class Names:
    """The names of nodes in order of arrival, all text or all whole numbers.

    A key is a whole number itself or the hash of a text. What is found by key is compared with
    the name.
    """

    keys: Grown  # [n] int64
    text: Grown | None = None  # [bytes] uint8, all names one after the other
    ends: Grown | None = None  # [n] int64, where each ends in text
    _index: _Index = field(default_factory=_Index, compare=False, repr=False)

    @property
    def kind(self) -> type[Id] | None:
        """Tells whether names are text or whole numbers; None as long as there are none."""
        if not self.keys.length:
            return None
        return int if self.text is None else str

    def __len__(self) -> int:
        return self.keys.length

    def take(self, rows: Array | None = None) -> list[Any]:
        """Returns the names of some nodes, of all by default."""
        if self.text is None or self.ends is None:
            return list((self.keys.array if rows is None else self.keys.array[rows]).tolist())
        at = np.arange(len(self)) if rows is None else rows
        ends, data = self.ends.array, self.text.array.data
        begins = np.where(at > 0, ends[at - 1], 0).tolist()
        return [str(data[a:b], "utf-8") for a, b in zip(begins, ends[at].tolist(), strict=True)]

    def where(self, names: Ids) -> Array:
        """Returns the row of each name, ``[m]``, −1 where it is not known."""
        if not len(self) or kind_of(names) is not self.kind:
            return np.full(len(names), -1)
        rows = self._by_key(_keys(names))
        if self.text is None:
            return rows
        known = np.flatnonzero(rows >= 0)
        there = self.take(rows[known])
        wrong = [at for at, name in zip(known.tolist(), there, strict=True) if name != names[at]]
        rows[wrong] = -1
        return rows

    def append(self, names: Ids) -> Names:
        """Adds names, which must be new and of one kind."""
        keys = _keys(names)
        if not are_distinct(keys) or (len(self) and (self._by_key(keys) >= 0).any()):
            raise InputError(
                "Expected names with different hashes (got two that share one, which happens once "
                "in a billion graphs); rename one of them."
            )
        index = self._index if self.keys.is_newest else _Index()
        grown = self.keys.append(keys)
        if kind_of(names) is int:
            return Names(grown, _index=index)
        texts = [str(name).encode() for name in names]
        text, ends = self.text, self.ends
        if text is None or ends is None:
            text, ends = Grown.empty(np.uint8), Grown.empty(np.int64)
        new_ends = text.length + np.cumsum([len(name) for name in texts])
        data = np.frombuffer(b"".join(texts), dtype=np.uint8)
        return Names(grown, text.append(data), ends.append(new_ends), index)

    def keep(self, stay: Array) -> Names:
        """Returns the marked names in their order, as new arrays."""
        keys = Grown.of(self.keys.array[stay])
        if self.text is None or self.ends is None:
            return Names(keys)
        lengths = np.diff(self.ends.array, prepend=0)
        text = self.text.array[np.repeat(stay, lengths)]
        return Names(keys, Grown.of(text), Grown.of(np.cumsum(lengths[stay])))

    def _by_key(self, keys: Array) -> Array:
        """Looks keys up; what is found may be another name of the same key."""
        self._index.cover(self.keys.array)
        rows = self._index.find(keys)
        rows[rows >= len(self)] = -1  # of a longer list that shares the index
        return rows


class Neighbourhood(NamedTuple):
    """Some nodes of a graph and what is around them, as a graph of its own."""

    graph: GrowingGraph  # the whole
    nodes: Tensor  # [b] rows there, ascending
    adjacency: Adjacency  # all edges into nodes that are not at the rim; degrees of the whole

    @property
    def features(self) -> Features:
        """A copy of their features, ``[b, d]``."""
        return self.graph.take(self.nodes)

    def rows(self, nodes: Tensor) -> Tensor:
        """Finds nodes of the whole graph here."""
        return torch.searchsorted(self.nodes, nodes)


@dataclass
class _Star:
    """A forward star over edges, extended when it is needed; graphs that grew share it."""

    head: Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    following: Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    degree: Array = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    num_ends: int = 0

    def cover(self, ends: Array, num_nodes: int) -> None:
        """Takes in ends and nodes that it lacks."""
        from evergraph.kernels import forward_star  # noqa: PLC0415 - numba is slow to import

        with _extending:  # who predicts may do so while another thread learns
            kind = np.int32 if ends.size < 1 << 31 else np.int64
            self.head = _with_room(self.head, num_nodes, kind, -1)
            self.degree = _with_room(self.degree, num_nodes, kind, 0)
            if self.num_ends < ends.size:
                self.following = _with_room(self.following, ends.size, kind)
                forward_star.extend(self.head, self.following, self.degree, ends, self.num_ends)
                self.num_ends = ends.size


@dataclass(frozen=True)
class GrowingGraph:
    """Nodes in order of arrival: their names, features and edges.

    Every change makes a new graph, which shares what did not change; growth takes the time of what
    is new. Removing nodes or edges and replacing features copies.

    Attributes:
        patched: Nodes whose dense features were replaced since all were stored: so few that they
            are stored beside the rest.
        arcs: What edges weigh from their first end to the second and back, zero where they do not
            lead; None as long as all weigh one both ways.
        directed: Whether pairs lead from the first to the second, instead of both ways.
    """

    names: Names
    arrays: Mapping[str, Grown]  # ``dense``, or ``values``, ``indices`` and ``indptr``
    width: int  # d, 0 before the first nodes
    edges: Grown  # [E, 2] int32, undirected, each once, in order of arrival; int64 in old states
    patched: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))
    arcs: Grown | None = None  # [E, 2] float32
    directed: bool = False
    _star: _Star = field(default_factory=_Star, compare=False, repr=False)

    @classmethod
    def empty(cls, directed: bool = False) -> GrowingGraph:
        """Makes a graph without nodes, whose first ones decide on the features."""
        arcs, edges = Grown.empty(np.float32, 2) if directed else None, Grown.empty(np.int32, 2)
        return cls(Names(Grown.empty(np.int64)), {}, 0, edges, arcs=arcs, directed=directed)

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

    @property
    def pairs(self) -> Tensor:
        """All undirected edges, ``[2, E]``."""
        return self.edges.tensor.T.long()

    @cached_property
    def adjacency(self) -> Adjacency:
        """The whole graph in the order that kernels read, made when somebody needs it."""
        pairs, arcs = self.pairs, None
        if self.arcs is not None:
            there = self.arcs.tensor
            arcs = Arcs(torch.cat([there, there.flip(1)]), self.directed)
        both = torch.cat([pairs, pairs.flip(0)], dim=1)
        return Adjacency.from_edges(both, self.num_nodes, arcs=arcs)

    @cached_property
    def strength(self) -> Tensor:
        """What each node's edges weigh, ``[n]``."""
        assert self.arcs is not None
        weight = edge_weight(self.arcs.tensor).double().repeat_interleave(2)
        return torch.bincount(self.edges.tensor.flatten(), weight, minlength=self.num_nodes)

    @cached_property
    def degree(self) -> Tensor:
        """Counts each node's neighbours, ``[n]``."""
        return torch.bincount(self.edges.tensor.flatten(), minlength=self.num_nodes)

    def find(self, ids: Ids, what: str) -> Tensor:
        """Returns the rows of named nodes, ``[m]``; a name that is not there is an error."""
        found = self.names.where(ids)
        if (found < 0).any():
            at = int(np.argmax(found < 0))
            remedy = "correct the name" if what == "ids" else "learn the node or correct the name"
            raise InputError(
                f"Expected '{what}' to name known nodes (got {show(ids[at])} in row {at + 1}); "
                f"{remedy}."
            )
        return torch.from_numpy(found)

    def find_pairs(self, sides: Sequence[Ids]) -> Tensor:
        """Returns the rows of both ends of edges, ``[2, m]``."""
        return torch.stack([self.find(side, "edges") for side in sides])

    def with_nodes(self, ids: Ids, x: Features) -> GrowingGraph:
        """Adds nodes, which must be new, without edges; features are stored as the first were."""
        if not len(ids):
            return self
        if self.num_nodes + len(ids) > MOST_NODES:
            raise InputError(
                f"Expected at most {MOST_NODES} nodes (got {self.num_nodes + len(ids)}); split the "
                "graph."
            )
        arrays = _append(self.arrays or _arrays(x[:0]), x)
        return replace(self, names=self.names.append(ids), arrays=arrays, width=x.shape[1])

    def with_edges(self, pairs: Tensor, weights: Array | None = None) -> GrowingGraph:
        """Adds pairs of rows ``[2, m]``, with weights ``[m]`` where they do not all weigh one.

        Loops change nothing, and neither do known edges, unless they come with a weight or lead
        another way. Of several weights the last counts.
        """
        low, high = pairs.min(dim=0).values, pairs.max(dim=0).values
        apart = (low != high).numpy()
        keys = (high * self.num_nodes + low).numpy()[apart]
        each, first = np.unique(keys, return_index=True)
        ends = np.stack(np.divmod(keys[np.sort(first)], max(self.num_nodes, 1)))[::-1]
        known = self.find_edges(*ends)  # in the order in which they arrived
        new, graph = known < 0, self
        if self.arcs is not None or (weights is not None and (weights != 1).any()):
            at = np.argsort(np.argsort(first))[np.searchsorted(each, keys)]
            arcs = np.zeros((each.size, 2), dtype=np.float32)
            sides = (pairs[0] > pairs[1]).numpy()[apart].astype(np.int64)
            for side in (sides,) if self.directed else (0, 1):
                arcs[at, side] = 1 if weights is None else weights[apart]
            grown = self.arcs or Grown.of(np.ones((self.num_edges, 2), np.float32))
            was, now = grown.array[known[~new]], arcs[~new]
            both = np.where(was == 0 if weights is None else now > 0, now, was)
            if (both != was).any():
                after = grown.array.copy()
                after[known[~new]] = both
                grown = Grown.of(after)
            graph = replace(self, arcs=grown.append(arcs[new]))
        if not new.any():
            return graph
        star = self._star if self.edges.is_newest else _Star()
        return replace(graph, edges=self.edges.append(ends.T[new]), _star=star)

    def own_edges(self) -> dict[str, Any]:
        """Returns the fields of its edges, which grow in memory of their own from now on."""
        *_, ends, count = self._chains()
        own, star = _Star(), self._star
        with _extending:
            if star.num_ends == count:  # none of a graph that grew out of this one
                own = _Star(star.head.copy(), star.following[:count], star.degree.copy(), count)
        arcs = self.arcs and Grown.of(self.arcs.array)
        return {"edges": Grown.of(ends.reshape(-1, 2)), "arcs": arcs, "_star": own}

    def growth_bytes(self, ids: Ids, x: Features | None, num_edges: int) -> tuple[int, int, int]:
        """Counts what new nodes and edges will take.

        Returns the bytes of their arrays, as on disk; what they take in memory, with the index of
        names and the forward star; and what arrays without room for them take to be copied.
        """
        kept: dict[str, Tensor] = {}
        if x is not None:
            kept = {"dense": x} if isinstance(x, Tensor) else {k: getattr(x, k) for k in SPARSE}
        names = 8 * len(ids)
        if kind_of(ids) is str:
            names = 16 * len(ids) + sum(len(str(name).encode()) for name in ids)
        ends = num_edges * (1 if self.arcs is None else 2)
        stored = names + 8 * ends + sum(part.nbytes for part in kept.values())
        copied = 0 if self.edges.has_room(num_edges) else self.edges.array.nbytes
        for key, part in kept.items():
            if key in self.arrays and not self.arrays[key].has_room(part.shape[0]):
                copied += self.arrays[key].array.nbytes
        return stored, stored + 20 * len(ids) + 8 * num_edges, copied

    def without_edges(self, pairs: Tensor) -> GrowingGraph:
        """Removes undirected pairs of rows ``[2, m]``, which must be edges."""
        if not pairs.numel():
            return self
        low, high = pairs.min(dim=0).values, pairs.max(dim=0).values
        missing = self.find_edges(low.numpy(), high.numpy()) < 0
        if missing.any():
            at = int(np.argmax(missing))
            first, second = self.names.take(pairs[:, at].numpy())
            raise InputError(
                f"Expected 'edges' to remove to exist (got {first!r} – {second!r} in row "
                f"{at + 1}, which do not touch); leave the pair out."
            )
        stay = ~np.isin(self._edge_keys(), (high * self.num_nodes + low).numpy())
        return self._with_edges_at(stay, self.edges.array)

    def _with_edges_at(self, stay: Array, ends: Array) -> GrowingGraph:
        """Keeps some edges, whose ends may have other rows now."""
        arcs = None if self.arcs is None else Grown.of(self.arcs.array[stay])
        return replace(self, edges=Grown.of(ends[stay]), arcs=arcs, _star=_Star())

    def with_features(self, rows: Tensor, x: Features) -> GrowingGraph:
        """Replaces the features of some nodes."""
        if not rows.numel():
            return self
        patched = torch.unique(torch.cat([self.patched, rows]))
        if "dense" in self.arrays and patched.numel() <= MOST_PATCHED * self.num_nodes:
            values = x if isinstance(x, Tensor) else x.dense()
            arrays = {"dense": self.arrays["dense"].replaced(rows.numpy(), values.numpy())}
            return replace(self, arrays=arrays, patched=patched)
        source = torch.arange(self.num_nodes)
        source[rows] = self.num_nodes + torch.arange(rows.numel())
        both = stack_rows(self.features, x)
        return replace(self, arrays=_arrays(both[source]), patched=self.patched[:0])

    def without_nodes(self, rows: Tensor) -> tuple[GrowingGraph, Tensor]:
        """Removes nodes with their edges.

        Returns the graph and the new row of every old one, ``[n]``, −1 for the removed ones.
        """
        stay = torch.ones(self.num_nodes, dtype=torch.bool)
        stay[rows] = False
        new_rows = torch.where(stay, torch.cumsum(stay, 0) - 1, -1)
        kept = new_rows.to(self.edges.tensor.dtype)
        ends = kept.index_select(0, self.edges.tensor.flatten()).view(-1, 2).numpy()
        graph = self._with_edges_at(np.flatnonzero((ends.T >= 0).all(axis=0)), ends)
        arrays, none = _arrays(self.take(torch.nonzero(stay).flatten())), self.patched[:0]
        graph = replace(graph, names=self.names.keep(stay.numpy()), arrays=arrays, patched=none)
        return graph, new_rows

    def neighbourhood(
        self, nodes: Tensor, depth: int, beside: Tensor | None = None, *, links: bool = False
    ) -> Neighbourhood:
        """Cuts out nodes and all within ``depth`` steps, in the time that these take.

        A network of ``depth`` layers gives the nodes exactly what it gives them on the whole
        graph. Nodes ``beside`` come with few of their direct neighbours, and with those that are
        there anyway. With ``links`` edges into the rim are there as well, as far as they lead from
        the part.
        """
        if beside is not None:
            inner, depth = self._reach(nodes, depth - 1)[0], 1
            nodes = torch.cat([torch.from_numpy(inner), beside])
        found, _, counts, near, via = self._reach(nodes, depth)
        if beside is not None:
            # Those behind the first keep few edges, but those that the other end keeps.
            owner = np.repeat(np.arange(counts.size), counts)
            rank = np.arange(owner.size) - (np.cumsum(counts) - counts)[owner]
            kept = np.zeros(self.num_edges, dtype=bool)  # from the system, as in reach
            kept[via[evenly(rank, counts[owner], FEW) | (owner < inner.size)] >> 1] = True
            stay = kept[via >> 1]
            near, via = near[stay], via[stay]
            counts = np.bincount(owner[stay], minlength=counts.size)
            there = np.zeros(found.size, dtype=bool)
            there[: counts.size] = there[near] = True
            found, near = found[there], (np.cumsum(there) - 1)[near]
        order = np.argsort(found)
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        pairs = np.stack([place[near], np.repeat(place[: counts.size], counts)])
        if links:
            back = near >= counts.size
            pairs = np.concatenate([pairs, pairs[::-1, back]], axis=1)
            via = np.concatenate([via, via[back] ^ 1])
        rows = torch.from_numpy(found[order])
        arcs = self.arcs_at(via, rows)
        part = Adjacency.from_edges(torch.from_numpy(pairs), order.size, links, arcs)
        return Neighbourhood(self, rows, replace(part, whole_degree=self.degree_of(rows)))

    def around(self, nodes: Tensor, depth: int) -> Tensor:
        """Lists nodes and all within ``depth`` steps, each once, the nearest first."""
        return torch.from_numpy(self._reach(nodes, depth)[0])

    def field(self, nodes: Tensor, depth: int) -> tuple[Tensor, tuple[Adjacency, ...]]:
        """Finds what ``depth`` layers need to give the rows of nodes, each once, exactly.

        Returns the nodes whose features are read, and a graph for every layer.
        """
        found, within, counts, near, via = self._reach(nodes, depth)
        rows = torch.from_numpy(found)
        degree, sources = self.degree_of(rows), torch.from_numpy(near)
        targets = torch.from_numpy(np.repeat(np.arange(counts.size), counts))
        graphs = []
        for inner, outer in zip(within[:-1].tolist(), within[1:].tolist(), strict=True):
            edges = slice(0, int(counts[:inner].sum()))
            own = torch.arange(inner)
            ends, arcs = (sources[edges], targets[edges]), self.arcs_at(via[edges], rows[:outer])
            graphs.append(Adjacency.between(*ends, own, degree[:outer], arcs))
        return rows, tuple(reversed(graphs))

    @contextmanager
    def at_hand(self) -> Iterator[None]:
        """Keeps features that are read from a file in memory until the end."""
        with ExitStack() as stack:
            for part in self.arrays.values():
                stack.enter_context(part.at_hand())
            yield

    def take(self, rows: Tensor) -> Features:
        """Copies the features of some nodes."""
        return self.arrays["dense"].take(rows) if "dense" in self.arrays else self.features[rows]

    def arcs_at(self, via: Array, rows: Tensor) -> Arcs | None:
        """Returns what edges that arrive at some ends weigh, in a part of the graph."""
        if self.arcs is None:
            return None
        leaving = self.arcs.tensor.flatten()  # each entry is of the arc that leaves an end
        weights = torch.stack([leaving[via ^ 1], leaving[via]], dim=1)
        return Arcs(weights, self.directed, self.strength[rows])

    def _reach(self, nodes: Tensor, depth: int) -> tuple[Array, Array, Array, Array, Array]:
        from evergraph.kernels import forward_star  # noqa: PLC0415 - numba is slow to import

        found: tuple[Array, Array, Array, Array, Array]
        chains, place = self._chains(), np.zeros(self.num_nodes, dtype=np.int32)
        degree = self._star.degree
        found = forward_star.reach(*chains, nodes.numpy(), depth, degree, place)
        return found

    def degree_of(self, rows: Tensor) -> Tensor:
        """Counts the neighbours of some nodes, ``[m]``."""
        star = self._star
        if star.num_ends == 2 * self.num_edges and star.degree.size >= self.num_nodes:
            return torch.from_numpy(star.degree[rows.numpy()]).long()
        return self.degree[rows]  # of an older graph nobody has counted them

    def has_edges(self, pairs: Tensor) -> Tensor:
        """Tells for each pair of rows ``[2, m]`` whether it is an edge."""
        low, high = pairs.min(dim=0).values.numpy(), pairs.max(dim=0).values.numpy()
        return torch.from_numpy(self.find_edges(low, high) >= 0)

    def find_edges(self, low: Array, high: Array) -> Array:
        """Returns the edge that joins each pair of rows, −1 without one."""
        if self.num_edges <= FEW_EDGES:
            index = _Index()
            index.cover(self._edge_keys())
            return index.find(high * self.num_nodes + low)
        from evergraph.kernels import forward_star  # noqa: PLC0415 - numba is slow to import

        found: Array = forward_star.find_edges(*self._chains(), low, high)
        return found

    def _edge_keys(self) -> Array:
        low, high = self.edges.array.T.astype(np.int64)
        keys: Array = high * self.num_nodes + low
        return keys

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


def stack_rows(above: Features, below: Features) -> Features:
    """Puts rows below others, in the form of those above."""
    return _features(_append(_arrays(above), below), above.shape[1])


def sparse(x: Tensor) -> SparseRows:
    """Stores a matrix, dense or sparse in any of PyTorch's layouts, as sparse rows."""
    entries = x.to_sparse(layout=torch.sparse_coo).coalesce()
    rows, columns = entries.indices()
    counts = torch.bincount(rows, minlength=x.shape[0])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), torch.cumsum(counts, 0)])
    return SparseRows(entries.values(), columns.contiguous(), indptr, x.shape[1])


def _with_room(array: Array, size: int, kind: Any, value: int | None = None) -> Array:
    """Returns the array with at least ``size`` entries, new ones of a value if there is one."""
    if array.size >= size and array.dtype == kind:
        return array
    grown = np.empty(size + size // 2, dtype=kind)
    grown[: array.size] = array
    if value is not None:
        grown[array.size :] = value
    return grown


def are_distinct(keys: Array) -> bool:
    """Tells whether no two numbers are the same; sorting is faster than NumPy's hashing."""
    ordered = np.sort(keys)
    return bool((ordered[1:] > ordered[:-1]).all())


def kind_of(names: Ids) -> type[Id] | None:
    """Tells whether names are text or whole numbers, by the first; None without any."""
    if not len(names):
        return None
    return str if isinstance(names[0], str) else int


def show(item: Any) -> str:
    """Quotes what a user gave, not all of it if it is long."""
    text = repr(item.item() if isinstance(item, np.generic) else item)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _keys(names: Ids) -> Array:
    if kind_of(names) is not str:
        return np.asarray(names, dtype=np.int64)
    digests = b"".join(blake2b(str(name).encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)
