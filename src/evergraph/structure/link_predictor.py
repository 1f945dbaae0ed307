"""The link predictor's scores of pairs of nodes, the non-edges it is shown, its loss (Eq. 6)."""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.kernels import has_kernels, kernels
from evergraph.kernels.attention import Ends, spread
from evergraph.kernels.ops import call
from evergraph.stream.adjacency import Adjacency, Pattern
from evergraph.validation import Config

#: Rounds of redrawing negatives that turn out to be edges; what remains is left out.
REDRAWS = 4
#: Scores keep this distance from 0 and 1, so that their logarithms are finite.
SCORE_MARGIN = 1e-6
#: A row shorter than this is not made longer.
EPSILON = 1e-12
#: The column of a pair that does not count.
LEFT_OUT = -1
LinkLoss = Literal["mean", "sum", "logits"]


class StructureConfig(Config):
    """How the neighbourhood of replayed nodes is refined (sections 4.2.1 to 4.2.3).

    Attributes:
        structure: ``learned`` is the paper's; ``none`` leaves the graph; ``homophily`` only
            adds each replayed node's nearest training nodes of its class (ablation row 5).
        lam: λ, weight of the link loss against the node loss; 1 is link only, 0 node only.
        tau: τ, edges of replayed nodes with a score of at most this are deleted.
        num_neighbors: N, edges added to each replayed node.
        num_candidates: K, nearest nodes considered for addition.
        candidates: ``nearest`` considers K nodes, ``entire`` all nodes seen.
        addition: ``top`` adds the N best, ``threshold`` every candidate scoring above τ.
        deletion: ``threshold`` deletes by τ, ``lowest`` the N lowest-scoring neighbours.
        add_among: ``new`` chooses among candidates that are not neighbours yet, ``any`` among all,
            as printed: what is connected already then counts towards N (decision 0009).
        link_loss: How the link loss joins pairs: ``mean``, the printed ``sum``, or ``logits``, a
            mean that takes scores for logits as the authors' code does (decision 0008).
        sl_ratio: Share of the buffer, drawn at random, that is refined.
        link_epochs: Epochs of the link predictor.
        link_lr: Its learning rate.
    """

    structure: Literal["learned", "none", "homophily"] = "learned"
    lam: float = Field(default=0.5, ge=0, le=1)
    tau: float = Field(default=0.8, ge=0, le=1)
    num_neighbors: int = Field(default=5, ge=0)
    num_candidates: int = Field(default=50, ge=1)
    candidates: Literal["nearest", "entire"] = "nearest"
    addition: Literal["top", "threshold"] = "top"
    deletion: Literal["threshold", "lowest"] = "threshold"
    add_among: Literal["new", "any"] = "new"
    link_loss: LinkLoss = "mean"
    sl_ratio: float = Field(default=1.0, ge=0, le=1)
    link_epochs: int = Field(default=100, ge=0)
    link_lr: float = Field(default=0.01, gt=0)

    @model_validator(mode="after")
    def _check_counts(self) -> StructureConfig:
        if self.candidates == "nearest" and self.num_neighbors > self.num_candidates:
            raise InputError(
                f"Expected 'num_neighbors' of at most 'num_candidates', {self.num_candidates} "
                f"(got {self.num_neighbors}); lower N or raise K."
            )
        return self


def sample_non_edges(
    adjacency: Adjacency, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draws node pairs uniformly that are neither edges nor loops.

    Returns the pairs ``[2, count]`` and whether each is valid: pairs that hit an edge are
    redrawn a few times without waiting for the device, and marked when they still do.
    """
    n, device = adjacency.num_nodes, adjacency.device
    pairs = torch.randint(n, (2, count), generator=generator, device=device)
    for _ in range(REDRAWS):
        again = torch.randint(n, (2, count), generator=generator, device=device)
        pairs = torch.where(_taken(adjacency, pairs), again, pairs)
    return pairs, ~_taken(adjacency, pairs)


def _taken(adjacency: Adjacency, pairs: Tensor) -> Tensor:
    return (pairs[0] == pairs[1]) | adjacency.has_edges(pairs[0], pairs[1])


def link_scores(z_i: Tensor, z_j: Tensor) -> Tensor:
    """Computes ``S = (cos(z_i, z_j) + 1) / 2`` of rows, kept inside (0, 1) (section 4.2.1)."""
    return _unit_scores(functional.normalize(z_i, dim=-1), functional.normalize(z_j, dim=-1))


def _unit_scores(u_i: Tensor, u_j: Tensor) -> Tensor:
    cosine = (u_i * u_j).sum(dim=-1)
    return ((cosine + 1) / 2).clamp(SCORE_MARGIN, 1 - SCORE_MARGIN)


def pair_pattern(pairs: Tensor, num_nodes: int, valid: Tensor | None = None) -> Pattern:
    """Lists undirected ``pairs`` ``[2, m]`` from both ends; invalid ones are left out.

    Never waits for the device: a pair that is left out keeps its place.
    """
    other = pairs.flip(0).int()
    if valid is not None:
        other = torch.where(valid, other, LEFT_OUT)
    owner, order = torch.sort(pairs.flatten().int(), stable=True)
    bounds = torch.arange(num_nodes + 1, dtype=torch.int32, device=pairs.device)
    return Pattern(torch.searchsorted(owner, bounds), other.flatten()[order])


def link_loss(
    z: Tensor,
    edges: Pattern,
    negatives: Pattern,
    plain: bool = False,
    reduction: LinkLoss = "mean",
) -> Tensor:
    """Averages or sums binary cross-entropy over edges and non-edges (Eq. 6; decision 0008).

    No row per pair is stored unless ``plain``, which can be differentiated twice, or for logits.

    Args:
        z: Embeddings of all nodes, ``[n, d]``.
        edges: Every edge, from both ends.
        negatives: Every non-edge, from both ends; see :func:`pair_pattern`.
        plain: Take PyTorch's operations instead of compiled kernels.
        reduction: How pairs are joined; every undirected pair counts once.
    """
    count = edges.columns.numel() + (negatives.columns != LEFT_OUT).sum()
    count = count.clamp(min=1)  # both count every pair twice
    if reduction == "sum":
        count = torch.full_like(count, 2)
    logits = reduction == "logits"
    if not plain and not logits and has_kernels(z.device):
        return call(_LinkLoss, z, edges, negatives, count)
    unit = functional.normalize(z, dim=-1)  # once per node, not once per edge
    positive, negative = (
        _plain_terms(unit, pairs, there, logits) for pairs, there in ((edges, 1), (negatives, 0))
    )
    return (positive + negative) / count


def _plain_terms(unit: Tensor, pairs: Pattern, positive: int, logits: bool) -> Tensor:
    """Sums the cross-entropy of pairs that are (not) edges."""
    n, count = pairs.num_rows, pairs.columns.numel()
    entries = torch.arange(count, device=unit.device)
    owner = torch.searchsorted(pairs.indptr, entries, right=True) - 1
    there = pairs.columns != LEFT_OUT
    other = torch.where(there, pairs.columns.long(), owner)
    scores = _unit_scores(
        spread(unit, Ends(owner, None, pairs.indptr)), spread(unit, Ends.of(other, n))
    )
    if logits:
        terms = functional.logsigmoid(scores if positive else -scores)
    else:
        terms = torch.log(scores) if positive else torch.log1p(-scores)
    return -(terms * there).sum()


class _LinkLoss(torch.autograd.Function):
    """The link loss in one pass over the pairs, which gives the gradient as well."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, edges: Pattern, negatives: Pattern, count: Tensor) -> Tensor:
        terms = kernels(z.device).pair_terms
        length = z.norm(dim=-1, keepdim=True)
        unit = z / length.clamp(min=EPSILON)
        loss, grad = terms(edges, unit, True, SCORE_MARGIN)
        more, more_grad = terms(negatives, unit, False, SCORE_MARGIN)
        ctx.save_for_backward(unit, length, count, grad.add_(more_grad))
        total: Tensor = (loss.sum() + more.sum()) / count
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        if torch.is_grad_enabled():  # only while the gradient itself is being recorded
            raise RuntimeError("link_loss cannot be differentiated twice: take the plain path")
        unit, length, count, grad = ctx.saved_tensors
        # What would change a row's length changes nothing.
        along = torch.bmm(unit[:, None], grad[:, :, None])[:, 0]
        along = along.masked_fill(length <= EPSILON, 0)
        scale = grads[0] / (count * length.clamp(min=EPSILON))
        return torch.addcmul(grad, unit, along, value=-1).mul_(scale), None, None, None
