"""What some nodes of a large graph are given, from what is around them or block by block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evergraph.estimator.graph import GrowingGraph
from evergraph.events import OnEvent, Stage
from evergraph.nn.device import denormals_flushed
from evergraph.nn.encoders import Block
from evergraph.nn.model import Output
from evergraph.nn.receptive_field import ReceptiveField, receptive_field
from evergraph.stream import Adjacency
from evergraph.stream.adjacency import find_sorted, sort_keys, unique_keys
from evergraph.train import Learner, takes_plain_path

if TYPE_CHECKING:
    from evergraph.estimator.state import Edits, State

#: A network predicts all nodes of a large graph, and embeddings are found, so many at a time.
BLOCK = 10_000
#: Fewer nodes are embedded by one thread.
FEW = 200
#: How far from new nodes scores are found anew where they are propagated, and of how many at most;
#: where there are more, less far.
NEAR, CROWD = 3, 600
CPU = torch.device("cpu")


def edited_field(edits: Edits, graph: GrowingGraph, nodes: Tensor, depth: int) -> ReceptiveField:
    """Finds what ``depth`` layers need of the graph as the method wants it.

    A way may lead over new edges. In place of features there are the nodes whose features are read.
    """
    if not edits:
        return graph.field(nodes, depth)
    if graph.arcs is not None:  # what removed edges weighed is known of the whole graph alone
        everyone = torch.arange(graph.num_nodes)
        return receptive_field(everyone, edits.apply(graph.adjacency), nodes, depth)
    # The graph may have gained or lost some of these edges itself since.
    added = edits.added[:, ~graph.has_edges(edits.added)]
    deleted = edits.deleted[:, graph.has_edges(edits.deleted)]
    inner = unique_keys(torch.cat([nodes, _others(added, unique_keys(nodes))]))
    for _ in range(depth - 1):
        around = sort_keys(graph.around(inner, 1))
        inner = unique_keys(torch.cat([around, _others(added, around)]))
    near, part = graph.cut(inner, 1)
    degree = part.whole_degree
    assert degree is not None
    there = []
    for pairs, sign in ((added, 1), (deleted, -1)):
        rows = find_sorted(near, pairs)
        counts = torch.bincount(rows[rows >= 0], minlength=degree.numel())
        degree = degree + sign * counts
        there.append(rows[:, (rows >= 0).all(dim=0)])
    after = replace(part.edit(*there), whole_degree=degree)
    return receptive_field(near, after, torch.searchsorted(near, nodes), depth)


def _others(pairs: Tensor, nodes: Tensor) -> Tensor:
    """Returns the other ends of pairs ``[2, *]`` that have an end among nodes, which ascend."""
    return pairs.flip(0)[find_sorted(nodes, pairs) >= 0]


def predict_near(state: State, rows: Tensor, depth: int, device: torch.device) -> Tensor:
    """Predicts nodes from their neighbourhood, ``[m, k]``."""
    learner, field, place = _read(state, rows, depth, device)
    if learner.method.predicts_by_network:
        return _run(learner, field).logits[place]
    seed, k = state.config.parameters.seed, len(state.classes)
    return learner.method.predict_field(field, k, seed=seed)[place]


def predict_beside(state: State, rows: Tensor) -> Tensor:
    """Predicts new nodes where scores are propagated, on the CPU, ``[m, k]``.

    New edges change scores near them; farther than :data:`NEAR` steps away these count as they are
    without the new nodes (decision 0041 says where that is exact).
    """
    base, graph, method = state.beside, state.graph, state.learner.method
    reach = method.embedding_reach()
    assert base is not None
    assert base.powers is not None
    assert reach is not None
    m, depth = graph.num_nodes - base.graph.num_nodes, 1
    new = torch.arange(base.graph.num_nodes, graph.num_nodes)
    nodes, part = _around(graph, new, depth)
    while depth <= NEAR and nodes.numel() <= CROWD:
        depth += 1
        nodes, part = _around(graph, new, depth)
    own = predict_near(state, nodes[: part.num_nodes], reach, CPU)
    known = [torch.cat([own[:m], scores[nodes[m:]]]) for scores in base.powers]
    return method.propagate_near(own, part, known)[rows - new[0]]


def _around(graph: GrowingGraph, nodes: Tensor, depth: int) -> tuple[Tensor, Adjacency]:
    """Returns all within ``depth`` steps of nodes, these first, and the edges into nearer ones."""
    field = graph.field(nodes, depth)
    assert isinstance(field.features, Tensor)
    assert isinstance(field.graphs, tuple)
    return field.features, field.graphs[0]


def predict_by_blocks(
    state: State, learner: Learner, device: torch.device, on_event: OnEvent | None
) -> Tensor:
    """Predicts all nodes layer by layer, a block of them at a time.

    Held are the rows of one layer or two and a block's edges: no graph is sorted or copied.
    """
    model, n = learner.model, state.graph.num_nodes
    assert model is not None
    plain = takes_plain_path(learner.method)
    path = "plain" if plain else model.config.attention
    total, done = len(model.encoder.layers) * -(-n // BLOCK), count()

    def blocks() -> Iterator[Block]:
        for nodes in torch.split(torch.arange(n), BLOCK):
            if on_event is not None:
                on_event(Stage(learner.next_task, "predicting", next(done), total))
            field = edited_field(state.edits, state.graph, nodes, 1)
            assert isinstance(field.features, Tensor)
            assert isinstance(field.graphs, tuple)
            yield nodes.to(device), field.features.to(device), field.graphs[0].to(device)

    found = torch.empty(n, model.head.num_classes, device=device)
    features = state.graph.features.to(device)
    for nodes, h in model.eval().encoder.by_blocks(features, blocks, path):
        found[nodes] = model.classify(h, plain=plain)
    return found


def embeddings(state: State, device: torch.device, rows: Tensor) -> Tensor:
    """Returns what the classes of nodes are told by, ``[m, d]`` on the CPU.

    That is the last hidden layer of a network and the rows of a closed form; logits where a
    method predicts otherwise.
    """
    method, found = state.learner.method, []
    by_network = method.predicts_by_network
    reach = state.config.model.num_layers if by_network else method.embedding_reach()
    if reach is None:
        return state.logits(device, rows)
    with denormals_flushed(), torch.no_grad(), one_thread(rows.numel() < FEW):
        for part in torch.split(rows, BLOCK):
            learner, field, place = _read(state, part, reach, device)
            if by_network:
                h = _run(learner, field).h
            else:
                h = learner.method.embed_field(field, seed=state.config.parameters.seed)
            found.append(h[place].cpu())
    return torch.cat(found)


def _read(
    state: State, rows: Tensor, depth: int, device: torch.device
) -> tuple[Learner, ReceptiveField, Tensor]:
    """Reads what some nodes depend on; also where each of them is among what it gives."""
    wanted, place = torch.unique(rows, return_inverse=True)
    field = edited_field(state.edits, state.graph, wanted, depth)
    assert isinstance(field.features, Tensor)
    field = replace(field, features=state.graph.take(field.features)).to(device)
    return state.learner_on(device), field, place


def _run(learner: Learner, field: ReceptiveField) -> Output:
    """Runs the network on a receptive field."""
    assert learner.model is not None
    model, plain = learner.model.eval(), takes_plain_path(learner.method)
    output: Output = model(field.features, field.graphs, field.rows, plain=plain)
    return output


@contextmanager
def one_thread(small: bool = True) -> Iterator[None]:
    """Computes something small alone: on a busy machine other threads are waited for longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if small else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
