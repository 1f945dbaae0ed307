"""One step of an estimator: from a state and a change to the next state, or nothing at all.

All that a change goes through is here, in order: checks, scale, graph, labels, learning, judging.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.closed_form.ridge import row_weights
from evergraph.config import NEEDED_VALIDATION, settable_keys
from evergraph.device import denormals_flushed, make_generator, trim_memory, warn_of_memory
from evergraph.errors import InputError, warn
from evergraph.estimator import watch
from evergraph.estimator.config import NETWORK, USUAL, make_config
from evergraph.estimator.diagnosis import no_longer_exact, what_stays
from evergraph.estimator.graph import GrowingGraph, Grown, Id, Neighbourhood, kind_of, show
from evergraph.estimator.inputs import Change
from evergraph.estimator.state import (
    Edits,
    Entry,
    GrownLabels,
    State,
    draw_share,
    held_out_share,
    move,
)
from evergraph.events import OnEvent, Stage
from evergraph.stream import GraphView, LabelledNodes, Part, SparseRows
from evergraph.stream.features import Scale, row_lengths
from evergraph.team import ALONE, Team
from evergraph.train import (
    Keeper,
    Learner,
    check_needs,
    check_team,
    learn_task,
    learner_state,
    make_context,
    plan_for,
    predict,
    started,
)

#: Above so many nodes a method that learns locally is shown what is around its nodes alone.
LARGE = 50_000
#: Rows of such length are tried before they are taken in.
HUGE = 1e6
#: Up to so many nodes ``auto`` tries a network, for so many epochs, if none are given.
TRIED, TRIAL_EPOCHS = 5_000, 100
#: The share of each class's first labels that ``auto`` compares methods on.
LEFT_OUT = 0.2
#: Standard errors by which a network must be better.
SURELY = 2


#: A change that is known to be right: the state with its graph, what is to be learned, and what
#: became of the features.
Prepared = tuple[State, LabelledNodes, dict[str, Any]]


def advance(
    state: State, change: Change, device: torch.device, on_event: OnEvent | None = None
) -> State:
    """Applies a change and learns from its labels; the given state is left as it was."""
    return complete(state, change, prepare(state, change), device, on_event)


def prepare(state: State, change: Change) -> Prepared:
    """Does all of a change but the learning; raises if anything is wrong with it."""
    check_nodes(state.graph, change)
    classes = _classes(state, change)
    late = len(change.removed) or not change.labels.keys() <= set(change.ids)
    stays = what_stays(state, change) if late else {}
    kept = _forecast(state, change)
    state, change, told = bring_to_scale(state, change)
    # What changes neither labels nor rows leaves the learner as it is, unless it begins anew.
    again = bool(change.labels or len(change.removed)) or state.learner.method.takes_back
    learner = deepcopy(state.learner) if again else state.learner
    following = _change_graph(replace(state, learner=learner, classes=classes), change)
    following, trained = _admit(following, change, len(state.classes))
    if learner.method.takes_back:
        following, trained = _without_empty_classes(following, trained)
    return following, trained, told | stays | kept


def complete(
    state: State,
    change: Change,
    prepared: Prepared,
    device: torch.device,
    on_event: OnEvent | None = None,
    *,
    team: Team = ALONE,
    keeper: Keeper | None = None,
) -> State:
    """Learns what is prepared and judges the outcome; returns the state after the change.

    Workers of a team share the learning of the same change; the first one alone judges.
    """
    graph = prepared[0].graph
    with graph.at_hand():
        given = (state, change, prepared, device, on_event)
        following = _complete(*given, team=team, keeper=keeper)
    if graph.num_nodes > LARGE:
        trim_memory()
    return following


def _complete(
    state: State,
    change: Change,
    prepared: Prepared,
    device: torch.device,
    on_event: OnEvent | None,
    *,
    team: Team,
    keeper: Keeper | None,
) -> State:
    following, trained, told = prepared
    classes, report = following.classes, dict[str, Any]()
    counted = dict(zip(state.classes, state.class_labels, strict=True))
    with denormals_flushed():
        anew = following.learner.method.takes_back and following.learner.next_task > 0
        config, count = following.config, trained.nodes.numel()
        if count and config.parameters.method == "auto" and config.chosen is None:
            method, reason = team.tell(_choose_method(following, trained, device))
            config = make_config(config.parameters.model_dump(), method)
            following = replace(following, config=config, learner=State.initial(config).learner)
            told = told | {"method": method, "reason": reason}
        if count or anew:
            known = len(counted.keys() & set(classes)) if following.learner.next_task else 0
            how = (following, trained, known, device, on_event)
            following, report = _learn(*how, told=told, team=team, keeper=keeper)
        if not team.leads:
            return following
        _warn_of_edges(following, change)
        if on_event is not None:
            on_event(Stage(len(state.history), "judging", 1, 1))
        _check_finite(following, change, count > 0 or anew, device)
        judged = following.judge(device, learned=count > 0 or anew)
        if count >= watch.ENOUGH_LABELS:
            told = told | watch.features_alone(following, trained, device)
        following.learner.context = None
    fresh = trained.labels[: 0 if change.kind == "refit" else None]  # seen before, for the most
    learned = torch.bincount(fresh, minlength=len(classes))
    learned += torch.tensor([counted.get(name, 0) for name in classes], dtype=torch.int64)
    method = following.learner.method
    if method.takes_back and method.buffer is not None:  # which holds all labels
        learned = torch.bincount(method.buffer.labels, minlength=len(classes))
    elif report.get("statistics") == "follow":  # from now on
        no_longer_exact(following)
    entry = Entry(
        step=len(state.history),
        kind=change.kind,
        num_nodes=following.graph.num_nodes,
        num_edges=following.graph.num_edges,
        new_nodes=len(change.ids),
        removed_nodes=len(change.removed),
        new_classes=[str(name) for name in classes if name not in counted],
        removed_classes=[str(name) for name in state.classes if name not in set(classes)],
        trained_on=count,
        held_out=following.held_out.pairs.length,
        class_labels=learned.tolist(),
        memory_bytes=method.memory_bytes(),
        report={**told, **report},
        **judged,
    )
    following = following.noting(history=(*state.history, entry))
    both = (entry, *state.history[-1:])  # who judges now and who did before, to compare
    judges = min(max(one.class_judged, default=0) for one in both) if len(both) > 1 else 0
    if len(change.ids) >= watch.FEW_NEWCOMERS or judges >= watch.FEW_JUDGES:
        entry = entry.model_copy(update=watch.watch(following, change, device))
    lines = following.lines.append(np.frombuffer(entry.line(), dtype=np.uint8))
    return following.noting(history=(*state.history, entry), lines=lines)


def _warn_of_edges(state: State, change: Change) -> None:
    """Says which weights and directions that a change brought are not used."""
    config, model = state.config, state.learner.model
    heads = model.encoder.heads if model is not None and model.encoder.has_attention else 0
    uses = "direction" in config.settings or heads > 1
    given = config.parameters.settings.get("direction", change.directed)
    if given is not False and len(change.edges[0]) and not (uses and state.graph.directed):
        why = f"by {config.method}; take analytic, or attention with several heads"
        why = "where earlier ones came without; begin anew with them" if uses else why
        warn(f"The directions of edges are not used {why}.")
    weighted = change.weights is not None and state.graph.arcs is not None
    if weighted and heads:
        told = "set 'backbone' to gcn or sage, or take analytic"
        warn(f"Attention does not use the weights of edges; {told}.")


def refit(state: State, labels: Mapping[Id, Id], device: torch.device) -> State:
    """Begins anew on the present graph, with the labels that are kept and those given.

    Classes without a label are gone.
    """
    method = state.learner.method
    odd = [name for name in labels.values() if name not in state.classes]
    if odd:
        raise InputError(f"Expected 'labels' of known classes (got {odd[0]!r}); learn it first.")
    known = [_numbered(state, labels), LabelledNodes(state.granted.nodes, state.granted.labels)]
    known += [method.buffer.labelled] if method.buffer is not None else []
    nodes, target = (torch.cat([getattr(p, name) for p in known]) for name in ("nodes", "labels"))
    # The first of several labels counts: those given.
    first = torch.from_numpy(np.unique(nodes.numpy(), return_index=True)[1])
    at = first[~torch.isin(nodes[first], state.held_out.nodes)]
    if not at.numel():
        raise InputError(
            f"Expected labels to learn anew from (got none: '{state.config.method}' "
            "keeps none); give 'labels'."
        )
    trained = LabelledNodes(nodes[at], target[at])
    fresh = State.initial(state.config).learner
    new = trained.nodes[~torch.isin(trained.nodes, state.shown.tensor)]
    following = replace(
        state,
        learner=fresh,
        granted=GrownLabels(),
        edits=Edits(),
        shown=state.shown.append(new.numpy()),
    )
    following, trained = _without_empty_classes(following, trained)
    return complete(state, Change("refit"), (following, trained, {}), device)


def _forecast(state: State, change: Change) -> dict[str, Any]:
    """Counts what a change will keep, on disk and in memory; warns if it may not fit."""
    edges = len(change.edges[0])
    stored, held, copied = state.graph.growth_bytes(change.ids, change.x, edges)
    labels, learned = 16 * len(change.labels), state.learner.method.memory_bytes()
    warn_of_memory("Taking the change in", held + copied, torch.device("cpu"))
    return {"stored_bytes": stored + labels + learned, "held_bytes": held + labels + learned}


def check_nodes(graph: GrowingGraph, change: Change) -> None:
    """Refuses new nodes that are known already and features of another width."""
    kind = graph.names.kind
    for ids in (change.ids, change.updated, change.removed, *change.edges, list(change.labels)):
        if kind is not None and kind_of(ids) not in (None, kind):
            words = "text" if kind is str else "whole numbers"
            raise InputError(
                f"Expected ids as {words}, as those known are (got {show(ids[0])}); convert them."
            )
    gone = set(change.removed)
    for row in np.flatnonzero(graph.names.where(change.ids) >= 0).tolist():
        if change.ids[row] not in gone:
            raise InputError(
                f"Expected 'ids' of new nodes (got {show(change.ids[row])} in row {row + 1}, which "
                "is known); use update for its features and labels."
            )
    for x in (change.x, change.updated_x):
        if x is not None and graph.width and x.shape[1] != graph.width:
            raise InputError(
                f"Expected 'x' with {graph.width} columns, as in the first batch (got "
                f"{x.shape[1]}); give the same features."
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


def bring_to_scale(state: State, change: Change) -> tuple[State, Change, dict[str, Any]]:
    """Scales the features of a change as all before; the first labels fix how.

    Returns the state with its scale, the change, and what is worth telling of both. A state that
    has learned without a scale goes on without.
    """
    scale, scaling = state.scale, state.config.parameters.feature_scaling
    if scale is None and (scaling == "none" or not change.labels or state.learner.next_task):
        return state, change, {}
    if scale is None:
        most = state.graph.features
        if change.x is not None and change.x.shape[0] >= most.shape[0]:
            most = change.x
        if not most.shape[0]:  # labels of nobody, which is refused where they are looked up
            return state, change, {}
        scale = Scale.fit(most, scaling)
        graph = state.graph
        if graph.num_nodes:  # they came before the first labels
            every = torch.arange(graph.num_nodes)
            graph = graph.with_features(every, scale.apply(graph.features)[0])
        state = replace(state, graph=graph, scale=scale)
    if change.x is None and change.updated_x is None:
        return state, change, {"scaling": scale.kind}
    x, odd = (None, 0) if change.x is None else scale.apply(change.x)
    updated, also = (None, 0) if change.updated_x is None else scale.apply(change.updated_x)
    told = {"scaling": scale.kind, "rows_beyond_scale": odd + also}
    return state, replace(change, x=x, updated_x=updated), told


def _change_graph(state: State, change: Change) -> State:
    """Removes, renews and adds nodes and edges; kept nodes and held-out ones follow."""
    graph = state.graph.without_edges(state.graph.find_pairs(change.removed_edges))
    state = replace(state, columns=change.columns or state.columns)
    if len(change.removed):
        graph, new_rows = graph.without_nodes(graph.find(change.removed, "ids"))
        state = _follow(state, new_rows)
    if change.updated_x is not None:
        graph = graph.with_features(graph.find(change.updated, "ids"), change.updated_x)
    if change.x is not None:
        graph = graph.with_nodes(change.ids, change.x)
    if len(change.edges[0]):
        if change.directed and not graph.num_edges and state.config.direction:
            graph = replace(graph, directed=True, arcs=Grown.empty(np.float32, 2))
        graph = graph.with_edges(graph.find_pairs(change.edges), change.weights)
    return replace(state, graph=graph)


def _follow(state: State, new_rows: Tensor) -> State:
    """Follows all that is kept of nodes to new rows; what is kept of removed ones (−1) goes."""
    learner, buffer = state.learner, state.learner.method.buffer
    if buffer is not None:
        buffer.trim(new_rows[buffer.nodes.cpu()] >= 0)
        buffer.renumber(new_rows)
    learner.num_seen = int((new_rows[: learner.num_seen] >= 0).sum())
    shown = new_rows[state.shown.tensor]
    return replace(
        state,
        edits=state.edits.renumbered(new_rows),
        held_out=state.held_out.follow(new_rows),
        granted=state.granted.follow(new_rows),
        shown=Grown.of(shown[shown >= 0].numpy()),
    )


def _admit(state: State, change: Change, num_known: int) -> tuple[State, LabelledNodes]:
    """Splits new labels into those that judge and those that are learned.

    Nodes that are held out already stay so, with their new label, unless its class is new: a class
    must be learned before it is judged. Of all labels that ever came a share of each class is held
    out, at least one and never the last.
    """
    given = _numbered(state, change.labels)
    nodes, order = torch.sort(given.nodes)
    trained = given = given.take(order)
    held_out, granted, shown = state.held_out, state.granted, torch.zeros_like(nodes) > 0
    _drop_contradicted(state.learner, given)
    # Only nodes that were there before can be held out, shown or granted already.
    late = given.take(nodes < state.graph.num_nodes - len(change.ids))
    if late.nodes.numel():
        again = torch.isin(nodes, held_out.nodes) & (given.labels < num_known)
        held_out = held_out.without(late.nodes).append(given.take(again))
        granted = granted.without(late.nodes)
        trained = given.take(~again)
        shown = torch.isin(trained.nodes, state.shown.tensor)
    parameters = state.config.parameters
    ever = held_out.nodes.numel() + sum(state.class_labels) + int((~shown).sum())
    share = held_out_share(parameters.validation_fraction, ever, state.learner.method)
    if share:
        generator = make_generator(parameters.seed, "held out", len(state.history))
        chosen = draw_share(
            trained.take(~shown),
            trained.labels,
            share,
            generator,
            held=torch.bincount(held_out.labels).tolist(),
            learned=state.class_labels,
        )
        held_out = held_out.append(chosen)
        stay = ~torch.isin(trained.nodes, chosen.nodes)
        trained, shown = trained.take(stay), shown[stay]
    now_shown = state.shown.append(trained.nodes[~shown].numpy())
    return replace(state, held_out=held_out, shown=now_shown, granted=granted), trained


def _numbered(state: State, labels: Mapping[Id, Id]) -> LabelledNodes:
    """Returns nodes by their rows, and labels by the numbers of their classes."""
    number = {name: label for label, name in enumerate(state.classes)}
    found = torch.tensor([number[name] for name in labels.values()], dtype=torch.int64)
    return LabelledNodes(state.graph.find(list(labels), "labels"), found)


def _without_empty_classes(state: State, trained: LabelledNodes) -> tuple[State, LabelledNodes]:
    """Drops classes of which no label is left; without any, nothing has been learned."""
    learner, k = state.learner, len(state.classes)
    known = [part.labels for part in (trained, state.held_out, state.granted)]
    known += [learner.method.buffer.labels] if learner.method.buffer is not None else []
    there = torch.unique(torch.cat(known))
    if there.numel() == k:
        return state, trained
    number = torch.full((k,), -1)
    number[there] = torch.arange(there.numel())
    if not there.numel():
        learner = State.initial(state.config).learner
    elif learner.method.buffer is not None:
        learner.method.buffer.relabel(number)
    following = replace(
        state,
        learner=learner,
        classes=tuple(state.classes[label] for label in there.tolist()),
        held_out=state.held_out.relabelled(number),
        granted=state.granted.relabelled(number),
    )
    return following, LabelledNodes(trained.nodes, number[trained.labels])


def _drop_contradicted(learner: Learner, given: LabelledNodes) -> None:
    """Lets the method forget kept nodes whose label turns out to be another one."""
    buffer = learner.method.buffer
    if buffer is not None and len(buffer) and given.nodes.numel():
        kept, labels = buffer.nodes.cpu(), buffer.labels.cpu()
        at = torch.searchsorted(given.nodes, kept).clamp_(max=given.nodes.numel() - 1)
        buffer.trim((given.nodes[at] != kept) | (given.labels[at] == labels))


def _learn(
    state: State,
    trained: LabelledNodes,
    num_old_classes: int,
    device: torch.device,
    on_event: OnEvent | None = None,
    *,
    told: Mapping[str, Any] | None = None,
    team: Team = ALONE,
    keeper: Keeper | None = None,
) -> tuple[State, dict[str, Any]]:
    """Shows the method a view of the present graph and the new labels."""
    config, graph = state.config, state.graph
    check_team(state.learner.method, config.training, team)
    learner = state.learner  # a copy already, made for this change
    if device.type != "cpu":
        learner = move(learner, config, device)
    needs = check_needs(learner.method)
    grants = {}
    if "old_labels" in needs:
        nodes, order = torch.sort(state.granted.nodes)
        grants["old_labels"] = LabelledNodes(nodes, state.granted.labels[order])
    if "validation" in needs:
        # Not the evaluator's nodes: what a method chooses by cannot judge it.
        generator = make_generator(config.parameters.seed, "granted", learner.next_task)
        granted = draw_share(trained, trained.labels, NEEDED_VALIDATION, generator)
        grants["validation"] = granted
        trained = trained.take(~torch.isin(trained.nodes, granted.nodes))
    near = _surroundings(graph, learner, [trained, *grants.values()], config.model.num_layers)
    part, part_of = near or graph, None
    if graph.num_nodes > LARGE:
        part_of = Part(near.nodes if near else None, graph.num_nodes, learner.num_seen)
    place = near.rows if near else lambda nodes: nodes
    view = GraphView(
        task=learner.next_task,
        features=part.features,
        adjacency=part.adjacency,
        train_nodes=place(trained.nodes),
        train_labels=trained.labels,
        num_classes=len(state.classes),
        new_classes=tuple(range(num_old_classes, len(state.classes))),
        num_old=int((near.nodes < learner.num_seen).sum()) if near else learner.num_seen,
        grants={need: LabelledNodes(place(g.nodes), g.labels) for need, g in grants.items()},
        part=part_of,
    ).to(device)
    sizes, model = (view.num_nodes, view.adjacency.num_edges), config.model
    seed = config.parameters.seed
    plan = plan_for(learner, sizes, view.features, model, config.training, device=device)
    ctx = make_context(learner, view, model, config.training, plan, seed=seed, team=team)
    ctx.class_names = [str(name) for name in state.classes]
    if on_event is not None:
        if told and "stored_bytes" in told:
            disk, memory = told["stored_bytes"] / 1e6, told["held_bytes"] / 1e6
            what = f"this change keeps {disk:.1f} MB on disk and {memory:.1f} MB in memory"
            plan = replace(plan, reason=f"{plan.reason}; {what}")
        on_event(started(view, view.task + 1, plan))
    for event in learn_task(learner, ctx, keeper):
        if on_event is not None:
            on_event(event)
    learner.num_seen = graph.num_nodes
    logits = predict(learner, ctx).cpu() if team.size > 1 and not near else None
    if near or team.size > 1:
        learner.context = None  # what was prepared is not of the whole graph
    if near and learner.method.buffer is not None:
        learner.method.buffer.renumber(near.nodes)
    if device.type != "cpu":
        learner = move(learner, config, torch.device("cpu"))
    now_granted = state.granted.append(trained) if "old_labels" in needs else state.granted
    edits = Edits()
    if ctx.adjacency is not view.adjacency:
        edits = Edits.between(part.adjacency, ctx.adjacency.to("cpu"))
        edits = edits.renumbered(near.nodes) if near else edits
    following = replace(state, learner=learner, granted=now_granted, edits=edits)
    following.computed["logits"] = logits
    return following, ctx.report


def _choose_method(state: State, trained: LabelledNodes, device: torch.device) -> tuple[str, str]:
    """Settles what ``auto`` is: a network if that is surely better on left-out training nodes.

    Surely is by more than two standard errors of the difference. Returns the method and the reason.
    """
    given = state.config.parameters.model_dump()
    own = sorted(given["settings"].keys() - settable_keys(NETWORK))
    generator = make_generator(given["seed"], "choice", len(state.history))
    asked = draw_share(trained, trained.labels, LEFT_OUT, generator)
    rest = trained.take(~torch.isin(trained.nodes, asked.nodes))

    def right(method: str, **settings: Any) -> Tensor:
        changed = {"method": method, "settings": settings, "buffer_size": None}
        found = make_config(given | changed)
        tried = replace(state, config=found, learner=State.initial(found).learner)
        tried, _ = _learn(tried, rest, 0, device)
        return tried.logits(device, asked.nodes).argmax(dim=1) == asked.labels

    method, count = USUAL, asked.nodes.numel()
    if own:
        reason = f"'{own[0]}' is a setting of {USUAL}"
    elif state.graph.num_nodes > TRIED:
        reason = f"more than {TRIED:,} nodes: no network is tried"
    else:
        mine, settings = right(USUAL, **given["settings"]), {"epochs": TRIAL_EPOCHS}
        reason = f"{int(mine.sum())} of {count} left-out nodes are right"
        if count - int(mine.sum()) > SURELY**2:  # else no network can be surely better
            theirs = right("finetune", **settings | given["settings"])
            balanced = given["settings"].get("metric", "accuracy") != "accuracy"
            gained = (theirs.double() - mine.double()) * row_weights(asked.labels, balanced)
            reason += f" with {USUAL}, {int(theirs.sum())} with a network"
            if float(gained.sum()) > SURELY * float(gained.square().sum().sqrt()):
                method = NETWORK
    return method, reason


def _surroundings(
    graph: GrowingGraph, learner: Learner, shown: list[LabelledNodes], num_layers: int
) -> Neighbourhood | None:
    """Cuts out what a method needs of a large graph; None if that is all of it.

    The nodes that the method keeps are numbered as they are there.
    """
    method = learner.method
    read = method.reads(learner.num_seen, graph.num_nodes, num_layers)
    if graph.num_nodes <= LARGE or read is None:
        return None
    nodes = torch.cat([*(part.nodes for part in shown), read.nodes])
    beside = read.beside
    if beside is not None and read.links:
        beside = torch.cat([beside, graph.around(read.nodes, read.depth)])
    near = graph.neighbourhood(nodes, read.depth, beside, links=read.links)
    if method.buffer is not None:
        new_rows = torch.full((graph.num_nodes,), -1)
        new_rows[near.nodes] = torch.arange(near.nodes.numel())
        method.buffer.renumber(new_rows)
    return near


def _check_finite(state: State, change: Change, learned: bool, device: torch.device) -> None:
    """Refuses a change that leaves weights, statistics or predictions that are not finite."""
    wrong = "weights" if learned and not _all_finite(learner_state(state.learner)) else None
    if wrong is None:
        where = state.graph.names.where
        rows = torch.from_numpy(np.concatenate([where(change.ids), where(change.updated)]))
        huge = row_lengths(state.graph.take(rows)) > HUGE
        if bool(huge.any()):
            found = state.logits(device, rows[huge])
            found = found if state.known_logits is None else state.known_logits
            wrong = None if bool(found.isfinite().all()) else "predictions"
    if wrong is not None:
        raise InputError(
            f"Expected features that leave the {wrong} finite (got {_largest(state, change)}); "
            "correct the value, or leave 'feature_scaling' at auto."
        )


def _all_finite(content: Any) -> bool:
    if isinstance(content, dict):
        return all(map(_all_finite, content.values()))
    return not (isinstance(content, Tensor) and not bool(content.isfinite().all()))


def _largest(state: State, change: Change) -> str:
    """Describes the largest value of what came, or of all that is there if nothing came."""
    given = ((change.ids, change.x), (change.updated, change.updated_x))
    every = (state.graph.names.take(), state.graph.features)
    names, x = next(((ids, x) for ids, x in given if x is not None), every)
    values = x.values if isinstance(x, SparseRows) else x.flatten()
    at = int(values.abs().argmax())
    if isinstance(x, SparseRows):
        row, column = int(x.row_index()[at]), int(x.indices[at])
    else:
        row, column = divmod(at, x.shape[1])
    label = repr(state.columns[column]) if state.columns else column + 1
    return f"{float(values[at]):g} in column {label} of node {show(names[row])}"
