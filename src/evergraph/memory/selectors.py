"""Selectors but DSLR's: random, k-means, those of ER-GNN, ContinualGNN and PDGNN."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evergraph.kernels.ops import count_within, distance_blocks
from evergraph.memory.buffer import SelectionPool
from evergraph.stream.features import SparseRows


@dataclass(frozen=True)
class Random:
    """Keeps nodes drawn without replacement; the draw is kept as an order."""

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Draws an order of the class's nodes and returns its beginning."""
        nodes = pool.nodes[pool.rows_of(label)]
        order = torch.randperm(nodes.numel(), generator=pool.generator)
        return nodes[order.to(nodes.device)][:budget]


@dataclass(frozen=True)
class MeanFeature:
    """Keeps the nodes closest to their class's mean (MF of ER-GNN)."""

    of_features: bool = False  # measure in the space of input features instead of embeddings

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Orders the class's nodes by distance to their mean, nearest first."""
        rows = pool.rows_of(label)
        nodes = pool.nodes[rows]
        points = pool.features[nodes] if self.of_features else pool.h[rows]
        return nodes[torch.argsort(_distance_to_mean(points), stable=True)][:budget]


@dataclass(frozen=True)
class CoverageMaximization:
    r"""Keeps the nodes with the fewest foreign ones around them (CM of ER-GNN).

    Foreign are the pool's nodes of other classes nearer than :math:`r \bar d`, with
    :math:`\bar d` the mean distance between all of the pool's nodes.
    """

    r: float

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Orders the class's nodes by how many foreign nodes are near, fewest first."""
        rows = pool.rows_of(label)
        foreign = pool.h[pool.labels != label]
        counts = count_within(foreign, pool.h[rows], self.r * pool.mean_distance)
        return pool.nodes[rows][torch.argsort(counts, stable=True)][:budget]


@dataclass(frozen=True)
class InfluenceMaximization:
    """Keeps the nodes whose loss moves the head most: largest ‖I(v)‖ first (IM of ER-GNN)."""

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Orders the class's nodes by influence."""
        rows = pool.rows_of(label)
        # Single precision makes equal what is equal up to rounding, so that ids decide.
        order = torch.argsort(pool.influence[rows].float(), descending=True, stable=True)
        return pool.nodes[rows][order][:budget]


@dataclass(frozen=True)
class HopCoverage:
    r"""Draws nodes by how much of the pool is near them in the graph (TEM of PDGNN).

    Node :math:`v` is drawn with a probability proportional to the number of the pool's nodes within
    two steps, itself included; without replacement, in an order that is kept.
    """

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Draws an order of the class's nodes and returns its beginning."""
        rows = pool.rows_of(label)
        sizes = pool.near[rows].cpu()
        # The largest of log p plus Gumbel noise is a draw by p; the order of all is one of draws.
        noise = torch.rand(rows.numel(), dtype=torch.float64, generator=pool.generator)
        order = torch.argsort(sizes.log() - torch.log(-torch.log1p(-noise)), descending=True)
        return pool.nodes[rows[order.to(rows.device)]][:budget]


def _distance_to_mean(x: Tensor | SparseRows) -> Tensor:
    """Computes ‖x_i − mean‖² for every row; sparse rows are never made dense."""
    if isinstance(x, Tensor):
        return (x.double() - x.double().mean(dim=0)).square().sum(dim=1)
    values, m = x.values.double(), x.shape[0]
    mean = values.new_zeros(x.num_columns).index_add_(0, x.indices, values) / m
    # ‖x − μ‖² = ‖μ‖² + Σ over stored entries of (v² − 2 v μ)
    terms = values.square() - 2 * values * mean[x.indices]
    return values.new_zeros(m).index_add_(0, x.row_index(), terms) + mean.square().sum()


@dataclass(frozen=True)
class KMeansCenters:
    """Keeps the nodes closest to the centres of k-means within their class.

    Centres take turns, that of the largest cluster first; each gives its nearest node that
    is not taken yet, whichever cluster that belongs to.
    """

    num_centers: int = 5  # k; fewer where a class has fewer distinct embeddings

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


@dataclass(frozen=True)
class Importance:
    r"""Keeps a reservoir that nodes with neighbours of other classes enter more easily.

    A class's nodes arrive by ascending id and are stored until its budget :math:`m_c` is
    spent. From then on the :math:`n_c`-th replaces a random stored one with probability
    :math:`\min(1, (m_c / n_c)(1 + \alpha \, imp(v)))`. When a class comes again, the nodes
    in the pool count, not those forgotten in between.

    A smaller budget is another reservoir, not a prefix. Where the buffer cuts a class down
    later it keeps the first places; replacements fall on all places alike.
    """

    alpha: float = 1.0  # α, how much importance adds; 1 in the paper

    def rank(self, pool: SelectionPool, label: int, budget: int) -> Tensor:
        """Returns what the reservoir holds in the end, place by place."""
        nodes = pool.nodes[pool.rows_of(label)]
        budget = min(budget, nodes.numel())
        arrival = torch.arange(budget, nodes.numel())
        if budget == 0 or arrival.numel() == 0:
            return nodes[:budget]
        boost = 1 + self.alpha * importance(pool, nodes[budget:]).cpu()
        enters = torch.rand(arrival.shape, dtype=torch.float64, generator=pool.generator) < (
            budget / (arrival + 1) * boost
        )
        place = torch.randint(budget, arrival.shape, generator=pool.generator)
        # Whoever comes to a place last stays: the largest arrival.
        held = torch.arange(budget).scatter_reduce(0, place[enters], arrival[enters], "amax")
        return nodes[held.to(nodes.device)]


def importance(pool: SelectionPool, nodes: Tensor) -> Tensor:
    r"""Computes :math:`\sigma(10 s - 5)` of each node, float64 ``[m]``.

    :math:`s` is the number of neighbours with another label over one more than the number
    with any label. Labels are those of the pool and of the buffer; no other may be read.
    """
    known = torch.full_like(pool.adjacency.degree, -1)
    if pool.kept is not None:
        known[pool.kept.nodes] = pool.kept.labels
    known[pool.nodes] = pool.labels
    owner, neighbor = pool.adjacency.edges_into(nodes)
    labelled = known[neighbor] >= 0
    differs = labelled & (known[neighbor] != known[nodes][owner])
    total = torch.bincount(owner[labelled], minlength=nodes.numel())
    other = torch.bincount(owner[differs], minlength=nodes.numel())
    return torch.sigmoid(10 * other.double() / (total + 1) - 5)
