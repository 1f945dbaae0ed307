"""k-means selection: the nodes closest to the centres of their class's clusters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.kernels.ops import distance_blocks
from evergraph.memory.buffer import SelectionPool


@dataclass(frozen=True)
class KMeansCenters:
    """Keeps the nodes closest to the centres of k-means within their class.

    Centres take turns, that of the largest cluster first; each gives its nearest node that
    is not taken yet, whichever cluster that belongs to.

    Args:
        num_centers: k; fewer where a class has fewer distinct embeddings.
    """

    num_centers: int = 5

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Clusters one class and lets the centres choose in turns."""
        rows = pool.rows_of(label)
        seed = int(torch.randint(2**31 - 1, (), generator=pool.generator))
        h = pool.h[rows].double().cpu()
        centers = cluster_centers(h, min(self.num_centers, len(torch.unique(h, dim=0))), seed)
        distance = torch.cat([block for _, block in distance_blocks(centers, h)])  # [k, m]
        sizes = torch.bincount(distance.argmin(dim=0), minlength=centers.shape[0])
        nearest = torch.argsort(distance, dim=1, stable=True)
        turns = nearest[torch.argsort(sizes, descending=True, stable=True)]
        return pool.nodes[rows][take_turns(turns, budget).to(rows.device)]


def cluster_centers(h: Tensor, num_centers: int, seed: int) -> Tensor:
    """Finds the centres ``[k, d]`` of k-means, the best of scikit-learn's ten starts."""
    from sklearn.cluster import KMeans  # noqa: PLC0415 - a second of import that few runs need
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - it comes with scikit-learn

    kmeans = KMeans(num_centers, n_init=10, random_state=seed)
    with threadpool_limits(limits=1):  # threads would add up in any order: other bits every time
        kmeans.fit(h.numpy())
    return torch.from_numpy(kmeans.cluster_centers_)


def take_turns(preferences: Tensor, budget: int) -> Tensor:
    """Lets rows of preferences ``[k, m]`` take one column each in turn, ``[budget]``.

    In every turn a row takes the first of its columns that nobody has taken yet.
    """
    wishes = [iter(row) for row in preferences.tolist()]
    taken: dict[int, None] = {}  # keeps the order
    while len(taken) < min(budget, preferences.shape[1]):
        for wish in wishes:
            free = next((column for column in wish if column not in taken), None)
            if free is not None:
                taken[free] = None
    return torch.tensor(list(taken), dtype=torch.int64)[:budget]
