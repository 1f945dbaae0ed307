r"""Novelty: how unlike all known classes a node is, and which nodes look like a new one.

A node of a known class lies among nodes that were labelled. With :math:`s` the share of labelled
ones among the :math:`K` nodes most like it (by embedding) and :math:`s_c` the same share around
labelled nodes that are given its class :math:`c`,

.. math:: r = \min\Bigl(1, \frac{K s + 1}{K s_c + 1}\Bigr), \qquad \text{novelty} = 1 - r \sqrt p,

with :math:`p` the probability of its class, and :math:`r` averaged with the mean over its
neighbours. That is a density ratio: it sees a class that nobody has labelled where it is dense,
however sure the classifier is of it; where nodes are few or all are labelled, :math:`p` decides.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.propagation import evenly_spaced
from evergraph.errors import InputError
from evergraph.estimator.graph import Array
from evergraph.estimator.state import State

#: Nodes most like one that are looked at.
NEAREST = 50
#: Most labelled nodes, and as many others, that nodes are compared with.
COMPARED = 12_000
#: Dimensions of embeddings in which nodes are compared, and nodes that these are found on.
DIMENSIONS, MEASURED = 64, 4_000
#: Share of known nodes that may be refused where nobody says.
REJECT = 0.05
#: The most groups, and the fewest nodes of one on average.
MOST_GROUPS, FEWEST = 8, 10
#: Most of the last nodes that a diagnosis looks at; standard errors above chance that it tells.
LOOKED_AT, SURELY = 5_000, 3


class Novelty:
    """Scores nodes of a state, or of one that sees further nodes; made once for every state."""

    def __init__(self, state: State, device: torch.device) -> None:
        self.state, self.device = state, device
        shown = torch.zeros(state.graph.num_nodes, dtype=torch.bool)
        shown[state.shown.tensor] = True
        parts = [torch.nonzero(mask).flatten() for mask in (shown, ~shown)]
        parts = [part[evenly_spaced(part.numel(), COMPARED, part.device)] for part in parts]
        self.compared = torch.cat(parts).sort().values
        self.labelled = shown[self.compared].numpy()
        self._judged: tuple[Array, Array] | None = None  # held-out nodes: novelty, summed weights
        self._fit()

    @classmethod
    def of(cls, state: State, device: torch.device) -> Novelty:
        """Returns the detector of a state."""
        if "_novelty" not in state.__dict__:
            state.__dict__["_novelty"] = cls(state, device)
        found: Novelty = state.__dict__["_novelty"]
        return found

    def _fit(self) -> None:
        """Finds the space to compare in, and the usual share of labelled nodes by class."""
        from sklearn.decomposition import PCA  # noqa: PLC0415 - slow to import
        from sklearn.neighbors import NearestNeighbors  # noqa: PLC0415 - as above

        few = self.compared[evenly_spaced(self.compared.numel(), MEASURED, self.compared.device)]
        x = self.state.embeddings(self.device, few).numpy()
        self._pca: Any = None
        if min(x.shape) > DIMENSIONS:
            seed = self.state.config.parameters.seed
            self._pca = PCA(DIMENSIONS, svd_solver="randomized", random_state=seed).fit(x)
        self._nearest = min(NEAREST, len(self.compared) - 1)
        given = self.state.logits(self.device, self.compared).argmax(dim=1).numpy()
        self._usual = np.zeros(len(self.state.classes))
        self._known = torch.full((self.state.graph.num_nodes,), torch.nan, dtype=torch.float64)
        if self._nearest < 1:
            return
        space = self.embed(self.state, self.compared)
        self._search = NearestNeighbors(n_neighbors=self._nearest + 1).fit(space)
        shares = self._shares(space, np.arange(len(space)))
        for label in range(len(self.state.classes)):
            mine = shares[self.labelled & (given == label)]
            self._usual[label] = mine.mean() if mine.size else shares[self.labelled].mean()
        self._known[self.compared] = torch.from_numpy(self._ratio(shares, given))

    def embed(self, state: State, rows: Tensor) -> Array:
        """Returns nodes in the space that they are compared in, ``[m, b]``."""
        parts = []
        for part in torch.split(rows, MEASURED):
            x = state.embeddings(self.device, part).numpy()
            parts.append(x if self._pca is None else self._pca.transform(x))
        return np.concatenate(parts)

    def _shares(self, space: Array, own: Array) -> Array:
        """Returns the share of labelled nodes among the nearest but a node itself, ``[m]``."""
        near = self._search.kneighbors(space, return_distance=False)
        itself = near == own[:, None]
        itself[~itself.any(axis=1), -1] = True  # the last goes where it is not among them
        shares: Array = np.where(itself, 0, self.labelled[near]).sum(axis=1) / self._nearest
        return shares

    def _ratio(self, shares: Array, given: Array) -> Array:
        count = self._nearest
        ratio: Array = np.minimum((count * shares + 1) / (count * self._usual[given] + 1), 1)
        return ratio

    def scores(self, state: State, rows: Tensor) -> Array:
        """Returns the novelty of nodes, 0 to 1, ``[m]``; rows may come from an extended state."""
        logits = state.logits(self.device, rows)
        best = state.probabilities(logits).max(dim=1).values.numpy()
        if self._nearest < 1 or not rows.numel():
            return np.asarray(1 - np.sqrt(best))
        wanted, place = torch.unique(rows, return_inverse=True)
        n = len(self._known)
        ratio = torch.full((wanted.numel(),), torch.nan, dtype=torch.float64)
        ratio[wanted < n] = self._known[wanted[wanted < n]]
        far = ratio.isnan()
        if bool(far.any()):
            given = torch.empty(wanted.numel(), dtype=torch.int64)
            given[place] = logits.argmax(dim=1)
            shares = self._shares(self.embed(state, wanted[far]), np.full(int(far.sum()), -1))
            ratio[far] = torch.from_numpy(self._ratio(shares, given[far].numpy()))
        around = self._around(state, wanted)
        ratio = torch.where(around.isnan(), ratio, (ratio + around) / 2)
        found: Array = 1 - ratio[place].numpy() * np.sqrt(best)
        return found

    def _around(self, state: State, wanted: Tensor) -> Tensor:
        """Averages the ratio over those neighbours of nodes that it is known of, NaN if none."""
        field = state.graph.field(wanted, 1)
        assert isinstance(field.features, Tensor)
        assert isinstance(field.graphs, tuple)
        edges, known = field.graphs[0], self._known
        source = field.features[edges.src]
        value = torch.full(source.shape, torch.nan, dtype=torch.float64)
        value[source < len(known)] = known[source[source < len(known)]]
        good = ~value.isnan()
        sums = torch.zeros(wanted.numel(), dtype=torch.float64)
        sums.index_add_(0, edges.dst[good], value[good])
        return sums / torch.bincount(edges.dst[good], minlength=wanted.numel())

    def threshold(self, reject: float) -> float:
        """Returns the novelty that a share ``reject`` of held-out nodes is above.

        It is the conformal quantile: a node of a known class, exchangeable with those held out, is
        refused with at most that probability. Judges weigh as they do for probabilities.
        """
        if not isinstance(reject, float | int) or not 0 < reject < 1:
            raise InputError(f"Expected 'reject' between 0 and 1 (got {reject!r}); give 0.05.")
        judges, weights = self.state.shifted_judges(self.device)
        count = judges.numel()
        if count < math.ceil(1 / reject) - 1:
            raise InputError(
                f"Expected at least {math.ceil(1 / reject) - 1} held-out nodes to refuse "
                f"{100 * reject:g} % (got {count}); learn more labels with a "
                "'validation_fraction' above 0."
            )
        if self._judged is None:
            scores = self.scores(self.state, judges)
            order = np.argsort(scores)
            self._judged = scores[order], np.cumsum(weights[order])
        scores, below = self._judged
        wanted = (1 - reject) * below[-1] * (1 + 1 / count)  # one more node, as novel as can be
        return float(scores[min(np.searchsorted(below, wanted * (1 - 1e-9)), count - 1)])


def novel_nodes(
    state: State, device: torch.device, reject: float = REJECT, rows: Tensor | None = None
) -> tuple[Tensor, Array, Array]:
    """Finds nodes without a label that fit no known class, the most novel first.

    Returns their rows, their novelty and their group from 1 on, the largest first. Nodes of a group
    are alike (k-means; the number of best silhouette), which one new class may be, or a part.
    """
    detector = Novelty.of(state, device)
    asked = state.unlabelled() if rows is None else rows
    scores, limit = detector.scores(state, asked), detector.threshold(reject)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > limit]
    found = asked[torch.from_numpy(order)]
    groups = np.ones(order.size, dtype=np.int64)
    if order.size >= 2 * FEWEST:
        groups = _groups(detector.embed(state, found), state.config.parameters.seed)
    return found, scores[order], groups


def _groups(space: Array, seed: int) -> Array:
    from sklearn.cluster import KMeans  # noqa: PLC0415 - slow to import
    from sklearn.metrics import silhouette_score  # noqa: PLC0415 - as above

    best = (-1.0, np.zeros(len(space), dtype=np.int64))
    for count in range(2, min(MOST_GROUPS, len(space) // FEWEST) + 1):
        labels = KMeans(count, n_init=3, random_state=seed).fit_predict(space)
        if np.unique(labels).size > 1:
            size = min(len(space), MEASURED)
            good = silhouette_score(space, labels, sample_size=size, random_state=seed)
            best = max(best, (float(good), labels), key=lambda pair: pair[0])
    counts = np.bincount(best[1])
    rank = np.empty_like(counts)
    rank[np.argsort(-counts, kind="stable")] = np.arange(1, counts.size + 1)
    return rank[best[1]]


def last_novel(state: State, device: torch.device) -> dict[str, Any] | None:
    """Counts those of the last nodes without a label that fit no known class; None: nobody knows.

    ``surely`` tells whether they are more than chance and few held-out nodes explain.
    """
    held = state.held_out.pairs.length
    if not state.classes or held < math.ceil(1 / REJECT) - 1:
        return None
    rows, first = state.unlabelled(), 0
    for entry in reversed(state.history):
        if entry.removed_nodes:
            break
        if entry.new_nodes:
            first = state.graph.num_nodes - entry.new_nodes
            break
    last = rows[rows >= first]
    asked = last[evenly_spaced(last.numel(), LOOKED_AT, last.device)]
    if not asked.numel():
        return None
    found, _, groups = novel_nodes(state, device, rows=asked)
    count, m = found.numel(), asked.numel()
    noise = math.sqrt(REJECT * (1 - REJECT) * m * (1 + m / held))
    return {
        "last": last.numel(),
        "asked": m,
        "novel": count,
        "expected": round(REJECT * m),
        "surely": count > REJECT * m + SURELY * noise,
        "groups": np.bincount(groups)[1:].tolist() if count else [],
    }
