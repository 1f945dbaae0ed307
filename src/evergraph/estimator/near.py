"""What some nodes of a large graph are given, from what is around them or block by block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from evergraph.closed_form.propagation import propagate_changed
from evergraph.device import denormals_flushed
from evergraph.events import OnEvent, Stage
from evergraph.nn.encoders import Block
from evergraph.nn.model import Output
from evergraph.nn.receptive_field import ReceptiveField, receptive_field
from evergraph.stream.adjacency import find_sorted
from evergraph.train import Learner, takes_plain_path

if TYPE_CHECKING:
    from evergraph.estimator.state import State

#: A network predicts all nodes of a large graph, and embeddings are found, so many at a time; few
#: are embedded by one thread.
BLOCK, FEW = 10_000, 200
#: How far from new nodes scores are found anew where they are propagated, and of how many at most;
#: where there are more, less far.
NEAR, CROWD = 3, 600
CPU = torch.device("cpu")


def edited_field(state: State, nodes: Tensor, depth: int) -> ReceptiveField:
    """Finds what ``depth`` layers need of the graph as the method wants it, to give some nodes.

    In place of features are the nodes that have them. A way may lead over edges that the method
    added.
    """
    edits, graph = state.edits, state.graph
    if not edits:
        return ReceptiveField(*graph.field(nodes, depth), None)
    if graph.arcs is not None:  # what removed edges weighed is known of the whole graph alone
        whole = edits.apply(graph.adjacency)
        return receptive_field(torch.arange(graph.num_nodes), whole, nodes, depth)
    # The graph may have gained or lost some of these edges itself since.
    added = edits.added[:, ~graph.has_edges(edits.added)]
    deleted = edits.deleted[:, graph.has_edges(edits.deleted)]
    inner = torch.unique(torch.cat([nodes, _others(added, torch.unique(nodes))]))
    for _ in range(depth - 1):
        around = torch.sort(graph.around(inner, 1)).values
        inner = torch.unique(torch.cat([around, _others(added, around)]))
    _, near, part = graph.neighbourhood(inner, 1)
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


def predict_near(
    state: State, rows: Tensor, depth: int, device: torch.device, *, embed: bool = False
) -> Tensor:
    """Predicts nodes from their neighbourhood, ``[m, k]``, or embeds them, ``[m, d]``."""
    learner, seed = state.learner_on(device), state.config.parameters.seed
    method, (_, field, place) = learner.method, read_field(state, rows, depth, device)
    closed = method.closed_form
    if method.predicts_by_network and learner.model is not None:
        model, plain = learner.model.eval(), takes_plain_path(method)
        output: Output = model(field.features, field.graphs, field.rows, plain=plain)
        found = output.h if embed else output.logits
    elif embed and closed is not None:
        found = closed.embed_field(field, seed=seed)
    else:
        found = (closed or method).predict_field(field, len(state.classes), seed=seed)
    return found[place]


def predict_beside(state: State, rows: Tensor, powers: list[Tensor]) -> Tensor:
    """Predicts new nodes where scores are propagated, on the CPU, ``[m, k]``.

    New edges change scores near them; farther than :data:`NEAR` steps away these count as they are
    without the new nodes (decision 0041 says where that is exact). ``powers`` are all others'
    scores after every step without them.
    """
    graph, closed, n = state.graph, state.learner.method.closed_form, len(powers[0])
    assert closed is not None
    new = torch.arange(n, graph.num_nodes)
    for depth in range(1, NEAR + 2):
        nodes, (part, *_) = graph.field(new, depth)
        if nodes.numel() > CROWD:
            break
    own = predict_near(state, nodes[: part.num_nodes], closed.kind.reach, CPU)
    known = [torch.cat([own[: len(new)], scores[nodes[len(new) :]]]) for scores in powers]
    return propagate_changed(own, part, known, closed.selection.teleport)[rows - n]


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
            part: Any = edited_field(state, nodes, 1).to(device)
            yield nodes.to(device), part.features, part.graphs[0]

    found = torch.empty(n, model.head.num_classes, device=device)
    features = state.graph.features.to(device)
    for nodes, h in model.eval().encoder.by_blocks(features, blocks, path):
        found[nodes] = model.classify(h, plain=plain)
    return found


def embeddings(state: State, device: torch.device, rows: Tensor) -> Tensor:
    """Returns what the classes of nodes are told by, ``[m, d]`` on the CPU.

    That is the last hidden layer of a network and the rows of a closed form; else logits.
    """
    method = state.learner.method
    closed, reach = method.closed_form, state.config.model.num_layers
    if not method.predicts_by_network:
        if closed is None:
            return state.logits(device, rows)
        reach = closed.kind.reach
    with denormals_flushed(), torch.no_grad(), one_thread(rows.numel() < FEW):
        parts = torch.split(rows, BLOCK)
        return torch.cat([predict_near(state, p, reach, device, embed=True).cpu() for p in parts])


def read_field(
    state: State, rows: Tensor, depth: int, device: torch.device
) -> tuple[Tensor, ReceptiveField, Tensor]:
    """Returns nodes around some, what these hear of them, and where each is in what it gives."""
    wanted, place = torch.unique(rows, return_inverse=True)
    field: Any = edited_field(state, wanted, depth)
    features = state.graph.take(field.features)
    return field.features, replace(field, features=features).to(device), place


@contextmanager
def one_thread(small: bool = True) -> Iterator[None]:
    """Computes something small alone: on a busy machine other threads are waited for longer."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if small else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
