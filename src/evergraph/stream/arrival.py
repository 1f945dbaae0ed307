"""When nodes come where known classes come again: blurred borders, batches, parts of the graph.

None of these streams changes which nodes are learned and which judge: the split is that of a class
stream with the same seed. A held-out node that would come before the first training node of its
class comes with that one instead, so that no class is judged that could not have been learned.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from evergraph.device import make_generator
from evergraph.errors import InputError
from evergraph.stream.graph import Graph
from evergraph.stream.protocol import Protocol


def arrivals(
    graph: Graph,
    nodes: Tensor,
    labels: Tensor,
    *,
    names: Sequence[str],
    train: Tensor,
    protocol: Protocol,
    seed: int,
) -> tuple[Tensor, tuple[str, ...]]:
    """Finds the task of each node, and what the tasks are called.

    Nodes ``[n]`` are those of the classes kept, ascending; labels ``[n]`` number these classes in
    the order of the protocol, as ``names`` has them; ``train`` are rows of ``nodes``.
    """
    generator = make_generator(seed, "arrival")
    if protocol.kind == "blurry":
        home = labels // protocol.classes_per_task
        count = -(-len(names) // protocol.classes_per_task)
        come = blurred(labels, home, count, protocol.amount, generator)
        each = protocol.classes_per_task
        titles = [" + ".join(names[i * each : (i + 1) * each]) for i in range(count)]
    else:
        if protocol.kind == "task-free":
            place = drifting(labels, len(names), generator)
            count, word = max(1, nodes.numel() // int(protocol.amount)), "batch"
        else:
            place, count, word = by_neighbours(graph, nodes), int(protocol.amount), "part"
        if count > nodes.numel():
            raise InputError(
                f"Expected 'stream' with at most {nodes.numel()} parts for '{graph.name}' (got "
                f"'{protocol.stream}'); take fewer."
            )
        come = torch.argsort(torch.argsort(place, stable=True)) * count // nodes.numel()
        titles = [f"{word} {index + 1}" for index in range(count)]
    first = torch.full((len(names),), count - 1)
    first = first.scatter_reduce(0, labels[train], come[train], "amin")
    return torch.maximum(come, first[labels]), tuple(titles)


def blurred(
    labels: Tensor, home: Tensor, num_tasks: int, share: float, generator: torch.Generator
) -> Tensor:
    """Sends a share of every class to other tasks than its own, evenly and at random, ``[n]``.

    These are the blurry streams of Bang et al. (Rainbow Memory, CVPR 2021), and of Koh et al.
    (i-Blurry, ICLR 2022) without disjoint classes: strays come before their class's own task as
    well as after it, so that when a node comes excludes no class.
    """
    come = home.clone()
    shuffled = torch.randperm(labels.numel(), generator=generator)
    for label in range(int(labels.max()) + 1):
        mine = shuffled[labels[shuffled] == label]
        strays = mine[: round(share * mine.numel())]
        if num_tasks > 1 and strays.numel():
            start = int(torch.randint(num_tasks - 1, (), generator=generator))
            turn = (start + torch.arange(strays.numel())) % (num_tasks - 1)
            come[strays] = (home[strays] + 1 + turn) % num_tasks
    return come


def drifting(labels: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
    """Places nodes so that classes fade into each other, ``[n]``.

    In order, each class has a stretch as long as its nodes are many. A node's place is normal
    around the middle of that stretch, with half its length as standard deviation (the Gaussian
    schedule of Shanahan et al., 2021).
    """
    sizes = torch.bincount(labels, minlength=num_classes).double()
    middle = sizes.cumsum(0) - sizes / 2
    noise = torch.randn(labels.numel(), dtype=torch.float64, generator=generator)
    return middle[labels] + sizes[labels] / 2 * noise


def by_neighbours(graph: Graph, nodes: Tensor) -> Tensor:
    """Places nodes so that neighbours are near each other, ``[n]``: reverse Cuthill-McKee.

    That is breadth-first search from the rim of each component; stretches of it are parts with few
    edges between them, and labels have no say in it.
    """
    from scipy.sparse import csr_array  # noqa: PLC0415 - large, and few streams need it
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # noqa: PLC0415 - as above

    row = torch.full((graph.num_nodes,), -1)
    row[nodes] = torch.arange(nodes.numel())
    ends = row[graph.edges]
    ends = ends[:, (ends >= 0).all(dim=0)]
    size = (nodes.numel(), nodes.numel())
    both = torch.cat([ends, ends.flip(0)], dim=1).numpy()
    adjacency = csr_array((np.ones(both.shape[1], dtype=np.int8), both), shape=size)
    order = torch.from_numpy(reverse_cuthill_mckee(adjacency, symmetric_mode=True).astype(np.int64))
    return torch.argsort(order)
