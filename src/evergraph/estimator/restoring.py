"""From files of a generation, which may come from anyone, back to a state.

Everything that compiled code will trust is checked: rows, labels, pointers, symmetry.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from torch import Tensor

from evergraph.estimator.change import restore_features
from evergraph.estimator.config import EstimatorConfig, read_config
from evergraph.estimator.evaluator import Evaluator
from evergraph.estimator.growing import Edits, GrowingGraph
from evergraph.estimator.inputs import unique_ids
from evergraph.estimator.state import Entry, State
from evergraph.files import unpack
from evergraph.methods import make_method
from evergraph.stream import Adjacency, LabelledNodes
from evergraph.train import Learner, restore_learner
from evergraph.validation import parse


def restore_state(files: Mapping[str, bytes]) -> State:
    """Checks and reads what ``State.to_files`` wrote; wrong content raises anything."""
    config = read_config(json.loads(files["config.json"]))
    names = json.loads(files["names.json"])
    ids, classes = unique_ids(names["ids"]), unique_ids(names["classes"])
    columns = names["columns"]
    content = unpack(files["graph.safetensors"])
    features, adjacency = restore_features(content["features"]), content["adjacency"]
    adjacency = _restore_adjacency(adjacency, len(ids))
    if features.shape[0] != len(ids):
        raise ValueError("features of other nodes")
    if columns is not None and len(columns) != features.shape[1]:
        raise ValueError("names of other features")
    shown = adjacency
    if content["shown"] is not None:
        shown = _restore_adjacency(content["shown"], len(ids))
    edits = Edits(*(_restore_pairs(content["edits"][k], len(ids)) for k in ("added", "deleted")))
    graph = GrowingGraph(tuple(ids), features, adjacency)
    learner, granted = _restore_learner(files, config, len(ids), len(classes))
    if learner.model is not None and _in_dim(learner) != features.shape[1]:
        raise ValueError("a network of other features")
    evaluator, history = _restore_evaluator(files, graph, content["labelled"], len(classes))
    return State(
        config,
        graph,
        tuple(classes),
        learner,
        evaluator,
        granted,
        edits,
        shown,
        history,
        None if columns is None else tuple(str(name) for name in columns),
    )


def _restore_learner(
    files: Mapping[str, bytes], config: EstimatorConfig, num_nodes: int, num_classes: int
) -> tuple[Learner, LabelledNodes]:
    content = unpack(files["learner.safetensors"])
    learner = Learner(make_method(config.parameters.method, config.settings))
    restore_learner(learner, content, config.model, "cpu")
    if learner.next_task < 0 or (learner.next_task > 0 and num_classes == 0):
        raise ValueError("a learner of no class")
    everyone = torch.arange(num_nodes)
    learner.method.renumber(everyone)  # refuses nodes that are not there
    learner.method.memory_bytes()  # looks at everything that is kept
    buffer = learner.method.buffer
    if buffer is not None and len(buffer):
        _check_labels(buffer.labels, num_classes)
    if learner.model is not None and learner.model.head.num_classes != num_classes:
        raise ValueError("a network of other classes")
    nodes, labels = content["granted"]["nodes"], content["granted"]["labels"]
    if nodes.shape != labels.shape or nodes.ndim != 1:
        raise ValueError("granted labels of other nodes")
    _check_rows(nodes, num_nodes)
    _check_labels(labels, num_classes)
    return learner, LabelledNodes(nodes, labels)


def _restore_evaluator(
    files: Mapping[str, bytes], graph: GrowingGraph, labelled: Tensor, num_classes: int
) -> tuple[Evaluator, tuple[Entry, ...]]:
    content = json.loads(files["evaluator.json"])
    nodes = graph.find(unique_ids(content["held_out"]), "held_out")
    labels = torch.tensor(content["labels"], dtype=torch.int64)
    if labels.shape != nodes.shape or labelled.shape != (graph.num_nodes,):
        raise ValueError("held-out labels of other nodes")
    if labelled.dtype != torch.bool:
        raise ValueError("marks of another kind")
    _check_labels(labels, num_classes)
    history = tuple(parse(Entry, entry) for entry in content["history"])
    return Evaluator(LabelledNodes(nodes, labels), labelled), history


def _restore_adjacency(state: Mapping[str, Tensor], num_nodes: int) -> Adjacency:
    src, indptr = state["src"], state["indptr"]
    if src.ndim != 1 or indptr.shape != (num_nodes + 1,) or indptr.dtype != torch.int64:
        raise ValueError("a graph of other nodes")
    degree = indptr[1:] - indptr[:-1]
    if int(indptr[0]) or int(indptr[-1]) != src.numel() or bool((degree < 0).any()):
        raise ValueError("a graph with a wrong pointer")
    _check_rows(src, num_nodes)
    dst = torch.repeat_interleave(torch.arange(num_nodes), degree)
    graph = Adjacency(num_nodes, src, dst, indptr)
    mirrored = torch.sort(src * num_nodes + dst).values
    if bool((src == dst).any()) or not torch.equal(mirrored, graph.keys):
        raise ValueError("a graph that is not symmetric")
    if bool((graph.keys[1:] == graph.keys[:-1]).any()):
        raise ValueError("a graph with an edge twice")
    return graph


def _restore_pairs(pairs: Tensor, num_nodes: int) -> Tensor:
    if pairs.ndim != 2 or pairs.shape[0] != 2:
        raise ValueError("pairs of another shape")
    _check_rows(pairs, num_nodes)
    return pairs


def _check_rows(rows: Tensor, num_nodes: int) -> None:
    if rows.dtype != torch.int64 or bool(((rows < 0) | (rows >= num_nodes)).any()):
        raise ValueError("nodes that are not there")


def _check_labels(labels: Tensor, num_classes: int) -> None:
    if labels.dtype != torch.int64 or bool(((labels < 0) | (labels >= num_classes)).any()):
        raise ValueError("labels that are not there")


def _in_dim(learner: Learner) -> int:
    assert learner.model is not None
    return int(learner.model.state_dict()["encoder.layers.0.weight"].shape[0])
