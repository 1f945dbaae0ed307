"""A graph in parts as PyG's stores, so that others' loaders read it (the extra ``pyg``).

Nodes are of the type ``node`` and edges of ``("node", "to", "node")``; ``x`` and ``y`` are their
features and labels. Everything is read from the mapped files when it is asked for.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from evergraph.distributed.parts import GraphPart
from evergraph.errors import InputError
from evergraph.team import ALONE

NODE, EDGE = "node", ("node", "to", "node")


def open_stores(folder: str | Path) -> tuple[PartFeatures, PartEdges]:
    """Opens the parts of a folder as a feature store and a graph store."""
    first = GraphPart.open(Path(folder), ALONE, 0)
    count = len(first.contents.bounds) - 1
    parts = [replace(first, number=number) for number in range(count)]
    return PartFeatures(parts), PartEdges(parts)


class PartFeatures(FeatureStore):
    """Features ``x`` and labels ``y`` of nodes, by their numbers."""

    def __init__(self, parts: list[GraphPart]) -> None:
        super().__init__()
        self.parts, self.bounds = parts, torch.tensor(parts[0].contents.bounds)

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        nodes = attr.index
        if nodes is None or isinstance(nodes, slice):
            nodes = torch.arange(int(self.bounds[-1]))[nodes or slice(None)]
        owner = torch.searchsorted(self.bounds, nodes, right=True) - 1
        found: Tensor | None = None
        for number in torch.unique(owner).tolist():
            here = torch.nonzero(owner == number).flatten()
            rows = self._of(self.parts[number], attr.attr_name, nodes[here] - self.bounds[number])
            found = rows.new_empty(nodes.numel(), *rows.shape[1:]) if found is None else found
            found[here] = rows
        return torch.empty(0) if found is None else found

    def _of(self, part: GraphPart, name: str, rows: Tensor) -> Tensor:
        if name == "y":
            return torch.from_numpy(part.array("labels", "int64", part.size)[rows.numpy()])
        some = part.features[rows]
        return some if isinstance(some, Tensor) else some.dense()

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        size = int(self.bounds[-1])
        return (size,) if attr.attr_name == "y" else (size, self.parts[0].contents.num_features)

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Lists what nodes have."""
        return [TensorAttr(NODE, name) for name in ("x", "y")]

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise _read_only()

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        raise _read_only()


class PartEdges(GraphStore):
    """The edges of all parts, sorted by the node that they arrive at."""

    def __init__(self, parts: list[GraphPart]) -> None:
        super().__init__()
        self.parts = parts

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.layout != EdgeLayout.CSC:
            return None
        pointer = [torch.zeros(1, dtype=torch.int64)]
        for part in self.parts:
            pointer.append(part.shard.pattern.indptr[1:] + pointer[-1][-1])
        return torch.cat([part.sources() for part in self.parts]), torch.cat(pointer)

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Lists the one kind of edges there is."""
        size = self.parts[0].contents.num_nodes
        return [EdgeAttr(EDGE, EdgeLayout.CSC, is_sorted=True, size=(size, size))]

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise _read_only()

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise _read_only()


def _read_only() -> InputError:
    return InputError("Expected to read a graph in parts (got a change); cut another one instead.")
