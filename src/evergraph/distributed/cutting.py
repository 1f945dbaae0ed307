"""Cutting a graph into parts on disk, in passes over its arrays that need little memory.

Edges are first thrown into buckets by the node they arrive at, each small enough to be sorted in
memory; features are copied in blocks.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.lib.format import open_memmap

from evergraph.distributed.parts import BLOCK, Array, Contents, part_folder, write_contents
from evergraph.errors import InputError, import_extra
from evergraph.stream.features import Features, Scale, Scaling, SparseRows
from evergraph.stream.shard import even_bounds

Order = Literal["auto", "arrival", "metis"]
#: Most edges of a bucket.
BUCKET = 1 << 23
#: Up to so many edges ``auto`` lets METIS order the nodes, for it holds all of them.
METIS_EDGES = 50_000_000
#: Rows of features that are copied at a time.
ROWS = 1 << 14


@dataclass(frozen=True)
class Source:
    """A graph to be cut: arrays in memory, or mapped from files."""

    features: Features | Array  # [n, d]
    pairs: Array  # [E, 2], undirected; loops and repetitions do not count
    labels: Array  # [n] int64, −1 for none
    classes: Sequence[Any]
    names: Sequence[Any] | Array | None = None  # None: the numbers of the nodes
    arcs: Array | None = None  # [E, 2] float32, what edges weigh there and back
    directed: bool = False

    @property
    def num_nodes(self) -> int:
        """Counts the nodes."""
        return int(self.features.shape[0])


def cut(
    source: Source, folder: Path, parts: int, *, order: Order = "auto", scaling: Scaling = "none"
) -> Contents:
    """Writes a graph in so many parts; the folder must not exist, and is whole or not there."""
    if parts < 1 or parts > max(source.num_nodes, 1):
        raise InputError(
            f"Expected '--parts' from 1 to the number of nodes, {source.num_nodes} (got {parts})."
        )
    if folder.exists():
        raise InputError(f"Expected '{folder}' not to exist yet (it does); choose another folder.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    passing = folder.with_name(f".{folder.name}.cutting")
    shutil.rmtree(passing, ignore_errors=True)  # of a process that was killed
    try:
        contents = _Cut(source, passing, parts, order).write(scaling)
        passing.rename(folder)
    except OSError as error:
        raise InputError(
            f"Expected to write '{folder}' (got: {error.strerror}); free some room or choose "
            "another folder."
        ) from None
    finally:
        shutil.rmtree(passing, ignore_errors=True)
    return contents


class _Cut:
    """One cut: where every node goes, and the passes that bring it there."""

    def __init__(self, source: Source, folder: Path, parts: int, order: Order) -> None:
        self.source, self.folder, n = source, folder, source.num_nodes
        degree = np.zeros(n, dtype=np.int64)
        for pairs, _ in self._edges():
            degree += np.bincount(pairs.ravel(), minlength=n)
        self.order = _order(source, parts, order)  # [n] the node that comes to each place
        self.place = None
        if self.order is not None:
            self.place = np.empty_like(self.order)
            self.place[self.order] = np.arange(n)
            degree = degree[self.order]
        pointer = torch.from_numpy(np.concatenate([[0], np.cumsum(degree)]))
        self.bounds = even_bounds(pointer, parts).tolist()
        buckets = max(parts, -(-int(pointer[-1]) // BUCKET))
        inner = even_bounds(pointer, buckets).tolist()
        self.buckets = sorted({*self.bounds, *inner})

    def _edges(self) -> Iterator[tuple[Array, Array | None]]:
        """Yields pairs and what they weigh, block by block, without loops."""
        pairs, arcs = self.source.pairs, self.source.arcs
        for begin in range(0, pairs.shape[0], BLOCK):
            block = np.asarray(pairs[begin : begin + BLOCK])
            stay = block[:, 0] != block[:, 1]
            weights = None if arcs is None else np.asarray(arcs[begin : begin + BLOCK])[stay]
            yield block[stay].astype(np.int64), weights

    def write(self, scaling: Scaling) -> Contents:
        """Writes everything."""
        source = self.source
        for number in range(len(self.bounds) - 1):
            part_folder(self.folder, number).mkdir(parents=True)
        self._write_edges()
        kind = self._write_features(scaling)
        text = self._write_nodes()
        contents = Contents(
            bounds=self.bounds,
            num_features=int(source.features.shape[1]),
            sparse=isinstance(source.features, SparseRows),
            text_names=text,
            classes=list(source.classes),
            scaling=kind,
            weighted=source.arcs is not None,
            directed=source.directed,
        )
        write_contents(self.folder, contents)
        return contents

    def _path(self, number: int, name: str) -> Path:
        return part_folder(self.folder, number) / f"{name}.npy"

    def _save(self, number: int, name: str, array: Array) -> None:
        np.save(self._path(number, name), array, allow_pickle=False)

    def _throw(self) -> None:
        """Throws edges, in both directions, into the files of their buckets."""
        record = _record(self.source.arcs is not None)
        with ExitStack() as stack:
            files = [
                stack.enter_context(open(self.folder / f"bucket-{b}", "wb"))
                for b in range(len(self.buckets) - 1)
            ]
            for pairs, weights in self._edges():
                ends = pairs if self.place is None else self.place[pairs]
                for back in (False, True):
                    edges = np.empty(ends.shape[0], dtype=record)
                    edges["src"], edges["dst"] = ends[:, int(back)], ends[:, int(not back)]
                    if weights is not None:
                        edges["arcs"] = weights[:, ::-1] if back else weights
                    bucket = np.searchsorted(self.buckets, edges["dst"], side="right") - 1
                    edges = edges[np.argsort(bucket, kind="stable")]
                    counts = np.bincount(bucket, minlength=len(files))
                    parts = np.split(edges, np.cumsum(counts)[:-1])
                    for file, part in zip(files, parts, strict=True):
                        part.tofile(file)

    def _write_edges(self) -> None:
        """Sorts every bucket, then writes the edges of the parts with their halos."""
        n, weighted = self.source.num_nodes, self.source.arcs is not None
        self._throw()
        degree, strength = np.zeros(n, dtype=np.int64), np.zeros(n)
        for number, (first, last) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            folder = part_folder(self.folder, number)
            with open(folder / "sources", "wb") as file, open(folder / "weights", "wb") as beside:
                for bucket in range(self.buckets.index(first), self.buckets.index(last)):
                    path = self.folder / f"bucket-{bucket}"
                    edges = np.fromfile(path, dtype=_record(weighted))
                    path.unlink()
                    edges = edges[np.lexsort((edges["src"], edges["dst"]))]
                    again = (edges["src"][1:] == edges["src"][:-1]) & (
                        edges["dst"][1:] == edges["dst"][:-1]
                    )
                    edges = edges[np.concatenate([[True], ~again])] if edges.size else edges
                    edges["src"].tofile(file)
                    counts = np.bincount(edges["dst"] - first, minlength=last - first)
                    degree[first:last] += counts
                    if weighted:
                        edges["arcs"].tofile(beside)
                        weight = edges["arcs"].sum(axis=1) / (edges["arcs"] > 0).sum(axis=1)
                        strength[first:last] += np.bincount(
                            edges["dst"] - first, weight, minlength=last - first
                        )
        for number in range(len(self.bounds) - 1):
            self._write_part(number, degree, strength if weighted else degree)

    def _write_part(self, number: int, degree: Array, strength: Array) -> None:
        """Numbers the sources of a part's edges as a shard does."""
        first, last = self.bounds[number], self.bounds[number + 1]
        folder = part_folder(self.folder, number)
        indptr = np.concatenate([[0], np.cumsum(degree[first:last])])
        sources = _mapped(folder / "sources", np.int64)
        there = np.zeros(degree.size, dtype=bool)
        for begin in range(0, sources.size, BLOCK):
            there[sources[begin : begin + BLOCK]] = True
        there[first:last] = False
        halo = np.flatnonzero(there)
        columns = open_memmap(self._path(number, "columns"), "w+", np.int32, (sources.size,))
        for begin in range(0, sources.size, BLOCK):
            block = sources[begin : begin + BLOCK]
            own = (block >= first) & (block < last)
            outside = last - first + np.searchsorted(halo, block)
            columns[begin : begin + BLOCK] = np.where(own, block - first, outside)
        columns.flush()
        self._save(number, "indptr", indptr)
        self._save(number, "halo", halo)
        everyone = np.concatenate([np.arange(first, last), halo])
        self._save(number, "strength", strength[everyone].astype(np.float64))
        if self.source.arcs is not None:
            self._save(number, "arcs", _mapped(folder / "weights", np.float32).reshape(-1, 2))
        (folder / "sources").unlink()
        (folder / "weights").unlink()

    def _nodes(self, first: int, last: int) -> Array:
        """Returns the nodes of some places, as they are numbered in the source."""
        return np.arange(first, last) if self.order is None else self.order[first:last]

    def _write_features(self, scaling: Scaling) -> str:
        """Copies features, scaled; returns how."""
        features, scale = self.source.features, None
        if scaling != "none":
            n = self.source.num_nodes
            some = np.arange(0, n, max(1, -(-n // 4096)))
            scale = Scale.fit(_rows(features, some), scaling)
        for number, (first, last) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            if isinstance(features, SparseRows):
                rows = _rows(features, self._nodes(first, last))
                rows = rows if scale is None else scale.apply(rows)[0]
                assert isinstance(rows, SparseRows)
                for name in ("values", "indices", "indptr"):
                    self._save(number, f"feature_{name}", getattr(rows, name).numpy())
                continue
            shape = (last - first, features.shape[1])
            out = open_memmap(self._path(number, "features"), "w+", np.float32, shape)
            for begin in range(first, last, ROWS):
                end = min(begin + ROWS, last)
                block = _rows(features, self._nodes(begin, end))
                block = block if scale is None else scale.apply(block)[0]
                assert isinstance(block, torch.Tensor)
                out[begin - first : end - first] = block.numpy()
            out.flush()
        return "none" if scale is None else scale.kind

    def _write_nodes(self) -> bool:
        """Writes labels, names and order of arrival; tells whether names are text."""
        names = self.source.names
        text = names is not None and len(names) > 0 and isinstance(names[0], str)
        for number, (first, last) in enumerate(zip(self.bounds, self.bounds[1:], strict=False)):
            nodes = self._nodes(first, last)
            self._save(number, "labels", np.asarray(self.source.labels[nodes], dtype=np.int64))
            self._save(number, "arrival", nodes)
            if names is None:
                self._save(number, "names", nodes)
            elif not text:
                self._save(number, "names", np.asarray(names, dtype=np.int64)[nodes])
            else:
                words = [str(names[node]).encode() for node in nodes.tolist()]
                ends = np.cumsum([0, *map(len, words)])
                self._save(number, "name_ends", ends)
                self._save(number, "names", np.frombuffer(b"".join(words), dtype=np.uint8))
        return text


def _record(weighted: bool) -> Any:
    fields: list[Any] = [("src", np.int64), ("dst", np.int64)]
    return np.dtype([*fields, ("arcs", np.float32, 2)] if weighted else fields)


def _mapped(path: Path, kind: Any) -> Array:
    if not path.stat().st_size:
        return np.empty(0, dtype=kind)
    return np.memmap(path, dtype=kind, mode="r")


def _rows(features: Features | Array, nodes: Array) -> Features:
    """Copies some rows."""
    if isinstance(features, SparseRows):
        return features[torch.from_numpy(nodes)]
    if isinstance(features, torch.Tensor):
        return features.index_select(0, torch.from_numpy(nodes))
    return torch.from_numpy(np.asarray(features[nodes], dtype=np.float32))


def _order(source: Source, parts: int, order: Order) -> Array | None:
    """Returns the nodes in the order of their parts; None leaves them as they came."""
    few = parts > 1 and source.pairs.shape[0] <= METIS_EDGES
    if order == "arrival" or (order == "auto" and not (few and _has_metis())):
        return None
    metis = import_extra("pymetis", "scale", "METIS, which orders nodes")
    ends = np.concatenate([source.pairs, source.pairs[:, ::-1]])
    ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
    pointer = np.searchsorted(ends[:, 0], np.arange(source.num_nodes + 1))
    graph = metis.CSRAdjacency(adj_starts=pointer, adjacent=ends[:, 1])
    _, membership = metis.part_graph(parts, graph)
    found: Array = np.argsort(membership, kind="stable")
    return found


def _has_metis() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - asked once

    return find_spec("pymetis") is not None
