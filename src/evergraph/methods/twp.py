r"""TWP: topology-aware weight preserving (Liu et al., AAAI 2021).

.. math::
    CE + \sum_s \sum_i (\lambda_l I^{loss}_{s,i} + \lambda_t I^{topo}_{s,i})
    (\theta_i - \theta^*_{s,i})^2 + \beta \lVert \nabla_\theta CE \rVert_1

with :math:`I^{loss} = (\partial CE / \partial \theta)^2`, CE being the mean over the task's
training nodes, and :math:`I^{topo} = (\partial \lVert e \rVert^2 / \partial \theta)^2`, ``e``
being the attention of all layers, heads and edges after the softmax; on a backbone without
attention it is :math:`e_{ij} = (W h_i)^\top \tanh(W h_j)` over edges. The last term is the
gradient norm of every step's cross-entropy and is itself differentiated, hence the plain
network path. λ_l = λ_t = 1e4 and β = 0.01 are the settings the method is usually run with,
mostly by code that detaches the last term, which is the same as β = 0. With its gradient, β = 0.01
can drive the network to a constant answer, where that norm is small (it does on Cora; 0.001 does
not): β needs tuning. CE is over the task's own classes unless set otherwise.

Where training samples neighbourhoods, ``∂CE/∂θ`` is averaged and ``∂‖e‖²/∂θ`` added up over
batches of training nodes before either is squared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from evergraph.kernels.attention import Ends, spread
from evergraph.kernels.ops import project
from evergraph.methods import anchors
from evergraph.methods.base import SearchSpace
from evergraph.methods.context import TaskContext
from evergraph.methods.ewc import fisher
from evergraph.nn.model import NodeClassifier
from evergraph.nn.receptive_field import ReceptiveField
from evergraph.stream.adjacency import Adjacency


class TWPConfig(anchors.HeadsConfig):
    """Settings of TWP."""

    former: ClassVar[Mapping[str, Any]] = {**anchors.HeadsConfig.former, "squares": "mean"}
    lam_loss: float = Field(default=1e4, ge=0)  # λ_l, weight of what the loss is sensitive to
    #: λ_t, weight of what the attention is sensitive to.
    lam_topology: float = Field(default=1e4, ge=0)
    beta: float = Field(default=0.01, ge=0)  # β, weight of the gradient's L1 norm
    #: Which gradients make I_loss: ``mean`` squares that of the mean loss, ``node`` averages the
    #: squares of every node's, which do not vanish at a minimum (decision 0028).
    squares: Literal["mean", "node"] = "mean"


class TWP(anchors.AnchoredMethod[TWPConfig]):
    """Holds the parameters that earlier tasks' loss and attention are sensitive to."""

    Config = TWPConfig
    summary = "holds parameters by what the loss and the attention of earlier tasks depend on"
    paper = "Liu et al., Overcoming Catastrophic Forgetting in Graph Neural Networks"
    year = 2021
    search: ClassVar[SearchSpace] = {
        "lam_loss": (1e4, 1e6, 1e8, 1e10),
        "lam_topology": (0.0, 1e4, 1e6),
        "beta": (0.0, 1e-3, 1e-2),
        "squares": ("mean", "node"),
    }
    needs = frozenset({"double_backward"})

    def __init__(self, config: TWPConfig) -> None:
        super().__init__(config)
        if not config.beta:  # nothing is differentiated twice
            self.needs = frozenset()

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on the current nodes, plus the penalty and the norm of its gradient."""
        current = super().loss(ctx)
        loss = current + self.penalty(ctx)
        if self.config.beta:
            loss = loss + self.config.beta * gradient_norm(current, ctx.network)
        return loss

    def importance(self, ctx: TaskContext) -> anchors.Parameters:
        """Weighs both importances into one: only their weighted sum is ever used."""
        by_loss, by_topology = self.importances(ctx)
        return {
            name: self.config.lam_loss * value + self.config.lam_topology * by_topology[name]
            for name, value in by_loss.items()
        }

    def importances(self, ctx: TaskContext) -> tuple[anchors.Parameters, anchors.Parameters]:
        """Computes I_loss and I_topo, each from a gradient of its own."""
        model, nodes, labels = ctx.network, ctx.view.train_nodes, ctx.view.train_labels
        by_loss, by_topology = anchors.zeros_like(model), anchors.zeros_like(model)
        for rows, output, field in ctx.parts(nodes, attention=True):
            share = rows.numel() / nodes.numel()
            loss = share * ctx.cross_entropy(*self.narrow(ctx, output.logits, labels[rows]))
            scores = output.attention or edge_scores(model, field)
            e = torch.cat([layer.flatten() for layer in scores])
            for total, value in ((by_loss, loss), (by_topology, e.square().sum())):
                for name, grad in anchors.gradients(value, model).items():
                    total[name] += grad
        for total in (by_loss, by_topology):
            for grad in total.values():
                grad.square_()
        if self.config.squares == "node":
            by_loss = fisher(self, ctx)
        return by_loss, by_topology


def gradient_norm(loss: Tensor, model: nn.Module) -> Tensor:
    """Computes the L1 norm of a loss's gradient, itself differentiable."""
    grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    return torch.stack([grad.abs().sum() for grad in grads]).sum()


def edge_scores(model: NodeClassifier, field: ReceptiveField) -> list[Tensor]:
    r"""Computes :math:`e_{ij} = (W h_i)^\top \tanh(W h_j)` of every edge, ``[E]`` per layer.

    :math:`j` is the source and :math:`i` the target; :math:`h` is what the layer reads, without
    dropout, and :math:`W` what it multiplies neighbours by. Memory grows with edges × channels.
    """
    h, graph = field.features, field.graphs
    assert isinstance(graph, Adjacency)
    sources, targets = Ends.sources(graph), Ends.targets(graph)
    scores = []
    for depth, layer in enumerate(model.encoder.layers):
        if depth > 0:
            assert isinstance(h, Tensor)
            h = functional.relu(h)
        assert isinstance(layer.weight, Tensor)
        wh = project(h, layer.weight)
        scores.append((spread(wh, targets) * spread(torch.tanh(wh), sources)).sum(dim=1))
        h = layer(h, graph)
    return scores
