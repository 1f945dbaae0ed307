"""Version: a state that answers, and never changes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from evergraph.errors import InputError
from evergraph.estimator.explanation import explain
from evergraph.estimator.novelty import Novelty
from evergraph.estimator.state import State
from evergraph.estimator.transaction import load_state
from evergraph.serve.requests import MOST_EXPLAINED, Question
from evergraph.serve.watching import describe

CPU = torch.device("cpu")
#: Of so many nodes all are predicted as soon as a version is there.
MOST_PREDICTED = 500_000
#: What int() reads beyond this is no name.
_WHOLE = re.compile(r"-?[0-9]{1,18}")


class NotFound(InputError):
    """Something that is asked for by name is not there."""


@dataclass(frozen=True)
class Version:
    """A state with its number and what tells it from another of the same number."""

    number: int
    state: State
    checksum: bytes = field(repr=False)
    found: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)  # from elsewhere

    @classmethod
    def load(cls, folder: Path) -> Version:
        """Reads the current version."""
        state, number = load_state(folder)
        assert state.saved is not None
        return cls(number, state, state.saved[2].checksum)

    def prepare(self) -> Version:
        """Predicts all nodes, to look answers up; of a large graph only what is asked."""
        if self.state.classes and self.state.graph.num_nodes <= MOST_PREDICTED:
            self.state.logits(CPU)
        return self

    def answers(self, questions: list[Question]) -> list[dict[str, Any] | InputError]:
        """Answers plain questions with one prediction of all their nodes."""
        found: list[Any] = []
        for question in questions:
            try:
                self._check()
                found.append(question.seen(self.state)[1])
            except InputError as error:
                found.append(error)
        good = [rows for rows in found if not isinstance(rows, InputError)]
        if not good:
            return found
        logits = self.state.logits(CPU, torch.cat(good))
        parts = iter(torch.split(self.state.probabilities(logits), [len(rows) for rows in good]))
        return [
            rows if isinstance(rows, InputError) else self._told(question, next(parts).numpy())
            for question, rows in zip(questions, found, strict=True)
        ]

    def answer(self, question: Question) -> dict[str, Any]:
        """Answers any question by itself."""
        self._check()
        if question.explain and len(question.ids) > MOST_EXPLAINED:
            raise InputError(
                f"Expected at most {MOST_EXPLAINED} ids with 'explain' (got {len(question.ids)}); "
                "ask again for the others."
            )
        state, rows = question.seen(self.state)
        told = self._told(question, state.probabilities(state.logits(CPU, rows)).numpy())
        if question.reject is not None:
            detector = Novelty.of(self.state, CPU)
            limit = detector.threshold(question.reject)
            for node, score in zip(told["nodes"], detector.scores(state, rows), strict=True):
                node["novelty"] = float(score)
                if score > limit:
                    node["label"] = None
        if question.explain:
            for node, why in zip(told["nodes"], explain(state, rows), strict=True):
                node["explanation"] = why.summary()
        return told

    def node(self, name: str) -> dict[str, Any]:
        """Describes a known node, as far as its method can."""
        self._check()
        names = self.state.graph.names
        known: list[Any] = [name]
        if names.kind is int and _WHOLE.fullmatch(name):
            known = [int(name)]
        rows = torch.from_numpy(names.where(known))
        if int(rows[0]) < 0:
            raise NotFound("Expected the name of a known node (got another); correct it.")
        question = Question(ids=known, top=3)
        (told,) = self.answers([question])
        assert isinstance(told, dict)
        node = {"version": self.number, **told["nodes"][0]}
        node["novelty"] = None  # not known yet
        if "novelty" in self.state.computed:
            node["novelty"] = float(Novelty.of(self.state, CPU).scores(self.state, rows)[0])
        elif "novelty" in self.found:
            node["novelty"] = float(self.found["novelty"][int(rows[0])])
        try:
            why = explain(self.state, rows)[0].summary()
            node["explanation"] = {**why, **self._around(why)}
        except InputError as error:  # of a method that cannot be explained
            node |= {"explanation": None, "not_explained": str(error)}
        return node

    @cached_property
    def about(self) -> dict[str, Any]:
        """What an operator wants to know."""
        return describe(self.state)

    def table(self, question: Question) -> bytes:
        """Answers a question about many nodes as a stream of Arrow."""
        try:
            import pyarrow  # noqa: PLC0415 - an extra
        except ImportError:
            raise InputError(
                "Expected a server with pyarrow to answer as Arrow (got none); ask for JSON."
            ) from None
        self._check()
        if question.top > 1 or question.explain or question.reject is not None:
            raise InputError(
                "Expected 'ids', 'x' and 'edges' alone for Arrow (got more); use JSON."
            )
        state, rows = question.seen(self.state)
        best = state.probabilities(state.logits(CPU, rows)).max(dim=1)
        labels = np.array(state.classes, dtype=object)[best.indices.numpy()]
        columns = {"id": question.ids, "label": labels, "probability": best.values.numpy()}
        table = pyarrow.table(columns, metadata={"version": str(self.number)})
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        found: bytes = sink.getvalue().to_pybytes()
        return found

    def _around(self, why: dict[str, Any]) -> dict[str, Any]:
        """Returns the classes of the nodes that decided, and which edges join them."""
        parts = [*why["nodes_for"], *why["nodes_against"]]
        names = [why["id"], *(part["name"] for part in parts if part["name"] != why["id"])]
        rows = self.state.graph.find(names, "ids")
        labels = self.state.logits(CPU, rows).argmax(dim=1).tolist()
        pairs = torch.combinations(torch.arange(len(names))).T
        joined = pairs[:, self.state.graph.has_edges(rows[pairs])].T.tolist()
        return {
            "classes": [
                [name, self.state.classes[c]] for name, c in zip(names, labels, strict=True)
            ],
            "edges": [[names[a], names[b]] for a, b in joined],
        }

    def _check(self) -> None:
        if not self.state.classes:
            raise InputError("Expected a state that has learned labels (got none); teach it some.")

    def _told(self, question: Question, proba: Any) -> dict[str, Any]:
        classes, nodes = self.state.classes, []
        best = np.argsort(-proba, axis=1, kind="stable")[:, : question.top]
        for name, order, p in zip(question.ids, best.tolist(), proba, strict=True):
            node: dict[str, Any] = {"id": name, "label": classes[order[0]]}
            node["probability"] = float(p[order[0]])
            if question.top > 1:
                node["top"] = [{"label": classes[c], "probability": float(p[c])} for c in order]
            nodes.append(node)
        return {"version": self.number, "nodes": nodes}
