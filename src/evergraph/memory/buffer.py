"""ReplayBuffer: what is kept of earlier tasks, within a budget shared by class.

A :class:`Selector` chooses the nodes of each class from a :class:`SelectionPool`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.kernels.ops import mean_pairwise_distance
from evergraph.memory.influence import influence_norms
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features
from evergraph.stream.tasks import LabelledNodes
from evergraph.team import ALONE, Team

#: Draws that a ball's size is estimated by: the error is one over the root of their number.
SKETCHES = 128


class ReplayBuffer:
    """Node ids with their labels, per class in order of preference.

    What a method keeps beside them follows the nodes that leave or move, and is the method's to
    renew after a selection.
    """

    def __init__(self, size: int) -> None:
        self.size = size  # |B|, the most nodes it ever holds
        self.picks = {}
        self.rows: dict[str, Tensor] = {}  # kept of each of nodes, [b, ...] by name
        self.neighbours: dict[str, Tensor] = {}  # nodes kept beside each of them, [b, k] by name
        self.unlabelled = torch.empty(0, dtype=torch.int64)  # nodes kept without their labels, [m]
        self.train_counts: dict[int, int] = {}  # of every class so far

    @property
    def picks(self) -> Mapping[int, Tensor]:
        """The kept nodes of each class, best first. Assign a whole mapping to change them."""
        return self._picks

    @picks.setter
    def picks(self, picks: Mapping[int, Tensor]) -> None:
        self._picks = dict(picks)
        empty = [torch.empty(0, dtype=torch.int64)]
        labels = [torch.full_like(nodes, label) for label, nodes in picks.items()]
        self.nodes = torch.cat(list(picks.values()) or empty)  # [b], class by class
        self.labels = torch.cat(labels or empty)  # [b]

    def __len__(self) -> int:
        return self.nodes.numel()

    @property
    def labelled(self) -> LabelledNodes:
        """The kept nodes with their labels."""
        return LabelledNodes(self.nodes, self.labels)

    def update(self, pool: SelectionPool, selector: Selector, team: Team = ALONE) -> None:
        """Selects for every class in the pool; other classes keep the prefix that fits.

        Budgets are recomputed from all training nodes counted so far. When a class comes
        again, the pool must hold its kept nodes as well as the new ones. The workers of a team
        share the classes.
        """
        device = pool.nodes.device
        fresh = pool.labels[~torch.isin(pool.nodes, self.nodes.to(device))]
        labels = torch.unique(pool.labels).tolist()
        counts = dict(self.train_counts)
        for label in labels:
            counts[label] = counts.get(label, 0) + int((fresh == label).sum())
        budgets = class_budgets(counts, self.size)  # refuses before anything is changed
        self.train_counts = counts
        picks = {label: nodes.to(device) for label, nodes in self.picks.items()}
        for number, label in enumerate(labels):
            if number % team.size == team.rank:
                available = int((pool.labels == label).sum())
                picks[label] = selector.rank(pool, label, min(budgets[label], available))
        for number, label in enumerate(labels):
            picks[label] = team.tell({"nodes": picks.get(label)}, number % team.size)["nodes"]
        self.picks = {label: picks[label][: budgets[label]] for label in sorted(picks)}

    def trim(self, stay: Tensor) -> None:
        """Drops nodes; ``stay`` marks those of :attr:`nodes` that are kept, ``[b]``."""
        parts = torch.split(stay, [nodes.numel() for nodes in self.picks.values()])
        self.picks = {
            label: nodes[part.to(nodes.device)]
            for (label, nodes), part in zip(self.picks.items(), parts, strict=True)
        }
        for kept in (self.rows, self.neighbours):
            kept |= {name: value[stay.to(value.device)] for name, value in kept.items()}

    def renumber(self, new_rows: Tensor) -> None:
        """Follows nodes to new rows, ``[n]``; none of the kept ones may be gone.

        Where a neighbour is gone the node itself takes its place, which joins nothing; nodes
        without a label that are gone are dropped.
        """
        self.picks = {label: moved(nodes, new_rows) for label, nodes in self.picks.items()}
        for name, near in self.neighbours.items():
            self.neighbours[name] = moved(near, new_rows, self.nodes[:, None].to(near.device))
        rows = moved(self.unlabelled, new_rows, torch.full_like(self.unlabelled, -1))
        self.unlabelled = rows[rows >= 0]

    def relabel(self, number: Tensor) -> None:
        """Gives classes other numbers, ``[k]``; those that are gone (−1) must have no node."""
        new = number.tolist()
        kept = {new[label]: nodes for label, nodes in self.picks.items() if new[label] >= 0}
        self.picks = kept
        counts = self.train_counts.items()
        self.train_counts = {new[label]: count for label, count in counts if new[label] >= 0}

    def memory_bytes(self) -> int:
        """Counts the bytes of ids, labels and all that is kept beside them."""
        beside = (self.unlabelled, *self.rows.values(), *self.neighbours.values())
        return self.nodes.nbytes + self.labels.nbytes + sum(value.nbytes for value in beside)

    def state_dict(self) -> dict[str, Any]:
        """Returns what :meth:`load_state_dict` needs: tensors and plain numbers."""
        alone = {"unlabelled": self.unlabelled} if self.unlabelled.numel() else {}
        return {
            **alone,
            "picks": {str(label): nodes for label, nodes in self.picks.items()},
            "train_counts": {str(label): count for label, count in self.train_counts.items()},
            "rows": dict(self.rows),
            "neighbours": dict(self.neighbours),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.picks = {int(label): nodes for label, nodes in state["picks"].items()}
        self.train_counts = {int(key): int(count) for key, count in state["train_counts"].items()}
        self.rows = dict(state.get("rows", {}))  # 0.1.0 kept none here
        self.neighbours = dict(state.get("neighbours", {}))
        self.unlabelled = state.get("unlabelled", torch.empty(0, dtype=torch.int64))
        if any(len(value) != len(self) for value in (self.rows | self.neighbours).values()):
            raise ValueError("rows of other nodes")
        if self.unlabelled.ndim != 1 or self.unlabelled.dtype != torch.int64:
            raise ValueError("nodes that are no list of numbers")


def carried_over(before: Tensor, rows: Tensor | None, now: Tensor, fresh: Tensor) -> Tensor:
    """Returns what was kept of nodes, ``rows`` of ``before``, and for others of ``now`` the fresh.

    ``fresh`` has a row for each node of ``now`` that is not among ``before``, in their order.
    """
    if rows is None or not before.numel():
        return fresh
    out = fresh.new_empty(now.numel(), *rows.shape[1:])
    order = torch.argsort(before)
    known = torch.isin(now, before)
    out[known] = rows[order[torch.searchsorted(before[order], now[known])]].to(fresh)
    out[~known] = fresh
    return out


def neighbourhood_bytes(
    features: Features, graph: Adjacency, nodes: Tensor, depth: int, joined: Sequence[Tensor] = ()
) -> int:
    """Counts what a network of ``depth`` layers reads to give the rows of some nodes.

    That is an id and the features of every node within so many steps, and two ids for every
    edge on the way, undirected. ``joined`` are nodes that may become neighbours of the nodes.
    """
    read = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    read[nodes] = True
    edges = 0
    for step in range(depth):
        inner, read = read, read.clone()
        heard = inner[graph.dst]
        read[graph.src[heard]] = True
        for others in joined if step == 0 else ():
            read[others.to(graph.device)] = True
        # An edge between two nodes that both hear is there in both directions.
        edges = int((heard & (~inner[graph.src] | (graph.src < graph.dst))).sum())
    rows = torch.nonzero(read).flatten()
    ids = 8 * rows.numel() + 16 * edges
    if isinstance(features, Tensor):
        return ids + rows.numel() * features.shape[1] * features.element_size()
    part = features[rows]
    return ids + part.values.nbytes + part.indices.nbytes + part.indptr.nbytes


def moved(nodes: Tensor, new_rows: Tensor, gone: Tensor | None = None) -> Tensor:
    """Looks up the new rows of nodes of any shape; ``gone`` replaces those without one."""
    outside = bool(((nodes < 0) | (nodes >= new_rows.numel())).any())
    rows = nodes if outside else new_rows.to(nodes.device)[nodes]
    if outside or (gone is None and bool((rows < 0).any())):
        raise InputError(
            f"Expected kept nodes among the {new_rows.numel()} of the graph (got others); the "
            "state is damaged, so load an earlier generation of it."
        )
    return rows if gone is None else torch.where(rows < 0, gone, rows)


def class_budgets(train_counts: Mapping[int, int], size: int) -> dict[int, int]:
    r"""Shares the buffer among classes (section 4.1 of the paper, decision 0006).

    :math:`e_l = \min(|train_l|, \max(1, \lfloor |B| \cdot |train_l| / \sum |train| \rfloor))`;
    what the rounding leaves is not given out. While the total exceeds ``size``, the largest
    class gives one up, the lowest class on ties.
    """
    if size < len(train_counts):
        raise InputError(
            f"Expected 'buffer_size' of at least the number of classes, {len(train_counts)} "
            f"(got {size}); raise it."
        )
    total = sum(train_counts.values())
    budgets = {
        label: min(count, max(1, size * count // max(total, 1)))
        for label, count in train_counts.items()
    }
    while sum(budgets.values()) > size:
        largest = max(sorted(budgets), key=lambda label: budgets[label])
        budgets[largest] -= 1
    return budgets


@dataclass(frozen=True)
class SelectionPool:
    """The training nodes that may be kept, seen through the model just trained.

    ``nodes`` ascend; every label in ``labels`` may be read.
    """

    nodes: Tensor  # [m]
    labels: Tensor  # [m]
    h: Tensor  # [m, d] embeddings
    features: Features  # [n, f] of all nodes seen
    adjacency: Adjacency  # the graph the embeddings were computed on
    generator: torch.Generator  # on the CPU
    logits: Tensor | None = None  # [m, k] what the head makes of ReLU(h)
    kept: LabelledNodes | None = None  # what the buffer holds already

    @cached_property
    def mean_distance(self) -> Tensor:
        """Averages the distance between embeddings of distinct nodes, of whatever class."""
        return mean_pairwise_distance(self.h)

    @cached_property
    def influence(self) -> Tensor:
        """Computes every node's influence on the head, ``[m]``; see :mod:`.influence`."""
        if self.logits is None:
            raise InputError(
                "Expected 'logits' in the pool for selector 'im' (got none); pass them."
            )
        return influence_norms(self.h, self.logits, self.labels)

    @cached_property
    def near(self) -> Tensor:
        """Estimates how many of the pool's nodes are within two steps of each, ``[m]``."""
        return ball_sizes(self.adjacency, self.nodes, 2, self.generator)

    def rows_of(self, label: int) -> Tensor:
        """Returns the positions of one class's nodes in the pool."""
        return torch.nonzero(self.labels == label).flatten()


def ball_sizes(graph: Adjacency, nodes: Tensor, hops: int, generator: torch.Generator) -> Tensor:
    """Estimates how many of some nodes are within so many steps of each of them, ``[m]``.

    Every node draws exponential numbers. The smallest in a ball of s nodes is exponential of rate
    s, so that balls are never listed: a step takes the smallest of the neighbours (Cohen, 1997).
    """
    total = torch.zeros(nodes.numel(), dtype=torch.float64, device=nodes.device)
    for _ in range(SKETCHES):
        drawn = torch.rand(nodes.numel(), dtype=torch.float64, generator=generator)
        least = total.new_full((graph.num_nodes,), torch.inf)
        least[nodes] = -torch.log1p(-drawn).to(nodes.device)
        for _ in range(hops):
            least = least.scatter_reduce(0, graph.dst, least[graph.src], "amin")
        total += least[nodes]
    return ((SKETCHES - 1) / total).clamp_(min=1)


class Selector(Protocol):
    """Ranks the nodes of one class by how much they are worth keeping."""

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Returns ``budget`` node ids of class ``label``, best first, ties to the lowest id.

        ``budget`` never exceeds the number of the class's nodes in the pool. A smaller
        budget must give a prefix, unless the selector is registered as one that cannot.
        """
        ...
