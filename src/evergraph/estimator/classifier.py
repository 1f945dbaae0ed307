"""ContinualNodeClassifier: a node classifier for a graph that keeps growing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from evergraph.device import pick_device, trim_memory
from evergraph.errors import InputError, no_effect, warn
from evergraph.estimator.config import make_config
from evergraph.estimator.diagnosis import UNCALIBRATED, diagnose
from evergraph.estimator.extended import extend, with_structural
from evergraph.estimator.inputs import Change, from_object, make_change, read_ids, read_labels
from evergraph.estimator.near import embeddings
from evergraph.estimator.novelty import REJECT, Novelty, novel_nodes
from evergraph.estimator.parameters import Parameters
from evergraph.estimator.state import State
from evergraph.estimator.step import LARGE, advance, refit
from evergraph.estimator.transaction import learn_together, load_state, save_state
from evergraph.events import OnEvent
from evergraph.stream.features import Scaling

if TYPE_CHECKING:
    from evergraph.estimator.explanation import Explanation

Array = np.ndarray[Any, np.dtype[Any]]

#: Predictions of a large graph after which free memory is given back.
MANY = 100


class ContinualNodeClassifier(Parameters):
    """Classifies the nodes of a growing graph and keeps what it has learned.

    Feed it the graph batch by batch: new nodes, new edges, some labels, sometimes new classes.
    A call that raises changes nothing. The page on privacy says which labels a method keeps, and
    what can be recovered of others.

    Args:
        method: Name of a method, see ``evergraph methods``; ``auto`` is ``analytic``, unless a
            network is clearly better on part of the first labels (:attr:`history_` has the
            reason).
        buffer_size: Maximum number of nodes that the method keeps; None leaves it to the method.
        seed: Seed of all randomness.
        validation_fraction: Share of each class's new labels that is held out for evaluation and
            never learned; 0 holds nothing out. ``auto`` is a tenth, and up to a fifth where a
            network would have fewer than 300 nodes to be judged by.
        feature_scaling: ``auto`` scales each column of the features, unless they are binary or
            their rows are normalised; ``robust`` always does, ``none`` never. The scale is measured
            when the first labels are learned, and kept.
        settings: Further settings: of the method, the training (``epochs``, ``lr``, …) and the
            network (``channels``, ``dropout``, …).
        preset: A dataset whose published settings apply unless ``settings`` say otherwise.
        device: ``auto``, ``cpu`` or ``cuda``.
        workers: How many processes share the learning of a change; or a mapping that also has
            ``engine``, ``address`` and ``gpus_per_worker``, see the page on many workers.

    Attributes:
        classes_: Class names in order of arrival, sorted within a batch.
        history_: What every change did, with the accuracy on held-out nodes.
        feature_names_in_: Names of the features, if they came in a data frame.
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        buffer_size: int | None = None,
        seed: int = 0,
        validation_fraction: float | Literal["auto"] = "auto",
        feature_scaling: Scaling = "auto",
        settings: dict[str, Any] | None = None,
        preset: str | None = None,
        device: str = "auto",
        workers: int | Mapping[str, Any] = 1,
    ) -> None:
        self.method = method
        self.buffer_size = buffer_size
        self.seed = seed
        self.validation_fraction = validation_fraction
        self.feature_scaling = feature_scaling
        self.settings = settings
        self.preset = preset
        self.device = device
        self.workers = workers

    def learn(
        self,
        ids: Any,
        x: Any = None,
        edges: Any = None,
        labels: Any = None,
        *,
        on_event: OnEvent | None = None,
    ) -> Self:
        """Adds new nodes and edges and learns from the labels.

        Args:
            ids: Names of new nodes, text or whole numbers; or a PyG ``Data`` or a NetworkX graph
                with everything in it, whose known nodes and edges are skipped.
            x: Features, a row per id; or ``structural``: degrees and the like.
            edges: Pairs of ids, of new or known nodes; or triples with a weight.
            labels: A class name or None per id; or a mapping of ids, new or known, to names.
            on_event: Called with what happens during training.
        """
        brought = from_object(ids, x, edges, labels, self._now().graph)
        return self._apply("learn", on_event, **brought)

    def update(self, ids: Any, x: Any = None, labels: Any = None) -> Self:
        """Gives known nodes new features, late labels or both.

        Args:
            ids: Names of known nodes.
            x: Their new features; None leaves them as they are.
            labels: Their class names, None where still unknown.
        """
        names = read_ids(ids)
        state = self._now()
        late = read_labels(labels, names, state.classes)
        state.graph.find(names, "ids")
        return self._apply("update", updated=names, updated_x=x, labels=late)

    def remove(self, ids: Any = None, edges: Any = None) -> Self:
        """Removes nodes with everything that is kept about them, or single edges.

        ``analytic`` unlearns their labels exactly on graphs of up to 50,000 nodes (of any size with
        ``statistics="exact"``), and a class without labels disappears from :attr:`classes_`.
        Otherwise what was learned stays in the network or the statistics until :meth:`refit`; a
        warning and :attr:`history_` say so.
        """
        return self._apply("remove", removed=ids, removed_edges=edges)

    def refit(self, labels: Any = None) -> Self:
        """Starts over on the current graph, so that nothing remains of what was removed.

        It learns from the labels that the method keeps (those of the buffer; all of them for
        ``joint``, and for ``analytic`` where it can take labels back) and from those passed. With a
        small buffer and no labels most is forgotten; a class without a label disappears.

        Args:
            labels: A mapping of known ids to names of known classes.
        """
        state = self._now()
        known = read_labels(labels, [], state.classes)
        self._state: State = refit(state, known, pick_device(self.device))
        return self

    def fit(self, ids: Any, x: Any = None, edges: Any = None, labels: Any = None) -> Self:
        """Forgets everything and learns a first batch, with the current parameters."""
        fresh = type(self)(**self.get_params()).learn(ids, x, edges, labels)
        self._state = fresh._now()
        return self

    def partial_fit(
        self, ids: Any, x: Any = None, edges: Any = None, labels: Any = None, classes: Any = None
    ) -> Self:
        """Learns another batch, as :meth:`learn` does.

        ``classes`` are all class names that are allowed, if you want others to be refused; classes
        need not be known beforehand.
        """
        if classes is not None and labels is not None:
            allowed = set(read_ids(classes, "classes"))
            given = labels.values() if isinstance(labels, dict) else labels
            found = read_labels(list(given), list(range(len(given))), allowed)
            odd = [name for name in found.values() if name not in allowed]
            if odd:
                raise InputError(
                    f"Expected 'labels' among 'classes' (got {odd[0]!r}); add it to 'classes'."
                )
        return self.learn(ids, x, edges, labels)

    def predict(
        self, ids: Any = None, x: Any = None, edges: Any = None, *, reject: float | None = None
    ) -> Array:
        """Returns the most likely class name of each node, all nodes by default, ``[m]``.

        If you pass features, ``ids`` name nodes that are not in the graph: they are predicted as if
        they and their edges were in it, and nothing about them is kept. Every method below that
        takes ``x`` and ``edges`` does the same.

        Args:
            ids: Names of nodes.
            x: Features of new nodes, a row per id; None for known nodes.
            edges: Pairs of ids, of new and known nodes.
            reject: Share of nodes of known classes that may be refused: nodes that are more novel
                than all but that share of the held-out ones get None (:meth:`novelty`).
        """
        state, rows = self._ask(ids, x, edges)
        device = pick_device(self.device)
        names: Array = self.classes_[_logits(state, device, rows).argmax(dim=1).numpy()]
        if reject is not None:
            names = names.astype(object)
            names[Novelty.of(state, device).refuse(state, rows, reject)[1]] = None
        return names

    def predict_proba(self, ids: Any = None, x: Any = None, edges: Any = None) -> Array:
        """Returns probabilities over :attr:`classes_`, ``[m, k]``, also of new nodes.

        They are calibrated: logits are normalised and divided by the temperature at which
        confidence matches accuracy on held-out nodes, which does not change predictions. Without
        held-out nodes ``analytic`` uses leave-one-out predictions of training nodes; networks are
        not calibrated then, as a warning and ``calibrated_on`` in :attr:`history_` say.
        """
        state, rows = self._ask(ids, x, edges)
        logits = _logits(state, pick_device(self.device), rows)
        if state.uncalibrated:
            warn(UNCALIBRATED)
        proba: Array = state.probabilities(logits).numpy()
        return proba

    def predict_top(
        self, ids: Any = None, k: int = 3, x: Any = None, edges: Any = None
    ) -> tuple[Array, Array]:
        """Returns the ``k`` most likely classes and their probabilities, best first, ``[m, k]``."""
        if type(k) is not int or k < 1:
            raise InputError(f"Expected 'k' of at least 1 (got {k!r}); give how many classes.")
        proba = self.predict_proba(ids, x, edges)
        best = np.argsort(-proba, axis=1, kind="stable")[:, :k]
        return self.classes_[best], np.take_along_axis(proba, best, axis=1)

    def novelty(self, ids: Any = None, x: Any = None, edges: Any = None) -> Array:
        """Returns how little nodes resemble the known classes, 0 to 1, ``[m]``, also of new nodes.

        It is high where fewer similar nodes were labelled than is usual for the predicted class,
        and where none is likely. ``predict(ids, reject=0.05)`` finds a threshold by held-out nodes.
        """
        state, rows = self._ask(ids, x, edges)
        return Novelty.of(state, pick_device(self.device)).scores(state, rows)

    def novel_nodes(self, reject: float = REJECT) -> dict[str, Any]:
        """Returns unlabelled nodes that fit no known class: ``id``, ``novelty`` and ``group``.

        The most novel come first. A new class is one or several groups: label some of each. A
        share ``reject`` of the nodes of known classes is among them.
        """
        state = self._learned()
        found = novel_nodes(state, pick_device(self.device), reject)
        names = state.graph.names.take(found.rows.numpy())
        return {"id": names, "novelty": found.scores, "group": found.groups}

    def transform(self, ids: Any = None, x: Any = None, edges: Any = None) -> Array:
        """Returns embeddings, ``[m, d]``, also of new nodes.

        These are the last hidden layer of a network, or the propagated features of ``analytic``.
        Methods that predict in another way return their logits.
        """
        state, rows = self._ask(ids, x, edges)
        return np.asarray(embeddings(state, pick_device(self.device), rows))

    def explain(self, ids: Any) -> list[Explanation]:
        """Returns which neighbours and features decided each node's class, against the runner-up.

        Exact for ``analytic``, by integrated gradients for networks; other methods are refused.
        """
        from evergraph.estimator.explanation import explain  # noqa: PLC0415 - seldom needed

        state = self._learned()
        return explain(state, state.graph.find(read_ids(ids), "ids"))

    def score(self, ids: Any, labels: Any, sample_weight: Any = None) -> float:
        """Returns the share of correct predictions, as scikit-learn's classifiers do."""
        names = read_ids(ids)
        truth = read_labels(labels, names, self._learned().classes)
        if len(truth) < len(set(names)):
            raise InputError(
                f"Expected 'labels' for each of {len(names)} ids (got {len(truth)}); leave out "
                "nodes without a label."
            )
        right = self.predict(names) == np.array([truth[name] for name in names])
        return float(np.average(right, weights=sample_weight))

    def diagnose(self) -> dict[str, Any]:
        """Describes classes, buffer, memory and held-out accuracy, with warnings."""
        return diagnose(self._now(), pick_device(self.device))

    @property
    def classes_(self) -> Array:
        """Class names in order of arrival, ``[k]``."""
        return np.array(self._learned().classes)

    @property
    def history_(self) -> list[dict[str, Any]]:
        """What every change did, first to last."""
        return [entry.model_dump() for entry in self._now().history]

    @property
    def feature_names_in_(self) -> Array:
        """Names of the features, if they came in a data frame."""
        columns = self._now().columns
        if columns is None:
            raise AttributeError("the features have no names")
        return np.array(columns, dtype=object)

    @property
    def ids_(self) -> list[Any]:
        """Names of all nodes, in order of arrival."""
        return self._now().graph.names.take()

    def save(self, folder: str | Path) -> Self:
        """Writes the current state as the folder's next version.

        It refuses a folder that has changed since this object was loaded from or saved to it, and
        one with an interrupted change.
        """
        self._state = save_state(Path(folder), self._now())
        return self

    @classmethod
    def load(
        cls, folder: str | Path, *, generation: int | None = None, device: str = "auto"
    ) -> ContinualNodeClassifier:
        """Reads a state, its current version by default; nothing in it is executed."""
        state, _ = load_state(Path(folder), generation)
        given = state.config.parameters.model_dump()
        loaded = cls(**{**given, "settings": given["settings"] or None}, device=device)
        loaded._state = state
        return loaded

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self._now().classes)

    def _now(self) -> State:
        """Returns the state, making the first one when there is none."""
        if getattr(self, "_state", None) is None:
            given = self.get_params()
            del given["device"], given["workers"]
            config = make_config({**given, "settings": given["settings"] or {}})
            self._state = State.initial(config)
            named = {key for key in ("buffer_size",) if given[key] is not None}
            named |= (self.settings or {}).keys()
            unused = config.unused(self._state.learner.method.config) & named
            if unused:
                told = no_effect(unused, config.method)
                unless = ", which 'auto' is unless it finds a network better"
                warn(f"{told}{unless if self.method == 'auto' else ''}.")
        return self._state

    def _learned(self) -> State:
        state = self._now()
        if not state.classes:
            raise InputError(
                "Expected a classifier that has learned labels (got none so far); call learn first."
            )
        return state

    def _apply(self, kind: str, on_event: OnEvent | None = None, **parts: Any) -> Self:
        state = self._now()
        change = _read(state, kind, {"classes": state.classes, **parts})
        if self.workers == 1:
            self._state = advance(state, change, pick_device(self.device), on_event)
        elif on_event is None:
            self._state = learn_together(state, change, self.device, self.workers)
        else:
            raise InputError(
                f"Expected 'on_event' with one worker (got {self.workers!r}); leave one out."
            )
        return self

    def _ask(self, ids: Any, x: Any, edges: Any) -> tuple[State, torch.Tensor]:
        """Returns a state that has the nodes asked about, all by default, and their rows."""
        state = self._learned()
        if x is not None:
            return extend(state, _read(state, "predict", {"ids": ids, "x": x, "edges": edges}))
        if edges is not None:
            raise InputError(
                "Expected 'x' together with 'edges' (got none); pass the new nodes' features."
            )
        if ids is None:
            return state, torch.arange(state.graph.num_nodes)
        return state, state.graph.find(read_ids(ids), "ids")


def _read(state: State, kind: str, parts: dict[str, Any]) -> Change:
    """Reads a change from what a user gave; features that are asked for by name are computed."""
    parts["columns"] = state.columns
    if any(isinstance(parts.get(x), str) for x in ("x", "updated_x")):
        parts = with_structural(state, parts)
    return make_change(kind, **parts)


def _logits(state: State, device: torch.device, rows: torch.Tensor | None) -> torch.Tensor:
    """Predicts nodes; what many of a large graph took of memory is given back."""
    logits = state.logits(device, rows)
    if state.graph.num_nodes > LARGE and len(logits) > MANY:
        trim_memory()
    return logits
