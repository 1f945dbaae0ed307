"""Small samples of a finished run for people to look at: embeddings, and edited neighbourhoods.

They are bounded whatever the graph's size, drawn without randomness and, like all diagnostics,
computed outside the methods. Columns of numbers are kept as strings, ``"12 7 40"``, so that
``results.json`` stays short and readable; :func:`numbers` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from evergraph.stream import Adjacency, TaskStream

#: Nodes of the embedding sample; at most half of them are kept nodes.
MAX_NODES = 240
#: Principal components stored of each.
MAX_COMPONENTS = 6
#: Largest coordinate, so that components are small integers.
SCALE = 999
#: Replayed nodes whose neighbourhood is shown, and neighbours of each.
MAX_EDITED = 8
MAX_NEIGHBOURS = 24


def embedding_sample(
    stream: TaskStream, h: Tensor, logits: Tensor, picks: Mapping[int, Tensor]
) -> dict[str, Any]:
    """Describes a sample of kept, training and evaluated nodes by the last model's embedding.

    Kept nodes come first, all or as many of every class; the others are spread evenly over training
    and evaluated nodes sorted by class. ``components`` are principal ones, largest first, up to
    a common scale, each with the sign that makes its largest entry positive.

    Args:
        stream: The run's stream.
        h: Embeddings of every node, ``[n, d]``.
        logits: Predictions of every node, ``[n, k]``.
        picks: Kept nodes by class, best first; empty without a buffer.

    Returns:
        Columns ``nodes`` (original ids), ``labels``, ``predicted`` and one of each component;
        ``roles`` holds a letter per node: ``b`` in the buffer, ``t`` another training node,
        ``e`` evaluated. Nothing if an embedding is not finite.
    """
    limit = MAX_NODES // 2
    fits = sum(nodes.numel() for nodes in picks.values()) <= limit
    share = limit if fits else max(limit // len(picks), 1)
    kept = [nodes[:share] for nodes in picks.values()]
    buffer = torch.cat(kept)[:limit] if kept else torch.empty(0, dtype=torch.int64)
    train = torch.cat([task.train_nodes for task in stream.tasks])
    judged = torch.cat([stream.evaluation(task.index).nodes for task in stream.tasks])
    everyone = torch.cat([*picks.values(), buffer])
    others = torch.cat([train[~torch.isin(train, everyone)], judged])
    others = others[torch.argsort(others)]
    others = others[torch.argsort(stream.labels[others], stable=True)]
    others = others[evenly(others.numel(), MAX_NODES - buffer.numel())]
    nodes = torch.cat([buffer, others])
    if not bool(torch.isfinite(h[nodes]).all()):
        return {}
    is_train = torch.isin(others, train).tolist()
    components, explained = principal_components(h[nodes])
    return {
        "nodes": column(stream.original_ids[nodes]),
        "labels": column(stream.labels[nodes]),
        "predicted": column(logits[nodes].argmax(dim=1)),
        "roles": "b" * buffer.numel() + "".join("t" if mine else "e" for mine in is_train),
        "components": [column(part) for part in components.T],
        "explained": [round(float(part), 4) for part in explained],
    }


def principal_components(h: Tensor) -> tuple[Tensor, Tensor]:
    """Projects rows onto their principal components, as integers up to :data:`SCALE`.

    Returns the projections ``[m, c]`` and the share of variance of each component ``[c]``.
    """
    centred = (h - h.mean(dim=0)).double()
    left, values, _ = torch.linalg.svd(centred, full_matrices=False)
    part = (left * values)[:, :MAX_COMPONENTS]
    largest = part.gather(0, part.abs().argmax(dim=0, keepdim=True))
    part = part * torch.where(largest < 0, -1.0, 1.0)
    variance = values.square()
    explained = variance[:MAX_COMPONENTS] / variance.sum().clamp(min=1e-300)
    scaled = SCALE * part / part.abs().max().clamp(min=1e-300)
    return scaled.round().long(), explained


def edit_sample(
    stream: TaskStream, picks: Mapping[int, Tensor], before: Adjacency, after: Adjacency
) -> list[dict[str, Any]]:
    """Shows how the neighbourhood of some replayed nodes was edited in the last task.

    Of every class the node with the most edits is taken, one that both gained and lost an edge
    before one that did not, then the first classes. ``states`` holds a letter per neighbour:
    ``+`` added, ``-`` removed, ``=`` kept; edits come first, ``left_out`` counts the rest.
    """
    sample = []
    for label, nodes in picks.items():
        added, removed = _only_in(after, before, nodes), _only_in(before, after, nodes)
        counts = [torch.bincount(part[0], minlength=nodes.numel()) for part in (added, removed)]
        total = counts[0] + counts[1]
        if nodes.numel() == 0 or not bool(total.any()):
            continue
        both = (counts[0] > 0) & (counts[1] > 0)
        row = int((total + both * (total.max() + 1)).argmax())
        parts = {"+": added[1][added[0] == row], "-": removed[1][removed[0] == row]}
        around = before.edges_into(nodes[row : row + 1])[1]
        parts["="] = around[~torch.isin(around, parts["-"])]
        neighbours = torch.cat(list(parts.values()))
        states = "".join(state * part.numel() for state, part in parts.items())
        shown = neighbours[:MAX_NEIGHBOURS]
        sample.append(
            {
                "node": int(stream.original_ids[nodes[row]]),
                "label": label,
                "neighbours": column(stream.original_ids[shown]),
                "labels": column(stream.labels[shown]),
                "states": states[:MAX_NEIGHBOURS],
                "left_out": max(neighbours.numel() - MAX_NEIGHBOURS, 0),
            }
        )
    return sample[:MAX_EDITED]


def _only_in(graph: Adjacency, other: Adjacency, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Lists (position in nodes, neighbour) of edges that one graph has and the other has not."""
    owner, neighbour = graph.edges_into(nodes)
    fresh = ~other.has_edges(neighbour, nodes[owner])
    return owner[fresh], neighbour[fresh]


def evenly(count: int, wanted: int) -> Tensor:
    """Spreads at most ``wanted`` positions over ``[0, count)``, strictly increasing."""
    if count <= wanted:
        return torch.arange(count)
    return torch.div(torch.arange(wanted) * count, wanted, rounding_mode="floor")


def column(values: Tensor) -> str:
    """Writes integers as one string."""
    return " ".join(map(str, values.tolist()))


def numbers(text: str) -> list[int]:
    """Reads what :func:`column` wrote."""
    return [int(word) for word in text.split()]
