"""Diagnostics: what the buffer and its neighbourhood look like, computed outside the methods.

Everything here may read labels that methods may not; nothing here flows back to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from evergraph.kernels.ops import mean_pairwise_distance
from evergraph.methods import TaskContext
from evergraph.stream import Adjacency, TaskStream
from evergraph.train import Learner, predict


class Diagnostics:
    """Watches a run task by task and describes the buffer that the last task used.

    Call :meth:`after_task` on every :class:`~evergraph.events.TaskDone`. Embeddings of a
    class are those of the model that selected it, so they are kept from then on.
    """

    def __init__(self, stream: TaskStream) -> None:
        self.stream = stream
        self.chosen_by: dict[int, tuple[Tensor, Tensor]] = {}  # class → train nodes, their h
        self.result: dict[str, Any] = {}

    def after_task(self, learner: Learner) -> dict[str, dict[str, Tensor]]:
        """Remembers the task's embeddings; after the last task, computes everything.

        Returns what :meth:`restore` needs when the run continues after this task.
        """
        ctx = learner.context
        assert ctx is not None
        task = self.stream.tasks[ctx.view.task]
        remembered: dict[str, dict[str, Tensor]] = {}
        buffer = learner.method.buffer
        if ctx.model is not None and buffer is not None and not ctx.final:
            labels = torch.unique(self.stream.labels[task.train_nodes]).tolist()
            # Of a class that returns, nodes are chosen from the kept ones as well.
            kept = [buffer.picks[label].cpu() for label in labels if label in buffer.picks]
            nodes = torch.unique(torch.cat([task.train_nodes, *kept]))
            h = ctx.embed(nodes.to(ctx.view.train_nodes.device)).cpu()
            for label in labels:
                rows = self.stream.labels[nodes] == label
                remembered[str(label)] = {"nodes": nodes[rows], "h": h[rows]}
        self.restore(remembered)
        if ctx.final:
            self.result = self._describe(learner, ctx)
        return remembered

    def restore(self, remembered: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Takes back what :meth:`after_task` returned."""
        for label, part in remembered.items():
            self.chosen_by[int(label)] = (part["nodes"].cpu(), part["h"].cpu())

    def _describe(self, learner: Learner, ctx: TaskContext) -> dict[str, Any]:
        logits = predict(learner, ctx).cpu()
        before, after = ctx.view.adjacency.to("cpu"), ctx.adjacency.to("cpu")
        # All test nodes are split at their median degree in the unedited final graph.
        nodes = _judged(self.stream)
        right = (logits[nodes].argmax(dim=1) == self.stream.labels[nodes]).float()
        low = before.degree[nodes] <= before.degree[nodes].median()
        parts = {"low": right[low], "high": right[~low]}
        accuracy = {
            k: 100 * float(part.mean()) if part.numel() else None for k, part in parts.items()
        }
        result: dict[str, Any] = {"degree_accuracy": accuracy}
        kept = {} if learner.method.buffer is None else learner.method.buffer.picks
        picks = {label: nodes.cpu() for label, nodes in kept.items()}
        if ctx.model is not None:
            h = ctx.embed().cpu()
            result["correct_diversity"] = _with_mean(self._correct_diversity(h, logits))
            result["embedding_sample"] = embedding_sample(self.stream, h, logits, picks)
        if picks and self.chosen_by:
            result |= self._buffer(picks, before, after)
            result["edit_sample"] = edit_sample(self.stream, picks, before, after)
        return result

    def _buffer(
        self, picks: Mapping[int, Tensor], before: Adjacency, after: Adjacency
    ) -> dict[str, Any]:
        """Describes the kept nodes: spread, distance from the centre, neighbours."""
        diversity: dict[int, float | None] = {}
        centrality: dict[int, float | None] = {}
        for label in (label for label in picks if label in self.chosen_by):
            train, h = self.chosen_by[label]
            mine, overall = h[torch.isin(train, picks[label])], mean_pairwise_distance(h)
            apart = mine.shape[0] > 1
            diversity[label] = _ratio(mean_pairwise_distance(mine), overall) if apart else None
            centrality[label] = _ratio((mine - h.mean(dim=0)).norm(dim=1).mean(), overall)
        nodes, labels = torch.cat(list(picks.values())), self.stream.labels
        homophily, isolated, degree = {}, {}, {}
        for name, graph in (("before", before), ("after", after)):
            shares = {c: node_homophily(graph, kept, labels).mean() for c, kept in picks.items()}
            homophily[name] = _with_mean({c: float(share) for c, share in shares.items()})
            isolated[name] = int((graph.degree[nodes] == 0).sum())
            degree[name] = float(graph.degree[nodes].float().mean())
        return {
            "buffer_sizes": {str(label): kept.numel() for label, kept in picks.items()},
            "buffer_diversity": _with_mean(diversity),
            "distance_from_centre": _with_mean(centrality),
            "buffer_homophily": homophily,
            "isolated_buffer_nodes": isolated,
            "buffer_degree": degree,
        }

    def _correct_diversity(self, h: Tensor, logits: Tensor) -> dict[int, float | None]:
        """Compares how far correctly predicted test nodes lie from the centre with all.

        Centre and distances are those of the final model, whose predictions are judged.
        """
        result: dict[int, float | None] = {}
        everyone = torch.cat([task.train_nodes for task in self.stream.tasks])
        judged, labels = _judged(self.stream), self.stream.labels
        for label in torch.unique(labels[everyone]).tolist():
            nodes = judged[labels[judged] == label]
            centre = h[everyone[labels[everyone] == label]].mean(dim=0)
            distance = (h[nodes] - centre).norm(dim=1)
            right = distance[logits[nodes].argmax(dim=1) == label]
            result[label] = _ratio(right.mean(), distance.mean()) if right.numel() else None
        return result


def node_homophily(graph: Adjacency, nodes: Tensor, labels: Tensor) -> Tensor:
    """Computes the share of same-class neighbours of each node, 0 when it has none, ``[m]``."""
    owner, neighbour = graph.edges_into(nodes)
    same = (labels[nodes[owner]] == labels[neighbour]).double()
    total = torch.zeros(nodes.numel(), dtype=torch.float64).index_add_(0, owner, same)
    return total / graph.degree[nodes].clamp(min=1)


def _judged(stream: TaskStream) -> Tensor:
    return torch.cat([stream.evaluation(task.index).nodes for task in stream.tasks])


def _ratio(part: Tensor, whole: Tensor) -> float | None:
    return float(part / whole) if float(whole) > 0 else None


def _with_mean(by_class: Mapping[int, float | None]) -> dict[str, Any]:
    known = [value for value in by_class.values() if value is not None]
    return {
        "mean": sum(known) / len(known) if known else None,
        "by_class": {str(label): value for label, value in by_class.items()},
    }


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

    Returns:
        Columns ``nodes`` (original ids), ``labels``, ``predicted`` and one of each component;
        ``roles`` holds a letter per node: ``b`` in the buffer, ``t`` another training node,
        ``e`` evaluated. Nothing if an embedding is not finite.
    """
    limit, train = MAX_NODES // 2, torch.cat([task.train_nodes for task in stream.tasks])
    kept = torch.cat([*picks.values(), train[:0]])
    share = limit if kept.numel() <= limit else max(limit // len(picks), 1)
    buffer = torch.cat([*(nodes[:share] for nodes in picks.values()), train[:0]])[:limit]
    others = torch.cat([train[~torch.isin(train, kept)], _judged(stream)]).sort().values
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


def project(h: Tensor, seed: int = 0) -> list[list[float]]:
    """Lays points out in the plane by t-SNE, ``[n, 2]``; fewer than four stay where they are."""
    if h.shape[0] < 4 or h.shape[1] < 2:
        return [[*map(float, point), 0.0, 0.0][:2] for point in h]
    from sklearn.manifold import TSNE  # noqa: PLC0415 - a second of import that few commands need

    perplexity = min(30.0, max(1.0, (h.shape[0] - 1) / 3))
    places = TSNE(random_state=seed, init="pca", perplexity=perplexity, n_jobs=1).fit_transform(
        h.numpy()
    )
    return [[round(float(x), 2), round(float(y), 2)] for x, y in places]


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
