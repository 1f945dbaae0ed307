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
def has_edges(
    head: Array, following: Array, ends: Array, limit: int, first: Array, second: Array
) -> Array:
    """Tells for each pair whether it is an edge, in the time of the smaller degree."""
    found = np.zeros(first.size, dtype=np.bool_)
    for pair in range(first.size):
        a, b = first[pair], second[pair]
        of_a, of_b = head[a], head[b]
        while of_a >= 0 and of_b >= 0 and not found[pair]:
            here = of_a < limit and ends[of_a ^ 1] == b
            found[pair] = here or (of_b < limit and ends[of_b ^ 1] == a)
            of_a, of_b = following[of_a], following[of_b]
    return found


@njit(cache=True)
def reach(
    head: Array, following: Array, ends: Array, limit: int, nodes: Array, depth: int
) -> tuple[Array, int]:
    """Lists nodes and all within ``depth`` steps, each once, and how many are nearer than that."""
    seen = np.zeros(head.size, dtype=np.bool_)
    found = np.empty(head.size, dtype=np.int64)
    count = inner = 0
    for node in nodes:
        if not seen[node]:
            seen[node] = True
            found[count] = node
            count += 1
    begin = 0
    for _ in range(depth):
        begin, inner = inner, count
        for at in range(begin, inner):
            end = head[found[at]]
            while end >= 0:
                if end < limit and not seen[ends[end ^ 1]]:
                    found[count] = ends[end ^ 1]
                    seen[found[count]] = True
                    count += 1
                end = following[end]
    return found[:count].copy(), inner


@njit(cache=True)
def neighbours(
    head: Array, following: Array, ends: Array, limit: int, nodes: Array, counts: Array
) -> Array:
    """Lists the neighbours of nodes, ascending and node after node; each has so many."""
    found = np.empty(counts.sum(), dtype=np.int64)
    count = 0
    for at in range(nodes.size):
        first, end = count, head[nodes[at]]
        while end >= 0:
            if end < limit:
                found[count] = ends[end ^ 1]
                count += 1
            end = following[end]
        found[first:count].sort()
    return found
