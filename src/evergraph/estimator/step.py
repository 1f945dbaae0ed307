"""One step of an estimator: from a state and a change to the next state, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch

from evergraph.config import NEEDED_VALIDATION
from evergraph.errors import InputError
from evergraph.estimator.graph import Edits, GrowingGraph, Id
from evergraph.estimator.inputs import Change
from evergraph.estimator.state import Entry, State, draw_share, follow, join, move_learner
from evergraph.events import Event
from evergraph.nn.device import denormals_flushed
from evergraph.rng import make_generator
from evergraph.stream import GraphView, LabelledNodes
from evergraph.train import Learner, check_needs, learn_task, make_context, plan_for, started

OnEvent = Callable[[Event], None]


#: A change that is known to be right: the state with its graph, and what is to be learned.
Prepared = tuple[State, LabelledNodes]


def advance(
    state: State, change: Change, device: torch.device, on_event: OnEvent | None = None
) -> State:
    """Applies a change and learns from its labels; the given state is left as it was."""
    return complete(state, change, prepare(state, change), device, on_event)


def prepare(state: State, change: Change) -> Prepared:
    """Does all of a change but the learning; raises if anything is wrong with it."""
    _check_nodes(state.graph, change)
    classes = _classes(state, change)
    learner = deepcopy(state.learner)
    following = _change_graph(replace(state, learner=learner, classes=classes), change)
    return _admit(following, change, len(state.classes))


def complete(
    state: State,
    change: Change,
    prepared: Prepared,
    device: torch.device,
    on_event: OnEvent | None = None,
) -> State:
    """Learns what is prepared and judges the outcome; returns the state after the change."""
    following, trained = prepared
    classes, report = following.classes, dict[str, Any]()
    with denormals_flushed():
        if trained.nodes.numel():
            known = len(state.classes)
            following, report = _learn(following, trained, known, device, on_event)
        accuracy, by_class = following.accuracy(device)
    entry = Entry(
        step=len(state.history),
        kind=change.kind,
        num_nodes=following.graph.num_nodes,
        num_edges=following.graph.adjacency.num_edges // 2,
        new_nodes=len(change.ids),
        removed_nodes=len(change.removed),
        new_classes=[str(name) for name in classes[len(state.classes) :]],
        trained_on=trained.nodes.numel(),
        held_out=following.held_out.nodes.numel(),
        accuracy=accuracy,
        class_accuracy=by_class,
        memory_bytes=following.learner.method.memory_bytes(),
        report=report,
    )
    finished = replace(following, history=(*state.history, entry))
    finished.adopt(following)
    return finished


def _check_nodes(graph: GrowingGraph, change: Change) -> None:
    """Refuses new nodes that are known already and features of another width."""
    if graph.num_nodes:
        kind = type(graph.ids[0])
        words = "text" if kind is str else "whole numbers"
        for ids in (change.ids, change.updated, change.removed, *change.edges, list(change.labels)):
            if ids and type(ids[0]) is not kind:
                raise InputError(
                    f"Expected ids as {words}, as those known are (got {ids[0]!r}); convert them."
                )
    gone = set(change.removed)
    for row, name in enumerate(change.ids, 1):
        if name in graph.rows and name not in gone:
            raise InputError(
                f"Expected 'ids' of new nodes (got {name!r} in row {row}, which is known); use "
                "update for its features and labels."
            )
    for x in (change.x, change.updated_x):
        width = graph.features.shape[1]  # 0 before the first nodes
        if x is not None and width and x.shape[1] != width:
            raise InputError(
                f"Expected 'x' with {width} columns, as in the first batch (got {x.shape[1]}); "
                "give the same features."
            )


def _classes(state: State, change: Change) -> tuple[Id, ...]:
    """Lists the classes once the change has come: known ones first, new ones sorted.

    More of them than the buffer can hold a node of are refused.
    """
    known = set(state.classes)
    new: list[Any] = sorted({name for name in change.labels.values() if name not in known})
    if state.classes and new and type(new[0]) is not type(state.classes[0]):
        raise InputError(
            f"Expected 'labels' of the kind of the known classes, such as {state.classes[0]!r} "
            f"(got {new[0]!r}); convert them."
        )
    buffer, total = state.learner.method.buffer, len(state.classes) + len(new)
    if buffer is not None and total > buffer.size:
        raise InputError(
            f"Expected 'buffer_size' of at least {total}, one node for each class (got "
            f"{buffer.size}); begin with a larger buffer."
        )
    return (*state.classes, *new)


def _change_graph(state: State, change: Change) -> State:
    """Removes, renews and adds nodes and edges; kept nodes and held-out ones follow."""
    graph, edits, buffer = state.graph, state.edits, state.learner.method.buffer
    held_out, shown, granted = state.held_out, state.shown, state.granted
    graph = graph.without_edges(graph.find_pairs(change.removed_edges))
    if change.removed:
        graph, new_rows = graph.without_nodes(graph.find(change.removed, "ids"))
        if buffer is not None:
            buffer.trim(new_rows[buffer.nodes.cpu()] >= 0)
            buffer.renumber(new_rows)
        state.learner.num_seen = int((new_rows[: state.learner.num_seen] >= 0).sum())
        edits, shown = edits.renumbered(new_rows), shown[new_rows >= 0]
        held_out, granted = follow(held_out, new_rows), follow(granted, new_rows)
    if change.updated_x is not None:
        graph = graph.with_features(graph.find(change.updated, "ids"), change.updated_x)
    if change.x is not None:
        graph = graph.with_nodes(change.ids, change.x)
    graph = graph.with_edges(graph.find_pairs(change.edges))
    return replace(
        state,
        graph=graph,
        edits=edits,
        held_out=held_out,
        shown=torch.cat([shown, shown.new_zeros(graph.num_nodes - shown.numel())]),
        granted=granted,
        columns=change.columns or state.columns,
    )


def _admit(state: State, change: Change, num_known: int) -> Prepared:
    """Splits new labels into those that judge and those that are learned.

    Nodes that are held out already stay so, with their new label, unless its class is new: a class
    must be learned before it is judged. Of the others a share of each class is held out, at least
    one and never the last.
    """
    number = {name: label for label, name in enumerate(state.classes)}
    nodes = state.graph.find(list(change.labels), "labels")
    labels = torch.tensor([number[name] for name in change.labels.values()], dtype=torch.int64)
    given = join([LabelledNodes(nodes, labels)])
    _drop_contradicted(state.learner, given, state.graph.num_nodes)
    again = torch.isin(given.nodes, state.held_out.nodes) & (given.labels < num_known)
    named_again = torch.isin(state.held_out.nodes, given.nodes)
    judging, trained = [state.held_out.take(~named_again), given.take(again)], given.take(~again)
    parameters = state.config.parameters
    if parameters.validation_fraction:
        fresh = trained.take(~state.shown[trained.nodes])
        generator = make_generator(parameters.seed, "held out", len(state.history))
        chosen = draw_share(fresh, trained.labels, parameters.validation_fraction, generator)
        judging.append(chosen)
        trained = trained.take(~torch.isin(trained.nodes, chosen.nodes))
    shown = state.shown.clone()
    shown[trained.nodes] = True
    granted = state.granted.take(~torch.isin(state.granted.nodes, given.nodes))
    return replace(state, held_out=join(judging), shown=shown, granted=granted), trained


def _drop_contradicted(learner: Learner, given: LabelledNodes, num_nodes: int) -> None:
    """Lets the method forget kept nodes whose label turns out to be another one."""
    buffer = learner.method.buffer
    if buffer is not None and len(buffer):
        named = torch.full((num_nodes,), -1)
        named[given.nodes] = given.labels
        named = named[buffer.nodes.cpu()]
        buffer.trim((named < 0) | (named == buffer.labels.cpu()))


def _learn(
    state: State,
    trained: LabelledNodes,
    num_old_classes: int,
    device: torch.device,
    on_event: OnEvent | None,
) -> tuple[State, dict[str, Any]]:
    """Shows the method a view of the present graph and the new labels."""
    config, graph = state.config, state.graph
    learner = state.learner  # a copy already, made for this change
    if device.type != "cpu":
        learner = move_learner(learner, config, device)
    needs = check_needs(learner.method)
    grants = {}
    if "old_labels" in needs:
        grants["old_labels"] = state.granted
    if "validation" in needs:
        # Not the evaluator's nodes: what a method chooses by cannot judge it.
        generator = make_generator(config.parameters.seed, "granted", learner.next_task)
        granted = draw_share(trained, trained.labels, NEEDED_VALIDATION, generator)
        grants["validation"] = granted
        trained = trained.take(~torch.isin(trained.nodes, granted.nodes))
    view = GraphView(
        task=learner.next_task,
        features=graph.features,
        adjacency=graph.adjacency,
        train_nodes=trained.nodes,
        train_labels=trained.labels,
        num_classes=len(state.classes),
        new_classes=tuple(range(num_old_classes, len(state.classes))),
        num_old=learner.num_seen,
        grants=grants,
    ).to(device)
    sizes = (graph.num_nodes, graph.adjacency.num_edges)
    features, model = graph.features, config.model
    plan = plan_for(learner, sizes, features, model, config.training, device=device)
    seed = config.parameters.seed
    ctx = make_context(learner, view, config.model, config.training, plan, seed=seed)
    if on_event is not None:
        on_event(started(view, view.task + 1, plan))
    for event in learn_task(learner, ctx):
        if on_event is not None:
            on_event(event)
    learner.context = None
    if device.type != "cpu":
        learner = move_learner(learner, config, torch.device("cpu"))
    granted = join([state.granted, trained]) if "old_labels" in needs else state.granted
    edits = Edits()
    if ctx.adjacency is not view.adjacency:
        edits = Edits.between(graph.adjacency, ctx.adjacency.to("cpu"))
    return replace(state, learner=learner, granted=granted, edits=edits), ctx.report
