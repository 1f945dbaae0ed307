"""TaskStream: a graph that grows task by task, and what a method may see of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from evergraph.device import make_generator
from evergraph.errors import InputError
from evergraph.stream.adjacency import Adjacency, OnDevice
from evergraph.stream.features import Features, Scale, leanest, normalise_rows
from evergraph.stream.graph import Graph
from evergraph.stream.protocol import (
    REMEDIES,
    Protocol,
    Split,
    check_train,
    choose_classes,
    split_nodes,
)
from evergraph.stream.shard import Shard


@dataclass(frozen=True)
class LabelledNodes(OnDevice):
    """Node ids with their labels, both ``[m]``."""

    nodes: Tensor
    labels: Tensor

    def take(self, rows: Tensor) -> LabelledNodes:
        """Returns some of them."""
        return LabelledNodes(self.nodes[rows], self.labels[rows])


@dataclass(frozen=True)
class Part(OnDevice):
    """Says which part of a graph is shown."""

    nodes: Tensor | None  # [n_t] int64, ascending; None: all of it
    num_nodes: int  # of the whole graph
    num_old: int  # of these, those that were there at the last task: the first ones

    def rows(self, nodes: Tensor) -> Tensor:
        """Finds nodes of the whole graph, which must be there."""
        return nodes if self.nodes is None else torch.searchsorted(self.nodes, nodes)


@dataclass(frozen=True)
class GraphView(OnDevice):
    """Everything that a method may see at one task: nodes ``[0, n_t)`` and the edges among them.

    Only the labels of the current training nodes are in the object. ``grants`` holds what a
    method has declared that it needs beyond that.
    """

    task: int
    features: Features  # [n_t, d]
    adjacency: Adjacency
    train_nodes: Tensor  # [m] int64
    train_labels: Tensor  # [m] int64
    num_classes: int  # classes seen so far are 0 .. num_classes - 1
    new_classes: tuple[int, ...]
    num_old: int = 0  # nodes that were there at the last task: the first ones
    grants: Mapping[str, LabelledNodes] = field(default_factory=dict)
    part: Part | None = None  # None: the whole graph
    shard: Shard | None = None  # what this worker has of it, where several share one

    @property
    def num_nodes(self) -> int:
        """Counts the nodes seen so far."""
        return self.adjacency.num_nodes

    @property
    def num_features(self) -> int:
        """Counts feature columns."""
        return self.features.shape[1]

    @property
    def granted_nodes(self) -> Tensor:
        """Training nodes of earlier tasks, only for a method that was granted them."""
        return self._grant("old_labels").nodes

    @property
    def granted_labels(self) -> Tensor:
        """Labels of :attr:`granted_nodes`."""
        return self._grant("old_labels").labels

    @property
    def validation(self) -> LabelledNodes:
        """Validation nodes of this task, only for a method that was granted them."""
        return self._grant("validation")

    @property
    def unjudged(self) -> Tensor:
        """Nodes without a label that nobody is judged on; none unless they were granted."""
        given = self.grants.get("unjudged")
        return self.train_nodes[:0] if given is None else given.nodes

    def unlabelled(self, num_classes: int) -> GraphView:
        """Returns the same graph without a label, when only so many classes are known."""
        none = self.train_nodes[:0]
        return replace(
            self,
            train_nodes=none,
            train_labels=none,
            num_classes=num_classes,
            new_classes=(),
            grants={},
        )

    def _grant(self, need: str) -> LabelledNodes:
        if need not in self.grants:
            raise AttributeError(f"'{need}' was not granted: the method does not declare it")
        return self.grants[need]


@dataclass(frozen=True)
class Task:
    """One step of the stream: the classes first seen in it and the split of its nodes."""

    index: int
    classes: tuple[int, ...]  # those that are new; none where all are known
    num_classes: int  # classes seen once this task has come
    num_nodes: int  # nodes seen once this task has come
    num_edges: int  # undirected edges seen once this task has come
    train_nodes: Tensor
    validation_nodes: Tensor
    test_nodes: Tensor


class TaskStream:
    """Turns a graph into tasks under a protocol.

    Nodes are ordered by (task, original id) and edges by the task in which they come, so that
    all that is seen at task ``t`` is a prefix of every array. Classes are numbered in order of
    arrival. A task is a few classes, a time step of a graph that has some, or what ``arrival.py``
    makes of blurred borders, batches and parts.

    Args:
        graph: The whole graph.
        protocol: Stream, classes, order and split.
        seed: Draws the split unless the protocol fixes ``split_seed``.
    """

    def __init__(self, graph: Graph, protocol: Protocol, seed: int = 0) -> None:
        self.graph_name = graph.name
        self.fingerprint = graph.fingerprint
        self.protocol = protocol
        in_time = protocol.kind == "time"
        if in_time and graph.time is None:
            raise InputError(
                f"Expected 'time' in '{graph.name}' for a time stream (got none); store the step "
                "in which each node comes, or choose --stream class."
            )
        kept = choose_classes(graph, protocol)  # original labels, in the order of the protocol
        number = torch.full((len(graph.class_names),), -1)
        number[torch.tensor(kept)] = torch.arange(len(kept))
        nodes = torch.nonzero(number[graph.y] >= 0).flatten()
        labels = number[graph.y[nodes]]
        steps = graph.time[nodes] if in_time and graph.time is not None else None
        fixed = seed if protocol.split_seed is None else protocol.split_seed
        split = split_nodes(
            labels, nodes, kept, protocol, make_generator(fixed, "split"), steps=steps
        )
        names = [graph.class_names[label] for label in kept]
        if not in_time:
            check_train(labels[split.train], names, graph.name)
        num_tasks = -(-len(kept) // protocol.classes_per_task)
        self.step_names: tuple[str, ...] = ()
        if protocol.kind == "class":
            come = labels // protocol.classes_per_task
        elif steps is not None:
            come, num_tasks, self.step_names = steps, len(graph.times), graph.times
        else:
            from evergraph.stream.arrival import arrivals  # noqa: PLC0415 - few streams need it

            come, self.step_names = arrivals(
                graph,
                nodes,
                labels,
                names=names,
                train=split.train,
                protocol=protocol,
                seed=fixed,
            )
            num_tasks = len(self.step_names)
        # Classes are numbered by the task of their first training node, then as the protocol has
        # them.
        first = torch.full((len(kept),), num_tasks)
        first = first.scatter_reduce(0, labels[split.train], come[split.train], "amin")
        by_arrival = torch.argsort(first, stable=True)
        self.class_names = tuple(names[label] for label in by_arrival.tolist())
        # A stable sort by task keeps the original ids ascending inside a task.
        order = torch.argsort(come, stable=True)
        self.original_ids = nodes[order]
        self.labels = torch.argsort(by_arrival)[labels[order]]
        features = leanest(graph.x[self.original_ids])
        self.features = normalise_rows(features) if protocol.features == "row-sum" else features
        task_of, place = come[order], torch.argsort(order)
        self.edges, edge_task = _order_edges(graph, self.original_ids, task_of, in_time)
        parts = Split(*(torch.sort(place[part]).values for part in split))
        self.tasks = self._make_tasks(parts, task_of, edge_task, num_tasks)
        if protocol.feature_scaling != "none":
            seen = self.features[: self.tasks[0].num_nodes]
            self.features = Scale.fit(seen, protocol.feature_scaling).apply(self.features)[0]

    @property
    def num_tasks(self) -> int:
        """Counts the tasks, ``T``."""
        return len(self.tasks)

    @property
    def num_classes(self) -> int:
        """Counts the classes of all tasks."""
        return len(self.class_names)

    def view(
        self,
        index: int,
        needs: frozenset[str] = frozenset(),
        device: torch.device | str = "cpu",
    ) -> GraphView:
        """Returns what a method with the given needs sees at task ``index``, on a device."""
        task = self.tasks[index]
        edges = self.edges[:, : task.num_edges].to(device)  # sorted there
        both = torch.cat([edges, edges.flip(0)], dim=1)
        grants = {}
        if "old_labels" in needs:
            old = [earlier.train_nodes for earlier in self.tasks[:index]]
            nodes = torch.cat(old) if old else torch.empty(0, dtype=torch.int64)
            grants["old_labels"] = self._labelled(nodes)
        if "validation" in needs:
            grants["validation"] = self._labelled(task.validation_nodes)
        if "unjudged" in needs:
            parts = [(t.train_nodes, t.validation_nodes, t.test_nodes) for t in self.tasks]
            used = torch.cat([nodes for part in parts for nodes in part])
            free = torch.arange(task.num_nodes)
            free = free[~torch.isin(free, used)]
            grants["unjudged"] = LabelledNodes(free, torch.full_like(free, -1))
        view = GraphView(
            task=index,
            features=self.features[: task.num_nodes],
            adjacency=Adjacency.from_edges(both, task.num_nodes),
            train_nodes=task.train_nodes,
            train_labels=self.labels[task.train_nodes],
            num_classes=task.num_classes,
            new_classes=task.classes,
            num_old=self.tasks[index - 1].num_nodes if index else 0,
            grants=grants,
        )
        return view.to(device)

    def evaluation(self, index: int) -> LabelledNodes:
        """Returns the nodes that task ``index`` is evaluated on; no method ever sees them."""
        task = self.tasks[index]
        if self.protocol.evaluate == "validation":
            return self._labelled(task.validation_nodes)
        return self._labelled(task.test_nodes)

    def _labelled(self, nodes: Tensor) -> LabelledNodes:
        return LabelledNodes(nodes, self.labels[nodes])

    def _make_tasks(
        self, split: Split, task_of: Tensor, edge_task: Tensor, num_tasks: int
    ) -> tuple[Task, ...]:
        kinds = {"train": "lower test_share", self.protocol.evaluate: "raise test_share"}
        if self.protocol.validation_fraction and self.protocol.kind != "time":
            kinds["validation"] = "raise validation_fraction"
        tasks, seen = [], 0
        for index in range(num_tasks):
            parts = Split(*(part[task_of[part] == index] for part in split))
            for kind, remedy in reversed(kinds.items()):
                if not getattr(parts, kind).numel():
                    raise InputError(
                        f"Expected task {index} of '{self.graph_name}' to have a {kind} node (got "
                        f"0); {remedy} or {REMEDIES[self.protocol.kind]}."
                    )
            known = max(seen, int(self.labels[parts.train].max()) + 1)
            num_nodes, num_edges = int((task_of <= index).sum()), int((edge_task <= index).sum())
            new = tuple(range(seen, known))
            tasks.append(Task(index, new, known, num_nodes, num_edges, *parts))
            seen = known
        return tuple(tasks)


def _order_edges(
    graph: Graph, order: Tensor, task_of: Tensor, in_time: bool
) -> tuple[Tensor, Tensor]:
    """Renames edge ends to stream order and sorts by the task in which edges come.

    That is the task of the later end, or the edge's own time step. Returns the edges ``[2, E]``,
    those of a task by their later end, and the task of each, ``[E]``.
    """
    position = torch.full((graph.num_nodes,), -1)
    position[order] = torch.arange(order.numel())
    ends = position[graph.edges]
    there = (ends >= 0).all(dim=0)
    ends = ends[:, there]
    first, second = ends.min(dim=0).values, ends.max(dim=0).values
    by_arrival = torch.argsort(second * order.numel() + first)
    edges = torch.stack([first[by_arrival], second[by_arrival]])
    if not in_time or graph.edge_time is None:
        return edges, task_of[edges[1]]
    edge_task, by_task = torch.sort(graph.edge_time[there][by_arrival], stable=True)
    return edges[:, by_task], edge_task
