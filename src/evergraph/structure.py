"""Structure learning: the link predictor's scores and loss (Eq. 6), then the edit (Eq. 9-11).

The predictor scores pairs of nodes and is shown non-edges; candidates for new edges of replayed
nodes are scored by it, and what the graph gains and loses is one edit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.kernels import has_kernels, kernels
from evergraph.kernels.attention import Ends, spread
from evergraph.kernels.ops import BLOCK_ENTRIES, call, check_first_derivative, distance_blocks
from evergraph.stream.adjacency import Adjacency, Pattern, runs
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
    """How the neighbourhood of replayed nodes is refined (sections 4.2.1 to 4.2.3)."""

    #: ``learned`` is the paper's; ``none`` leaves the graph; ``homophily`` only adds each replayed
    #: node's nearest training nodes of its class (ablation row 5).
    structure: Literal["learned", "none", "homophily"] = "learned"
    #: λ, weight of the link loss against the node loss; 1 is link only, 0 node only.
    lam: float = Field(default=0.5, ge=0, le=1)
    #: τ, edges of replayed nodes with a score of at most this are deleted.
    tau: float = Field(default=0.8, ge=0, le=1)
    num_neighbors: int = Field(default=5, ge=0)  # N, edges added to each replayed node
    num_candidates: int = Field(default=50, ge=1)  # K, nearest nodes considered for addition
    #: ``nearest`` considers K nodes, ``entire`` all nodes seen.
    candidates: Literal["nearest", "entire"] = "nearest"
    #: ``top`` adds the N best, ``threshold`` every candidate scoring above τ, ``nearest`` the N
    #: that were nearest when candidates were found.
    addition: Literal["top", "threshold", "nearest"] = "top"
    #: ``threshold`` deletes by τ, ``lowest`` the N lowest-scoring neighbours.
    deletion: Literal["threshold", "lowest"] = "threshold"
    #: ``new`` chooses among candidates that are not neighbours yet, ``any`` among all, as printed:
    #: what is connected already then counts towards N (decision 0009).
    add_among: Literal["new", "any"] = "new"
    #: How the link loss joins pairs: ``mean``, the printed ``sum``, or ``logits``, a mean that
    #: takes scores for logits as the authors' code does (decision 0008).
    link_loss: LinkLoss = "mean"
    #: Share of the buffer, drawn at random, that is refined.
    sl_ratio: float = Field(default=1.0, ge=0, le=1)
    link_epochs: int = Field(default=100, ge=0)  # epochs of the link predictor
    link_lr: float = Field(default=0.01, gt=0)  # its learning rate

    @model_validator(mode="after")
    def _check_counts(self) -> StructureConfig:
        if self.candidates == "nearest" and self.num_neighbors > self.num_candidates:
            raise InputError(
                f"Expected 'num_neighbors' of at most 'num_candidates', {self.num_candidates} "
                f"(got {self.num_neighbors}); lower N or raise K."
            )
        if self.candidates == "entire" and self.addition == "nearest":
            raise InputError(
                "Expected 'addition' top or threshold when 'candidates' is entire (got 'nearest'): "
                "all nodes are candidates in no order; set one of them."
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
    taken = _taken(adjacency, pairs)
    for _ in range(REDRAWS):
        again = torch.randint(n, (2, count), generator=generator, device=device)
        pairs = torch.where(taken, again, pairs)
        if device.type == "cpu":  # few are new, and counting them waits for nobody
            few = torch.nonzero(taken).flatten()
            taken[few] = _taken(adjacency, pairs[:, few])
        else:
            taken = _taken(adjacency, pairs)
    return pairs, ~taken


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
    """Joins the binary cross-entropy of edges and non-edges (Eq. 6; decision 0008).

    Both come from both ends (:func:`pair_pattern`) and count once. No row per pair is stored unless
    ``plain``, which can be differentiated twice, or for logits.
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
        check_first_derivative()
        unit, length, count, grad = ctx.saved_tensors
        # What would change a row's length changes nothing.
        along = torch.bmm(unit[:, None], grad[:, :, None])[:, 0]
        along = along.masked_fill(length <= EPSILON, 0)
        scale = grads[0] / (count * length.clamp(min=EPSILON))
        return torch.addcmul(grad, unit, along, value=-1).mul_(scale), None, None, None


def nearest_nodes(h: Tensor, nodes: Tensor, count: int, among: Tensor | None = None) -> Tensor:
    """Finds for each of ``nodes`` the K nearest others by ``h`` ``[n, d]``, nearest first (Eq. 11).

    These are any nodes, or those of ``among``: ``[b, K]``, or fewer columns where there are not
    as many. Distances are computed in blocks, so that memory does not grow with ``b × n``.
    """
    pool = torch.arange(h.shape[0], device=h.device) if among is None else among
    itself = 1 if among is None else int(torch.isin(nodes, pool).any())
    count = min(count, max(pool.numel() - itself, 0))
    if count == 0 or nodes.numel() == 0:
        return torch.empty(nodes.numel(), 0, dtype=torch.int64, device=h.device)
    found = []
    for begin, distance in distance_blocks(h[nodes], h if among is None else h[among]):
        rows = nodes[begin : begin + distance.shape[0]]
        distance.masked_fill_(rows[:, None] == pool[None, :], torch.inf)
        found.append(pool[distance.topk(count, largest=False).indices])
    return torch.cat(found)


@dataclass(frozen=True)
class Refinement:
    """What structure inference changed at one task; undirected pairs ``[2, *]``."""

    added: Tensor
    deleted: Tensor
    num_refined: int  # replayed nodes that were looked at

    def summary(self) -> dict[str, int]:
        """Counts for the run's report."""
        return {
            "refined_nodes": self.num_refined,
            "added_edges": self.added.shape[1],
            "deleted_edges": self.deleted.shape[1],
        }


def refine(
    adjacency: Adjacency,
    nodes: Tensor,
    candidates: Tensor | None,
    z: Tensor,
    config: StructureConfig,
) -> tuple[Adjacency, Refinement]:
    """Edits the neighbourhood of replayed nodes ``[b]`` by link score; tells what changed.

    Candidates are ``[b, K]``; None considers all nodes seen. ``z`` ``[n, d]`` are embeddings of the
    link predictor. Edges added are not candidates for deletion.
    """
    added = _additions(adjacency, nodes, candidates, z, config)
    added = added[:, ~adjacency.has_edges(added[0], added[1])]
    deleted = _deletions(adjacency, nodes, z, config)
    change = Refinement(unique_pairs(added), unique_pairs(deleted), nodes.numel())
    return adjacency.edit(add=change.added, remove=change.deleted), change


def _additions(
    adjacency: Adjacency,
    nodes: Tensor,
    candidates: Tensor | None,
    z: Tensor,
    config: StructureConfig,
) -> Tensor:
    """Chooses the pairs to connect (Eq. 9); which of them exist already is left to the caller."""
    if candidates is None:
        everyone = torch.arange(adjacency.num_nodes, device=adjacency.device)
        candidates = everyone.expand(nodes.numel(), -1)
    # A block of rows costs K × d numbers each.
    step = max(1, BLOCK_ENTRIES // max(candidates.shape[1] * z.shape[1], 1))
    chosen = [torch.empty(2, 0, dtype=torch.int64, device=adjacency.device)]
    for begin in range(0, nodes.numel(), step):
        rows = nodes[begin : begin + step]
        options = candidates[begin : begin + step]
        scores = candidate_scores(adjacency, rows, options, z, config.add_among == "any")
        if config.addition == "nearest":
            order = torch.arange(options.shape[1], 0, -1.0, device=scores.device)
            scores = order.expand_as(scores).masked_fill(scores < 0, -1.0)
        if config.addition == "threshold":
            keep = scores > config.tau
        else:
            keep = best_candidates(scores, config.num_neighbors)
        chosen.append(torch.stack([rows[:, None].expand_as(options)[keep], options[keep]]))
    return torch.cat(chosen, dim=1)


def candidate_scores(
    adjacency: Adjacency, nodes: Tensor, options: Tensor, z: Tensor, any_pair: bool = False
) -> Tensor:
    """Scores each node's candidates ``[b, K]``, −1 for itself and, unless any, for neighbours."""
    owner = nodes[:, None].expand_as(options)
    taken = owner == options
    if not any_pair:
        taken = taken | adjacency.has_edges(options, owner)
    return link_scores(z[nodes][:, None, :], z[options]).masked_fill(taken, -1.0)


def best_candidates(scores: Tensor, count: int) -> Tensor:
    """Marks the highest scores of each row, at most ``count`` and none below 0, ``[b, K]``."""
    best = scores.topk(min(count, scores.shape[1]), dim=1).indices
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(1, best, True) & (scores >= 0)


def _deletions(adjacency: Adjacency, nodes: Tensor, z: Tensor, config: StructureConfig) -> Tensor:
    """Chooses the original edges to delete (Eq. 10)."""
    owner, neighbour = adjacency.edges_into(nodes)
    scores = link_scores(z[nodes[owner]], z[neighbour])
    if config.deletion == "threshold":
        drop = scores <= config.tau
    else:
        # Rank the edges of each owner by score: sort by score, then stably by owner.
        by_score = torch.argsort(scores, stable=True)
        order = by_score[torch.argsort(owner[by_score], stable=True)]
        _, rank = runs(adjacency.degree[nodes])
        drop = torch.zeros_like(scores, dtype=torch.bool)
        drop[order[rank < config.num_neighbors]] = True
    return torch.stack([nodes[owner[drop]], neighbour[drop]])


def unique_pairs(pairs: Tensor) -> Tensor:
    """Keeps each undirected pair once, smaller end first, sorted."""
    ordered = torch.stack([pairs.min(dim=0).values, pairs.max(dim=0).values])
    return torch.unique(ordered, dim=1) if ordered.shape[1] else ordered
