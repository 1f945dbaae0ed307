"""A graph in parts on disk: a folder for each range of nodes, which one worker opens.

A part has the features, labels and names of its nodes, all edges into them, and their halo: the
nodes of other parts that these edges come from. Arrays are plain ``.npy`` files, mapped into memory
and read as they are needed, so that a part may be larger than the memory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from evergraph.errors import InputError
from evergraph.files import read_json
from evergraph.stream import Adjacency, Features, GraphView, LabelledNodes, Part, SparseRows
from evergraph.stream.adjacency import Arcs, Pattern
from evergraph.stream.board import Board
from evergraph.stream.shard import Shard, SharedRows
from evergraph.team import ALONE, Team
from evergraph.validation import Config, parse

Array = np.ndarray[Any, np.dtype[Any]]
CONTENTS = "partition.json"
SPARSE = ("values", "indices", "indptr")
#: Entries of an array that are checked or copied at a time.
BLOCK = 1 << 22


class Contents(Config):
    """What a partition says of itself.

    ``bounds`` are the first nodes of the parts, and the number of nodes. Nodes are in the order of
    the parts; where that is not the order in which they came, every part knows theirs.
    """

    schema_version: Literal[1] = 1
    bounds: list[int] = Field(min_length=2)
    num_features: int = Field(ge=0)
    sparse: bool = False
    text_names: bool = False
    classes: list[str] | list[int]
    scaling: str = "none"
    weighted: bool = False
    directed: bool = False

    @property
    def num_nodes(self) -> int:
        """Counts the nodes of all parts."""
        return self.bounds[-1]


def is_partition(folder: Path) -> bool:
    """Tells whether a folder holds a graph in parts."""
    return (folder / CONTENTS).is_file()


@dataclass(frozen=True)
class GraphPart:
    """One part, with the worker that opened it."""

    folder: Path  # of the whole partition
    contents: Contents
    team: Team
    number: int

    @classmethod
    def open(cls, folder: Path, team: Team, number: int | None = None) -> GraphPart:
        """Opens a worker's part; there must be as many workers as parts."""
        found = read_json(folder / CONTENTS, "cut the graph again with 'evergraph partition'")
        contents = parse(Contents, found)
        parts = len(contents.bounds) - 1
        if number is None and team.size != parts:
            raise InputError(
                f"Expected as many workers as '{folder}' has parts, {parts} (got {team.size}); set "
                f"--workers {parts} or cut the graph again."
            )
        return cls(folder, contents, team, team.rank if number is None else number)

    @property
    def size(self) -> int:
        """Counts the nodes of the part."""
        return self.contents.bounds[self.number + 1] - self.contents.bounds[self.number]

    def array(self, name: str, kind: str, *shape: int | None) -> Array:
        """Maps an array; a dimension of None may be anything."""
        path = part_folder(self.folder, self.number) / f"{name}.npy"
        try:
            found: Array = np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "not an array"
            raise InputError(
                f"Expected to read '{path}' (got: {reason}); copy the part to this machine, or cut "
                "the graph again."
            ) from None
        fits = len(shape) == found.ndim and found.dtype == kind
        if not fits or any(w not in (None, h) for w, h in zip(shape, found.shape, strict=True)):
            raise InputError(
                f"Expected '{path}' as {kind} {list(shape)} (got {found.dtype} "
                f"{list(found.shape)}); cut the graph again."
            )
        return found

    @cached_property
    def features(self) -> Features:
        """The features of the part's nodes, ``[size, d]``."""
        width = self.contents.num_features
        if not self.contents.sparse:
            return torch.from_numpy(self.array("features", "float32", self.size, width))
        indptr = self.array("feature_indptr", "int64", self.size + 1)
        indices = self.array("feature_indices", "int64", int(indptr[-1]))
        self._check(indices, width, "feature_indices")
        values = self.array("feature_values", "float32", indices.size)
        parts = [torch.from_numpy(array) for array in (values, indices, indptr)]
        return SparseRows(parts[0], parts[1], parts[2], width)

    @cached_property
    def shard(self) -> Shard:
        """The edges into the part's nodes."""
        indptr = self.array("indptr", "int64", self.size + 1)
        columns = self.array("columns", "int32", int(indptr[-1]))
        halo = self.array("halo", "int64", None)
        if indptr[0] or (np.diff(indptr) < 0).any() or (np.diff(halo) <= 0).any():
            raise InputError(f"Expected edges in order in '{self.folder}' (got damage); cut again.")
        self._check(columns, self.size + halo.size, "columns")
        self._check(halo, self.contents.num_nodes, "halo")
        strength = torch.from_numpy(self.array("strength", "float64", self.size + halo.size))
        others, sources = torch.from_numpy(halo), torch.from_numpy(columns)
        arcs, board = None, Board.of(self.team, torch.device("cpu"))
        if self.contents.weighted:
            weights = torch.from_numpy(self.array("arcs", "float32", columns.size, 2))
            arcs = Arcs(weights, self.contents.directed)
        if board is not None:  # all nodes are sources then
            sources, others = self._numbered(sources, others), others[:0]
            strength = self.team.gather(strength[: self.size])
        return Shard(
            self.team,
            torch.tensor(self.contents.bounds),
            Pattern(torch.from_numpy(indptr), sources),
            others,
            strength,
            arcs,
            part_folder(self.folder, self.number),
            board,
        )

    def _numbered(self, columns: Tensor, halo: Tensor) -> Tensor:
        """Returns the nodes that sources are in the whole graph, int32."""
        first = self.contents.bounds[self.number]
        nodes = torch.cat([torch.arange(first, first + self.size), halo])
        return nodes.int().index_select(0, columns)

    def _check(self, numbers: Array, limit: int, name: str) -> None:
        """Refuses numbers that point beyond what is there: compiled code trusts them."""
        for begin in range(0, numbers.size, BLOCK):
            block = numbers[begin : begin + BLOCK]
            if block.min() < 0 or block.max() >= limit:
                raise InputError(
                    f"Expected '{name}' below {limit} in part {self.number} of '{self.folder}' "
                    f"(got others); cut the graph again."
                )

    def labelled(self) -> LabelledNodes:
        """Returns the labelled nodes of all parts, in the order in which they came."""
        labels = torch.from_numpy(self.array("labels", "int64", self.size))
        nodes = torch.nonzero(labels >= 0).flatten()
        arrival = torch.from_numpy(self.array("arrival", "int64", self.size))
        told = torch.stack([nodes + self.shard.first, labels[nodes], arrival[nodes]], dim=1)
        told = self.team.gather(told)
        told = told[torch.argsort(told[:, 2])]
        return LabelledNodes(told[:, 0].contiguous(), told[:, 1].contiguous())

    def sources(self) -> Tensor:
        """Returns the nodes that the part's edges come from, ``[E]``."""
        columns = self.shard.pattern.columns
        numbered = columns if self.shard.board else self._numbered(columns, self.shard.halo)
        return numbered.long()

    def whole_graph(self) -> Adjacency:
        """Puts the edges of all parts together, which must be on this machine."""
        edges, weights = [], []
        for number, first in enumerate(self.contents.bounds[:-1]):
            part = replace(self, number=number, team=ALONE)
            edges.append(torch.stack([part.sources(), part.shard.dst + first]))
            weights += [] if part.shard.arcs is None else [part.shard.arcs.weights]
        arcs = Arcs(torch.cat(weights), self.contents.directed) if weights else None
        return Adjacency.from_edges(torch.cat(edges, dim=1), self.contents.num_nodes, arcs=arcs)

    def view(self, trained: LabelledNodes, large: int, *, whole: bool = False) -> GraphView:
        """Shows the part to a method; above so many nodes as a part of a large graph.

        A method that samples neighbours sees the edges of the ``whole`` graph, and fetches the
        features of other parts.
        """
        n, k = self.contents.num_nodes, len(self.contents.classes)
        none, features = torch.empty(0, dtype=torch.int64), self.features
        # The edges are those of the shard: this tells how many nodes there are.
        graph = Adjacency(n, none, none, torch.zeros(1, dtype=torch.int64).expand(n + 1))
        if whole:
            graph = self.whole_graph()
            if self.team.size > 1:
                own = features if isinstance(features, Tensor) else features.dense()
                features = cast(Tensor, SharedRows(own, self.shard))  # is read by its rows alone
        elif isinstance(features, Tensor):
            features = self._by_columns(features)
        return GraphView(
            task=0,
            features=features,
            adjacency=graph,
            train_nodes=trained.nodes,
            train_labels=trained.labels,
            num_classes=k,
            new_classes=tuple(range(k)),
            part=Part(None, n, 0) if n > large else None,
            shard=self.shard,
        )

    def _by_columns(self, features: Tensor) -> Tensor:
        """Lays features that memory may not hold column by column.

        A closed form reads some columns of all nodes again and again.
        """
        if 4 * features.numel() < self.shard.memory // 4:
            return features
        n, d = features.shape
        step = max(1, BLOCK // d)
        with TemporaryFile(dir=part_folder(self.folder, self.number), buffering=0) as file:
            for first in range(0, n, step):
                block = features[first : first + step].clone()  # read in order, and once
                for column, values in enumerate(block.t().contiguous().numpy()):
                    file.seek(4 * (column * n + first))
                    file.write(values)  # mapped, a page would be read before it is written
            return torch.from_numpy(np.memmap(file, np.float32, "r+", shape=(d, n))).t()

    def names(self, first: int, last: int) -> list[Any]:
        """Returns the names of some of the part's nodes."""
        if not self.contents.text_names:
            return list(self.array("names", "int64", self.size)[first:last].tolist())
        ends = self.array("name_ends", "int64", self.size + 1)[first : last + 1].tolist()
        text = self.array("names", "uint8", None)[ends[0] : ends[-1]].tobytes()
        return [text[a - ends[0] : b - ends[0]].decode() for a, b in pairwise(ends)]


def part_folder(folder: Path, number: int) -> Path:
    """Names the folder of a part."""
    return folder / f"part-{number:04d}"


def write_contents(folder: Path, contents: Contents) -> None:
    """Writes what a partition says of itself, last of all: without it there is none."""
    (folder / CONTENTS).write_text(json.dumps(contents.model_dump(), indent=1) + "\n", "utf-8")
