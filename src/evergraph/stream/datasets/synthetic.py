"""A generator: a degree-corrected block model with class-conditional features."""

from __future__ import annotations

from math import comb

import numpy as np
import torch
from pydantic import Field, model_validator

from evergraph.device import derive_seed
from evergraph.errors import InputError
from evergraph.stream.datasets.npz import Array
from evergraph.stream.graph import Graph
from evergraph.validation import Config

MAX_EDGES = 200_000_000
MAX_FEATURE_VALUES = 1_000_000_000
BLOCK = 1 << 22  # draws at a time: temporaries stay below a few hundred MB
WEIGHTED_ROUNDS = 20
LATE_SHARE = 0.2  # of edges in a graph that grows


class SyntheticConfig(Config):
    """What to generate; the same configuration and seed give the same graph."""

    nodes: int = Field(default=1000, ge=2, le=100_000_000)  # spread evenly over the classes
    classes: int = Field(default=6, ge=2, le=100_000)
    mean_degree: float = Field(default=8.0, ge=0, le=100_000)  # undirected edges per node, times 2
    homophily: float = Field(default=0.8, ge=0, le=1)  # share of edges inside a class
    feature_dim: int = Field(default=64, ge=1, le=100_000)
    #: Typical distance between two class means; around them is noise of unit variance.
    feature_signal: float = Field(default=1.0, ge=0, le=1000)
    degree_exponent: float = Field(default=2.5, gt=2, le=100)  # of expected degrees' power law
    #: Time steps over which the graph grows. Classes come evenly spread and go on growing; a fifth
    #: of the edges come later than both their ends.
    steps: int = Field(default=1, ge=1, le=10_000)
    seed: int = Field(default=0, ge=0)

    @property
    def num_edges(self) -> int:
        """Counts undirected edges to generate."""
        return round(self.nodes * self.mean_degree / 2)

    @model_validator(mode="after")
    def _check(self) -> SyntheticConfig:
        if self.classes > self.nodes:
            raise InputError(
                f"Expected 'classes' of at most 'nodes', {self.nodes} (got {self.classes}); "
                "lower it or add nodes."
            )
        if self.num_edges > MAX_EDGES:
            raise InputError(
                f"Expected 'mean_degree' of at most {2 * MAX_EDGES / self.nodes:g} for "
                f"{self.nodes} nodes (got {self.mean_degree:g}); lower it."
            )
        if self.nodes * self.feature_dim > MAX_FEATURE_VALUES:
            raise InputError(
                f"Expected 'feature_dim' of at most {MAX_FEATURE_VALUES // self.nodes} for "
                f"{self.nodes} nodes (got {self.feature_dim}); lower it."
            )
        wanted_inside = round(self.homophily * self.num_edges)
        size, larger = divmod(self.nodes, self.classes)
        inside = (self.classes - larger) * comb(size, 2) + larger * comb(size + 1, 2)
        for wanted, room in (
            (wanted_inside, inside),
            (self.num_edges - wanted_inside, comb(self.nodes, 2) - inside),
        ):
            if 2 * wanted > room:
                raise InputError(
                    f"Expected 'mean_degree' to fill at most half of the {room} pairs inside or "
                    f"between classes (got {self.mean_degree:g}, {wanted} edges); lower it or "
                    "add nodes."
                )
        return self


def generate(config: SyntheticConfig) -> Graph:
    """Generates the graph in time and memory that grow with its edges and features."""
    labels = np.arange(config.nodes) % config.classes
    _rng(config, "labels").shuffle(labels)
    keys = np.concatenate([_draw_edges(config, labels, inside=side) for side in (True, False)])
    edges = np.empty((2, keys.size), dtype=np.int64)
    np.divmod(keys, config.nodes, out=(edges[0], edges[1]))
    del keys
    features = torch.from_numpy(_features(config, labels))
    ends, y = torch.from_numpy(edges), torch.from_numpy(labels)
    if config.steps == 1:
        return Graph.build("synthetic", features, ends, y)
    time, edge_time = map(torch.from_numpy, _times(config, labels, edges))
    return Graph.build("synthetic", features, ends, y, time=time, edge_time=edge_time)


def _times(config: SyntheticConfig, labels: Array, edges: Array) -> tuple[Array, Array]:
    """Dates nodes and edges: every class has nodes in all steps from its first on."""
    by_class = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels, minlength=config.classes)
    rank = np.empty(config.nodes, dtype=np.int64)  # of each node in its class
    rank[by_class] = np.arange(config.nodes) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = labels * config.steps // config.classes
    time = first + rank % (config.steps - first)
    rng = _rng(config, "time")
    arrival = time[edges].max(axis=0)
    delay = (rng.random(arrival.size) * (config.steps - arrival)).astype(np.int64)
    late = rng.random(arrival.size) < LATE_SHARE
    return time, arrival + np.where(late, delay, 0)


def _features(config: SyntheticConfig, labels: Array) -> Array:
    rng = _rng(config, "features")
    # Two independent means differ by twice the variance of each, summed over the columns.
    scale = config.feature_signal / np.sqrt(2 * config.feature_dim)
    means = (scale * rng.standard_normal((config.classes, config.feature_dim))).astype(np.float32)
    features = rng.standard_normal((config.nodes, config.feature_dim), dtype=np.float32)
    rows = max(1, BLOCK // config.feature_dim)
    for start in range(0, config.nodes, rows):
        features[start : start + rows] += means[labels[start : start + rows]]
    return features


def _draw_edges(config: SyntheticConfig, labels: Array, inside: bool) -> Array:
    """Draws distinct pairs inside or between classes, as sorted keys ``low * n + high``."""
    wanted = round(config.homophily * config.num_edges)
    wanted = wanted if inside else config.num_edges - wanted
    rng = _rng(config, "edges", "inside" if inside else "between")
    draw = _PairSampler(config, labels, weighted=True)
    keys = np.empty(0, dtype=np.int64)
    rounds = 0
    while keys.size < wanted:
        if rounds == WEIGHTED_ROUNDS:  # hubs are joined to all they can be: fill evenly
            draw = _PairSampler(config, labels, weighted=False)
        missing = wanted - keys.size
        fresh = np.unique(draw.keys(missing + missing // 50 + 16, rng, inside))
        if keys.size:
            at = np.minimum(np.searchsorted(keys, fresh), keys.size - 1)
            fresh = fresh[keys[at] != fresh]
        if fresh.size > missing:
            fresh = np.delete(fresh, rng.choice(fresh.size, fresh.size - missing, replace=False))
        keys = np.concatenate([keys, fresh])
        keys.sort(kind="stable")  # two sorted runs: a merge
        rounds += 1
    return keys


class _PairSampler:
    """Draws both ends of edges by weight from a cumulative sum over nodes sorted by class."""

    def __init__(self, config: SyntheticConfig, labels: Array, weighted: bool) -> None:
        self.n = config.nodes
        self.order = np.argsort(labels, kind="stable").astype(np.int32)
        weights = np.ones(self.n)
        if weighted:
            uniform = _rng(config, "degrees").random(self.n)
            # The cap keeps a hub's expected degree below what distinct neighbours allow.
            power = (1 - uniform) ** (-1 / (config.degree_exponent - 1))
            weights = np.minimum(power, np.sqrt(self.n))[self.order]
        self.ends = np.cumsum(weights)
        self.total = float(self.ends[-1])
        last = np.cumsum(np.bincount(labels, minlength=config.classes)) - 1
        self.stop = self.ends[last]
        self.start = np.concatenate([[0.0], self.stop[:-1]])
        self.by_position = labels[self.order].astype(np.int32)
        self.ends[-1] = np.inf  # rounding must not lead past the last node

    def keys(self, count: int, rng: np.random.Generator, inside: bool) -> Array:
        """Draws ``count`` keys with repetition; self-loops are left out."""
        out = np.empty(count, dtype=np.int64)
        filled = 0
        for begin in range(0, count, BLOCK):
            block = self._block(min(BLOCK, count - begin), rng, inside)
            out[filled : filled + block.size] = block
            filled += block.size
        return out[:filled]

    def _block(self, count: int, rng: np.random.Generator, inside: bool) -> Array:
        first = np.searchsorted(self.ends, rng.random(count) * self.total, side="right")
        label = self.by_position[first]
        start, width = self.start[label], (self.stop - self.start)[label]
        if inside:
            point = start + rng.random(count) * width
        else:
            point = rng.random(count) * (self.total - width)
            point += np.where(point >= start, width, 0.0)  # step over the own class
        second = np.searchsorted(self.ends, point, side="right")
        # Rounding at a class border may pick the neighbour class: drop, never keep wrongly.
        keep = (first != second) & ((label == self.by_position[second]) == inside)
        u, v = self.order[first[keep]], self.order[second[keep]]
        keys: Array = np.minimum(u, v).astype(np.int64) * self.n + np.maximum(u, v)
        return keys


def _rng(config: SyntheticConfig, *purpose: str) -> np.random.Generator:
    return np.random.default_rng(derive_seed(config.seed, "synthetic", *purpose))
