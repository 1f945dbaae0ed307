r"""Novelty: how unlike all known classes a node is, and which nodes look like a new one.

Nodes of a known class lie among labelled ones. A forest tells these from others by embedding and
probabilities. With :math:`g` the chance that it gives a node to be labelled (by trees that did not
see the node), :math:`g_c` its mean over labelled nodes of the same predicted class and :math:`p`
the probability of that class,

.. math:: \text{novelty} = 1 - \min(1, g / g_c) \sqrt p.

The first factor sees a class that nobody has labelled, however sure the classifier is of it, once
enough of its nodes are there; before that it is about 1 and :math:`p` decides.
"""

from __future__ import annotations

import math
import warnings
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from evergraph.device import evenly_spaced
from evergraph.errors import InputError
from evergraph.estimator.graph import Array
from evergraph.estimator.near import embeddings
from evergraph.estimator.state import State
from evergraph.metrics import quantile

#: Most labelled nodes, and as many others, that the forest learns from.
COMPARED = 12_000
#: Dimensions of embeddings that it sees, and nodes that these are found on.
DIMENSIONS, MEASURED = 64, 4_000
#: Its trees, and the fewest nodes of a leaf: fewer would tell communities of one class apart.
TREES, LEAF = 100, 20
#: Share of known nodes that may be refused where nobody says.
REJECT = 0.05
#: The most groups, and the fewest nodes of one on average.
MOST_GROUPS, FEWEST = 8, 10
#: Most of the last nodes that a diagnosis looks at; standard errors above chance that it tells.
LOOKED_AT, SURELY = 5_000, 3


class Novelty:
    """Scores nodes of a state, or of one that sees further nodes; made once for every state."""

    def __init__(self, state: State, device: torch.device) -> None:
        self.state, self.device, self.seed = state, device, state.config.parameters.seed
        shown = torch.zeros(state.graph.num_nodes, dtype=torch.bool)
        shown[state.shown.tensor] = True
        parts = [torch.nonzero(mask).flatten() for mask in (shown, ~shown)]
        parts = [part[evenly_spaced(part.numel(), COMPARED, part.device)] for part in parts]
        self._usual = np.ones(len(state.classes))  # g_c
        # g of the nodes that the forest learned from, NaN for others, of which new ones are last.
        self._known = np.ones(len(shown) + 1)
        if min(part.numel() for part in parts) > LEAF:
            self._known[:] = np.nan
            self._fit(nodes := torch.cat(parts).sort().values, shown[nodes].numpy())

    @classmethod
    def of(cls, state: State, device: torch.device) -> Novelty:
        """Returns the detector of a state; new nodes beside one are seen by that one's."""
        known = state.beside or state
        found: Novelty = known.once("novelty", lambda: cls(known, device))
        return found

    def _fit(self, nodes: Tensor, labelled: Array) -> None:
        """Grows the forest twice: the second weighs so that labels are equally usual by class."""
        from sklearn.ensemble import ExtraTreesClassifier  # noqa: PLC0415 - slow to import

        proba, weights = self._probabilities(self.state, nodes), np.ones(len(nodes))
        given, x = proba.argmax(axis=1), np.hstack([self.embed(self.state, nodes), proba])
        for _ in range(2):
            self._forest = ExtraTreesClassifier(
                TREES, min_samples_leaf=LEAF, bootstrap=True, oob_score=True, random_state=self.seed
            )
            with warnings.catch_warnings():  # heavy nodes that every tree saw: they have no chance
                warnings.filterwarnings("ignore", "Some inputs do not have OOB", UserWarning)
                self._forest.fit(x, labelled, sample_weight=weights)
            chance = self._forest.oob_decision_function_[:, 1]
            seen = labelled & ~np.isnan(chance)
            for label in range(len(self._usual)):
                mine = chance[seen & (given == label)]
                self._usual[label] = max((mine if mine.size else chance[seen]).mean(), 1e-3)
            weights = np.where(labelled, (1 / self._usual - 1)[given].clip(min=1e-3), 1.0)
        self._known[nodes.numpy()] = chance

    def _probabilities(self, state: State, rows: Tensor) -> Array:
        return state.probabilities(state.logits(self.device, rows)).numpy()

    @cached_property
    def _pca(self) -> Any:
        from sklearn.decomposition import PCA  # noqa: PLC0415 - slow to import

        some = evenly_spaced(self.state.graph.num_nodes, MEASURED, torch.device("cpu"))
        x = embeddings(self.state, self.device, some)
        count = min(DIMENSIONS, *x.shape)
        return PCA(count, svd_solver="randomized", random_state=self.seed).fit(x.numpy())

    def embed(self, state: State, rows: Tensor) -> Array:
        """Returns principal components of nodes' embeddings, ``[m, b]``."""
        parts = (embeddings(state, self.device, part) for part in torch.split(rows, MEASURED))
        return np.concatenate([self._pca.transform(part.numpy()) for part in parts])

    def scores(self, state: State, rows: Tensor) -> Array:
        """Returns the novelty of nodes, 0 to 1, ``[m]``; rows may come from an extended state."""
        proba = self._probabilities(state, rows)
        chance = self._known[rows.clamp(max=len(self._known) - 1).numpy()]
        far = np.isnan(chance)
        if far.any():
            x = np.hstack([self.embed(state, rows[torch.from_numpy(far)]), proba[far]])
            chance[far] = self._forest.predict_proba(x)[:, 1]
        ratio = np.minimum(1, chance / self._usual[proba.argmax(axis=1)])
        return np.asarray(1 - ratio * np.sqrt(proba.max(axis=1)))

    def refuse(self, state: State, rows: Tensor, reject: float) -> tuple[Array, Array]:
        """Returns the novelty of nodes, and which are to be refused, both ``[m]``.

        A share ``reject`` of the held-out nodes, which weigh as for probabilities, is as novel.
        """
        if not isinstance(reject, float | int) or not 0 < reject < 1:
            raise InputError(f"Expected 'reject' between 0 and 1 (got {reject!r}); give 0.05.")
        held, weights = self._judged
        if held.size < least_held_out(reject):
            raise InputError(
                f"Expected at least {least_held_out(reject)} held-out nodes to refuse "
                f"{100 * reject:g} % (got {held.size}); learn more labels with a "
                "'validation_fraction' above 0."
            )
        scores = self.scores(state, rows)
        return scores, scores > quantile(held, weights, 1 - reject)

    @cached_property
    def _judged(self) -> tuple[Array, Array]:
        """Novelty of held-out nodes, and their weights."""
        judges, weights = self.state.judges()[0], self.state.shifted(self.device)[1]
        return self.scores(self.state, judges.nodes), weights


def least_held_out(reject: float) -> int:
    """Counts the held-out nodes without which nobody can tell which share is refused."""
    return math.ceil(1 / reject) - 1


class Novel(NamedTuple):
    """Nodes that fit no known class, the most novel first."""

    rows: Tensor  # [m]
    scores: Array  # [m], their novelty
    groups: Array  # [m], from 1 on, the largest first: nodes that are alike
    told: dict[str, Any]  # counts; whether there are ``surely`` more than chance explains


def novel_nodes(
    state: State, device: torch.device, reject: float = REJECT, rows: Tensor | None = None
) -> Novel:
    """Finds nodes that fit no known class, among all without a label by default.

    Groups are by k-means, with the number of best silhouette: a new class, or a part of one.
    """
    asked = state.unlabelled() if rows is None else rows
    detector = Novelty.of(state, device)
    scores, refused = detector.refuse(state, asked, reject)
    order = np.argsort(-scores, kind="stable")
    order = order[refused[order]]
    found, groups = asked[torch.from_numpy(order)], np.ones(order.size, dtype=np.int64)
    if order.size >= 2 * FEWEST:
        groups = _groups(detector.embed(state, found), detector.seed)
    count, held = asked.numel(), state.held_out.pairs.length
    noise = math.sqrt(reject * (1 - reject) * count * (1 + count / held))
    told = {
        "asked": count,
        "novel": order.size,
        "expected": round(reject * count),
        "surely": order.size > reject * count + SURELY * noise,
        "groups": np.bincount(groups)[1:].tolist(),
    }
    return Novel(found, scores[order], groups, told)


def _groups(space: Array, seed: int) -> Array:
    from sklearn.cluster import KMeans  # noqa: PLC0415 - slow to import
    from sklearn.metrics import silhouette_score  # noqa: PLC0415 - as above

    def good(labels: Array) -> float:
        size, several = min(len(space), MEASURED), np.unique(labels).size > 1
        how = {"sample_size": size, "random_state": seed}
        return float(silhouette_score(space, labels, **how)) if several else -1.0

    counts = range(2, min(MOST_GROUPS, len(space) // FEWEST) + 1)
    means = (KMeans(count, n_init=3, random_state=seed) for count in counts)
    found = max((mean.fit_predict(space) for mean in means), key=good)
    largest = np.argsort(-np.bincount(found), kind="stable")
    return np.asarray(1 + np.argsort(largest)[found])


def last_novel(state: State, device: torch.device) -> dict[str, Any] | None:
    """Counts novel nodes among the last ones without a label; None: nobody knows."""
    if not state.classes or state.held_out.pairs.length < least_held_out(REJECT):
        return None
    moved = next(e for e in reversed(state.history) if e.removed_nodes or e.new_nodes)
    first = 0 if moved.removed_nodes else state.graph.num_nodes - moved.new_nodes
    last = (rows := state.unlabelled())[rows >= first]
    asked = last[evenly_spaced(last.numel(), LOOKED_AT, last.device)]
    if not asked.numel():
        return None
    return {"last": last.numel(), **novel_nodes(state, device, rows=asked).told}
