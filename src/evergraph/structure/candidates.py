"""Candidates: the nodes that a replayed node may be connected to (Eq. 9)."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.memory.distances import distance_blocks


def nearest_nodes(h: Tensor, nodes: Tensor, count: int, among: Tensor | None = None) -> Tensor:
    """Finds for each of ``nodes`` the ``count`` nearest other nodes by ``h`` (Eq. 9).

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
