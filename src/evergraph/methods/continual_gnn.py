r"""ContinualGNN: detect what new nodes change, replay it, hold on to the rest.

Wang et al., Streaming Graph Neural Networks via Continual Learning (CIKM 2020). At task
:math:`t \ge 2`, before anything is trained,

.. math::
    \Delta_u = \lVert f_t(u) - f_{t-1}(u) \rVert_1

compares the logits of :math:`\theta_{t-1}` for old nodes on the current and on the previous
graph; two steps of :math:`(D+I)^{-1}(A+I)` diffuse it, and the top 80 % of the old nodes
reached are detected. The loss is

.. math::
    \mathrm{CE}(\text{current} \cup \text{buffer})
    + \frac{\lambda}{2} \sum_i F_i (\theta_i - \theta_{t-1,i})^2

where detected nodes of the buffer weigh twice and :math:`F` is the squared gradient of the mean
loss of the buffer at :math:`\theta_{t-1}` on the current graph. The authors train on all detected
nodes with their labels; here only those of the buffer may be read, so that detection acts by
weight. λ = 80 and the 80 % are the authors'. Left open and chosen here: the share is taken of old
nodes, ties go to the lowest id, the count is rounded; the memory loss is over the classes that
:math:`\theta_{t-1}` knows.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from evergraph.kernels.attention import Ends, collect, spread
from evergraph.methods import anchors
from evergraph.methods.base import SearchSpace
from evergraph.methods.context import TaskContext
from evergraph.methods.replay import BufferBase, BufferConfig
from evergraph.stream.adjacency import Adjacency


class ContinualGNNConfig(BufferConfig):
    """Settings of ContinualGNN."""

    selector: str = "importance"
    lam: float = Field(default=80.0, ge=0)  # λ, weight of the penalty
    #: Share of the nodes reached by diffusion that is detected.
    detected_share: float = Field(default=0.8, ge=0, le=1)
    #: How often the change is averaged over neighbourhoods.
    diffusion_steps: int = Field(default=2, ge=0)


class ContinualGNN(BufferBase[ContinualGNNConfig]):
    """Replays nodes, those that new ones change twice, and anchors weights that memory needs."""

    Config = ContinualGNNConfig
    summary = "replay that doubles nodes changed by new ones, and a penalty by squared gradients"
    paper = "Wang et al., Streaming Graph Neural Networks via Continual Learning"
    year = 2020
    search: ClassVar[SearchSpace] = {
        "lam": (0.0, 0.8, 8.0, 80.0, 800.0, 8e3, 8e4),
        "detected_share": (0.0, 0.4, 0.8, 1.0),
    }
    detected: Tensor | None = None  # of this task, ascending
    num_reached = 0
    weight: Tensor | None = None  # of each kept node in this task's loss
    total_weight = 0.0
    importance: anchors.Parameters  # while there is a weight, as is the anchor
    anchor: anchors.Parameters

    def begin_task(self, ctx: TaskContext) -> None:
        """Detects and anchors with θ as the last task left it, then grows the head."""
        self.detected, self.num_reached = None, 0
        if len(self.buffer) and ctx.model is not None:
            ctx.model.to(ctx.device).eval()
            with ctx.stage("detection"):
                self._detect(ctx)
            with ctx.stage("importance"):
                self.anchor = anchors.snapshot(ctx.model)
                self.importance = self._memory_importance(ctx)
        super().begin_task(ctx)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Weighted cross-entropy of current and kept nodes, and the penalty."""
        if self.weight is None:
            return super().loss(ctx)
        logits, old_logits, labels, weight = ctx.replay(self.buffer.labelled, self.weight)
        num_current = ctx.view.train_nodes.numel()
        current = ctx.cross_entropy(logits, ctx.batch.labels)
        replayed = ctx.cross_entropy(old_logits, labels, weight)
        # One weighted mean over both sets, also where a batch holds other shares of them.
        total = num_current + self.total_weight
        mean = (num_current * current + self.total_weight * replayed) / total
        penalty = anchors.quadratic_penalty(ctx.network, self.importance, self.anchor)
        return mean + self.config.lam / 2 * penalty

    def end_task(self, ctx: TaskContext) -> None:
        """Selects, and lets go of all that the next task computes anew."""
        super().end_task(ctx)
        if self.detected is not None:
            replayed = int(torch.isin(self.buffer.nodes, self.detected).sum())
            counts = {"reached": self.num_reached, "detected": self.detected.numel()}
            ctx.report["detection"] = counts | {"detected_in_buffer": replayed}
        self.weight, self.importance, self.anchor = None, {}, {}

    def _detect(self, ctx: TaskContext) -> None:
        """Finds the old nodes that the new ones change, and weighs the buffer by them."""
        num_old = ctx.view.num_old
        change = logit_change(ctx, num_old)
        diffused = diffuse(change, ctx.adjacency, self.config.diffusion_steps)[:num_old]
        self.num_reached = int((diffused > 0).sum())
        self.detected = detect(diffused, self.config.detected_share)
        self.weight = 1.0 + torch.isin(self.buffer.nodes, self.detected).float()
        self.total_weight = float(self.weight.sum())

    def _memory_importance(self, ctx: TaskContext) -> anchors.Parameters:
        """Squares the gradient of the mean loss of the buffer, without dropout."""
        kept, total = self.buffer.labelled, anchors.zeros_like(ctx.network)
        for rows, output, _ in ctx.parts(kept.nodes):
            share = rows.numel() / len(self.buffer)
            loss = ctx.cross_entropy(output.logits, kept.labels[rows]) * share
            for name, gradient in anchors.gradients(loss, ctx.network).items():
                total[name] += gradient
        return {name: gradient.square() for name, gradient in total.items()}


def logit_change(ctx: TaskContext, num_old: int) -> Tensor:
    """Computes Δ of every node, ``[n]``; exactly zero for new nodes and where nothing changed.

    The model must be in evaluation mode, with the head that it had at the previous task.
    """
    graph = ctx.adjacency
    change = torch.zeros(graph.num_nodes, device=graph.device)
    hops = ctx.model_config.num_layers - 1 + ctx.network.encoder.reads_degrees
    touched = may_change(graph, num_old, hops)
    now = ctx.observe().logits[:num_old]
    features = ctx.view.features[:num_old]
    before = ctx.observe(None, prefix_graph(graph, num_old), features).logits
    # Where the network reads the same, only rounding could differ: matrices of another height.
    change[:num_old] = (now - before).abs().sum(dim=1) * touched
    return change


def may_change(graph: Adjacency, num_old: int, hops: int) -> Tensor:
    """Tells which old nodes are within ``hops`` of one with a new neighbour, ``[num_old]``."""
    crossing = (graph.src >= num_old) & (graph.dst < num_old)
    touched = torch.zeros(graph.num_nodes, dtype=torch.bool, device=graph.device)
    touched[graph.dst[crossing]] = True
    for _ in range(hops):
        touched[graph.dst[touched[graph.src]]] = True
    return touched[:num_old]


def prefix_graph(graph: Adjacency, num_nodes: int) -> Adjacency:
    """Returns the graph among the first nodes: what was seen when there were no others.

    An edge that came later than both its ends counts as if it had been there.
    """
    inside = (graph.src < num_nodes) & (graph.dst < num_nodes)
    edges = torch.stack([graph.src[inside], graph.dst[inside]])
    return Adjacency.from_edges(edges, num_nodes)


def diffuse(values: Tensor, graph: Adjacency, steps: int) -> Tensor:
    """Averages values ``[n]`` over each node and its neighbours, ``(D+I)⁻¹(A+I)``, repeatedly."""
    looped = graph.with_self_loops
    sources, targets = Ends.sources(looped), Ends.targets(looped)
    for _ in range(steps):
        summed = collect(spread(values[:, None], sources), targets).flatten()
        values = summed / looped.degree
    return values


def detect(values: Tensor, share: float) -> Tensor:
    """Returns the nodes of the largest values, a share of those above zero, ascending."""
    count = round(share * int((values > 0).sum()))
    order = torch.argsort(values, descending=True, stable=True)
    return torch.sort(order[:count]).values
