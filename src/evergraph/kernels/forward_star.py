"""The loops over a forward star: every node's edges as a chain, the newest first.

Edge ``e`` has two ends, ``2e`` and ``2e + 1`` of ``ends``; ``head`` holds every node's newest end,
``following`` the next one of the same node, −1 at the last. Ends from ``limit`` on came later than
the graph that is asked about, and are passed over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

Array = np.ndarray[Any, np.dtype[Any]]


@njit(cache=True)
def extend(head: Array, following: Array, degree: Array, ends: Array, first: int) -> None:
    """Puts the ends from ``first`` on before the chains of their nodes, and counts them."""
    for end in range(first, ends.size):
        following[end] = head[ends[end]]
        head[ends[end]] = end
        degree[ends[end]] += 1


@njit(cache=True)
def find_edges(
    head: Array, following: Array, ends: Array, limit: int, first: Array, second: Array
) -> Array:
    """Returns the edge that joins each pair, −1 without one, in the time of the smaller degree."""
    found = np.full(first.size, -1, dtype=np.int64)
    for pair in range(first.size):
        a, b = first[pair], second[pair]
        of_a, of_b = head[a], head[b]
        while of_a >= 0 and of_b >= 0 and found[pair] < 0:
            if of_a < limit and ends[of_a ^ 1] == b:
                found[pair] = of_a >> 1
            elif of_b < limit and ends[of_b ^ 1] == a:
                found[pair] = of_b >> 1
            of_a, of_b = following[of_a], following[of_b]
    return found


@njit(cache=True)
def reach(
    head: Array,
    following: Array,
    ends: Array,
    limit: int,
    nodes: Array,
    depth: int,
    degree: Array,
    place: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    """Lists nodes and all within ``depth`` steps, each once, the nearest first.

    Returns them; how many are within 0, 1, … steps, ``[depth + 1]``; for each of those that are
    nearer than ``depth``, and so come first, the number of its neighbours; where these neighbours
    are in the list, one node's after the other's; and the ends that the edges from them arrive at.
    ``degree`` counts at least what ``limit`` lets pass. ``place`` is a zero for every node, from
    the system rather than from here, where filling them in would take the time of all nodes.
    """
    within = np.empty(depth + 1, dtype=np.int64)
    found = np.empty(head.size, dtype=np.int64)
    counts = near = via = np.empty(0, dtype=np.int64)
    num_found = inner = 0
    for node in nodes:
        if not place[node]:
            found[num_found] = node
            num_found += 1
            place[node] = num_found  # 0: not seen, otherwise one more
    within[0] = num_found
    for step in range(depth):
        begin, inner = inner, num_found
        met, arrived = _follow(head, following, limit, found[begin:inner], degree)
        at = np.empty(arrived.size, dtype=np.int64)
        for k, other in enumerate(ends[arrived ^ 1]):
            if not place[other]:
                found[num_found] = other
                num_found += 1
                place[other] = num_found
            at[k] = place[other] - 1
        counts, near = np.concatenate((counts, met)), np.concatenate((near, at))
        via = np.concatenate((via, arrived))
        within[step + 1] = num_found
    return found[:num_found].copy(), within, counts, near, via


@njit(cache=True)
def _follow(
    head: Array, following: Array, limit: int, nodes: Array, degree: Array
) -> tuple[Array, Array]:
    """Returns how many ends each node has, and all of them, one node's after the other's.

    Chains are followed side by side: memory that is far away is waited for once, not for each end.
    """
    counts, room, current = np.zeros(nodes.size, dtype=np.int64), degree[nodes], head[nodes]
    first, going = np.cumsum(room) - room, np.flatnonzero(current >= 0)
    arrived = np.full(room.sum(), -1)
    while going.size:
        still = 0
        for k in range(going.size):
            at = going[k]
            end = current[at]
            if end < limit:
                arrived[first[at] + counts[at]] = end
                counts[at] += 1
            current[at] = following[end]
            going[still] = at
            still += current[at] >= 0
        going = going[:still]
    return counts, arrived[arrived >= 0]
