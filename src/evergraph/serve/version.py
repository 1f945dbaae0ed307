"""Version: what a state answers; it never changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from evergraph.errors import InputError
from evergraph.estimator.explanation import explain
from evergraph.estimator.near import CPU
from evergraph.estimator.novelty import Novelty
from evergraph.estimator.state import State
from evergraph.estimator.table_changes import like
from evergraph.serve.requests import MOST_EXPLAINED, Question

#: Key of all nodes' novelty among what was computed of a state, where another process found it.
SCORES = "novelty scores"
#: Of so many nodes all are predicted as soon as a version is there.
MOST_PREDICTED = 500_000


class NotFound(InputError):
    """Something that is asked for by name is not there."""


def predict_all(state: State) -> State:
    """Predicts all nodes of a state, to look answers up; of a large graph only what is asked."""
    if state.classes and state.graph.num_nodes <= MOST_PREDICTED:
        state.logits(CPU)
    return state


def answer_all(state: State, questions: list[Question]) -> list[dict[str, Any] | InputError]:
    """Answers plain questions with one prediction of all their nodes."""
    found: list[Any] = []
    for question in questions:
        try:
            found.append(_seen(state, question)[1])
        except InputError as error:
            found.append(error)
    good = [rows for rows in found if not isinstance(rows, InputError)]
    if not good:
        return found
    logits = state.logits(CPU, torch.cat(good))
    parts = iter(torch.split(state.probabilities(logits), [len(rows) for rows in good]))
    return [
        rows if isinstance(rows, InputError) else _told(state, question, next(parts).numpy())
        for question, rows in zip(questions, found, strict=True)
    ]


def answer(state: State, question: Question) -> dict[str, Any]:
    """Answers any question by itself."""
    if question.explain and len(question.ids) > MOST_EXPLAINED:
        raise InputError(
            f"Expected at most {MOST_EXPLAINED} ids with 'explain' (got {len(question.ids)}); "
            "ask again for the others."
        )
    asked, rows = _seen(state, question)
    told = _told(asked, question, asked.probabilities(asked.logits(CPU, rows)).numpy())
    if question.reject is not None:
        scores, refused = Novelty.of(asked, CPU).refuse(asked, rows, question.reject)
        for node, score, novel in zip(told["nodes"], scores, refused, strict=True):
            node["novelty"] = float(score)
            node["label"] = None if novel else node["label"]
    if question.explain:
        for node, why in zip(told["nodes"], explain(asked, rows), strict=True):
            node["explanation"] = why.summary()
    return told


def describe_node(state: State, name: str) -> dict[str, Any]:
    """Describes a known node, as far as its method can."""
    try:
        question = Question(ids=like(state.graph.names.kind, [name]), top=3)
        rows = state.graph.find(question.ids, "ids")
    except InputError:
        raise NotFound("Expected the name of a known node (got another); correct it.") from None
    told = answer(state, question)
    node = {"version": told["version"], **told["nodes"][0], "novelty": None}  # not known yet
    if "novelty" in state.computed:
        node["novelty"] = float(Novelty.of(state, CPU).scores(state, rows)[0])
    elif SCORES in state.computed:
        node["novelty"] = float(state.computed[SCORES][int(rows[0])])
    try:
        why = explain(state, rows)[0].summary()
        node["explanation"] = {**why, **_around(state, why)}
    except InputError as error:  # of a method that cannot be explained
        node |= {"explanation": None, "not_explained": str(error)}
    return node


def _around(state: State, why: dict[str, Any]) -> dict[str, Any]:
    """Returns the classes of the nodes that decided, and which edges join them."""
    parts = [*why["nodes_for"], *why["nodes_against"]]
    names = [why["id"], *(part["name"] for part in parts if part["name"] != why["id"])]
    rows = state.graph.find(names, "ids")
    labels = state.logits(CPU, rows).argmax(dim=1).tolist()
    pairs = torch.combinations(torch.arange(len(names))).T
    joined = pairs[:, state.graph.has_edges(rows[pairs])].T.tolist()
    return {
        "classes": [[name, state.classes[c]] for name, c in zip(names, labels, strict=True)],
        "edges": [[names[a], names[b]] for a, b in joined],
    }


def as_arrow(state: State, question: Question) -> bytes:
    """Answers a question about many nodes as a stream of Arrow."""
    try:
        import pyarrow  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError(
            "Expected a server with pyarrow to answer as Arrow (got none); ask for JSON."
        ) from None
    if question.top > 1 or question.explain or question.reject is not None:
        raise InputError("Expected 'ids', 'x' and 'edges' alone for Arrow (got more); use JSON.")
    asked, rows = _seen(state, question)
    best = asked.probabilities(asked.logits(CPU, rows)).max(dim=1)
    labels = np.array(state.classes, dtype=object)[best.indices.numpy()]
    columns = {"id": question.ids, "label": labels, "probability": best.values.numpy()}
    table = pyarrow.table(columns, metadata={"version": str(state.version[0])})
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _seen(state: State, question: Question) -> tuple[State, torch.Tensor]:
    """Returns a state that has the nodes of a question, and their rows."""
    if not state.classes:
        raise InputError("Expected a state that has learned labels (got none); teach it some.")
    return question.seen(state)


def _told(state: State, question: Question, proba: Any) -> dict[str, Any]:
    classes, nodes = state.classes, []
    best = np.argsort(-proba, axis=1, kind="stable")[:, : question.top]
    for name, order, p in zip(question.ids, best.tolist(), proba, strict=True):
        node: dict[str, Any] = {"id": name, "label": classes[order[0]]}
        node["probability"] = float(p[order[0]])
        if question.top > 1:
            node["top"] = [{"label": classes[c], "probability": float(p[c])} for c in order]
        nodes.append(node)
    return {"version": state.version[0], "nodes": nodes}
