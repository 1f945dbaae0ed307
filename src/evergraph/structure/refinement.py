"""Structure inference: candidates for new edges of replayed nodes, then the edit (Eq. 9-11)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.kernels.ops import BLOCK_ENTRIES, distance_blocks
from evergraph.stream.adjacency import Adjacency, runs
from evergraph.structure.link_predictor import StructureConfig, link_scores


def nearest_nodes(h: Tensor, nodes: Tensor, count: int, among: Tensor | None = None) -> Tensor:
    """Finds for each of ``nodes`` the ``count`` nearest other nodes by ``h`` (Eq. 11).

    Args:
        h: Embeddings of all nodes seen, ``[n, d]``.
        nodes: Replayed nodes, ``[b]``.
        count: K; capped at the number of other nodes.
        among: Nodes that may be found, all by default, ``[m]``.

    Returns:
        Node ids, nearest first, ``[b, min(count, others)]``. Distances are computed in
        blocks, so that memory does not grow with ``b × n``.
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
    """Edits the neighbourhood of replayed nodes by link score.

    Args:
        adjacency: The task's own untouched graph.
        nodes: Replayed nodes to refine, ``[b]``.
        candidates: Candidates of each, ``[b, K]``; None considers all nodes seen.
        z: Embeddings of the link predictor, ``[n, d]``.
        config: τ, N and how each is used.

    Returns:
        The edited graph and what changed. Edges added are not candidates for deletion.
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
    width = adjacency.num_nodes if candidates is None else candidates.shape[1]
    everyone = torch.arange(adjacency.num_nodes, device=adjacency.device)
    # A block of rows costs width × d numbers each.
    step = max(1, BLOCK_ENTRIES // max(width * z.shape[1], 1))
    chosen = [torch.empty(2, 0, dtype=torch.int64, device=adjacency.device)]
    for begin in range(0, nodes.numel(), step):
        rows = nodes[begin : begin + step]
        options = (
            everyone.expand(rows.numel(), -1)
            if candidates is None
            else candidates[begin : begin + step]
        )
        scores = candidate_scores(adjacency, rows, options, z, config.add_among == "any")
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
