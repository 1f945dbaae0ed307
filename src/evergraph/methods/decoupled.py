r"""Decoupled networks: features are propagated once, without parameters; an MLP learns from them.

The rows are :math:`S^k X` of length one, :math:`S` the symmetrically normalised graph with
self-loops (SGC), added up over several :math:`k` if given. The MLP has the network's shape: the
backbone on nodes without edges.
"""

from __future__ import annotations

from typing import TypeVar

import torch
from pydantic import field_validator
from torch import Tensor

from evergraph.closed_form.features import FeatureConfig, PropagatedFeatures, Rows, readable_hops
from evergraph.methods.base import Method, MethodConfig
from evergraph.methods.context import TaskContext


class DecoupledConfig(MethodConfig):
    """Settings of a method that propagates features first."""

    hops: str = "2"  # steps of propagation; several, joined by +, are added up

    @field_validator("hops", mode="before")
    @classmethod
    def _readable_hops(cls, value: object) -> str:
        return readable_hops(value)

    def unused(self) -> frozenset[str]:
        """Names the number of neighbours drawn: none are."""
        return super().unused() | {"fanout"}


ConfigT = TypeVar("ConfigT", bound=DecoupledConfig)


class Decoupled(Method[ConfigT]):
    """An MLP on propagated features.

    Propagation is a few sparse products over the whole graph, of which training reads the rows of
    its nodes alone: nothing is sampled but batches, and nothing is predicted from a part.
    """

    def rows(self, ctx: TaskContext) -> Rows:
        """Returns the rows of the context's graph, prepared once."""
        hops, features = self.config.hops, ctx.view.features
        kind = FeatureConfig(hops=hops, scaling="none")
        return ctx.once(
            f"propagated {hops}",
            lambda: PropagatedFeatures(features, ctx.adjacency, kind, ctx.seed),
        )

    def trained_rows(self, ctx: TaskContext) -> Tensor:
        """Returns the rows of the training nodes, ``[m, d]``, prepared once."""
        return ctx.once("trained rows", lambda: self.rows(ctx).rows(ctx.view.train_nodes))

    def batch_rows(self, ctx: TaskContext) -> Tensor:
        """Returns the rows of the step's nodes; training nodes ascend."""
        at = torch.searchsorted(ctx.view.train_nodes, ctx.batch.nodes)
        return self.trained_rows(ctx)[at]

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Asks the MLP about every node's row."""
        everyone = torch.arange(ctx.view.num_nodes, device=ctx.device)
        return self.observe_rows(ctx, self.rows(ctx).rows(everyone))

    def observe_rows(self, ctx: TaskContext, rows: Tensor) -> Tensor:
        """Returns logits of rows without gradient or dropout."""
        ctx.network.eval()
        with torch.no_grad():
            return ctx.forward_rows(rows)
