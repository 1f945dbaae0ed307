"""``evergraph learn``, ``inspect``, ``explain`` and ``convert``: the estimator for files.

The file is long because every command on a state is in it, but the quick way of ``predict``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from evergraph.config import parse_settings
from evergraph.device import pick_device
from evergraph.distributed.parts import is_partition
from evergraph.errors import InputError, one_line
from evergraph.estimator.convert import convert_state
from evergraph.estimator.diagnosis import diagnose, noticed
from evergraph.estimator.explanation import explain as explain_rows
from evergraph.estimator.extended import extend
from evergraph.estimator.inputs import Change, warn_of_extra
from evergraph.estimator.novelty import Novelty, novel_nodes
from evergraph.estimator.state import State
from evergraph.estimator.store import Store
from evergraph.estimator.table_changes import like, read_change
from evergraph.estimator.tables import check_table_name, read_table, write_table
from evergraph.estimator.transaction import learn_into, load_state, note_change, resume
from evergraph.lab.cli.predict import StateArgument, VersionOption
from evergraph.lab.cli.runs import JsonOption, RunProgress
from evergraph.lab.cli.words import Workers
from evergraph.lab.engines import check_at_least
from evergraph.lab.runs import Device, SetOption
from evergraph.lab.tables import Sheet, counted, make_console, show, warn_unused
from evergraph.launch import RESTART, LostError
from evergraph.team import Team


@dataclass(frozen=True)
class Files:
    """What ``learn`` reads, a table each."""

    nodes: Annotated[Path | None, "Table of new nodes: id, features and, if known, label."] = None
    edges: Annotated[Path | None, "Table of new edges: source, target, optionally weight."] = None
    labels: Annotated[Path | None, "Table of labels, of new or known nodes: id, label."] = None
    update: Annotated[Path | None, "Table of changed features: id, features."] = None
    remove_nodes: Annotated[Path | None, "Table of nodes to remove: id."] = None
    remove_edges: Annotated[Path | None, "Table of edges to remove: source, target."] = None


@dataclass(frozen=True)
class Parameters:
    """What a new state is made with."""

    method: Annotated[str | None, "Method of a new state. [auto]"] = None
    buffer_size: Annotated[int | None, "Maximum number of nodes to keep."] = None
    seed: Annotated[int | None, "Seed of all randomness."] = None
    validation_fraction: Annotated[
        str | None,
        "Share of new labels held out for evaluation, or auto: 0.1, more of few. [auto]",
    ] = None
    feature_scaling: Annotated[str | None, "Scaling of features: auto, none or robust. [auto]"] = (
        None
    )


def learn(
    state: Annotated[
        Path, typer.Argument(help="Folder of the state; created if it does not exist.")
    ],
    *,
    files: Files,
    parameters: Parameters,
    sets: SetOption = None,
    device: Device = "auto",
    workers: Workers,
    as_json: JsonOption = False,
) -> None:
    """Add new nodes, edges and labels to a state, and learn from them."""
    settings = parse_settings(sets or [])
    given = {key: value for key, value in vars(parameters).items() if value is not None}
    if "validation_fraction" in given:
        given |= parse_settings([f"validation_fraction={given['validation_fraction']}"])
    given |= {"settings": settings} if settings else {}
    named = vars(files)
    if is_partition(state):
        from evergraph.lab.cli.parts import (  # noqa: PLC0415 - seldom needed
            check_options,
            learn_partition,
        )

        check_options(state, **named, device=device)
        learn_partition(state, given, workers, as_json=as_json)
        return
    if not any(named.values()):
        raise InputError(
            "Expected a file to learn from (got none); give --nodes, --edges, --labels, --update, "
            "--remove-nodes or --remove-edges."
        )
    several = workers.are_wanted or "WORLD_SIZE" in os.environ
    progress = RunProgress(make_console(stderr=True), change=True)
    with progress.running():
        progress.stage("reading files")
        tables = {name: read_table(path) for name, path in named.items() if path is not None}
        progress.stage("taking in")

        def make(present: State) -> Change:
            return read_change(tables, present)

        if not several:
            place = pick_device(device)
            following = learn_into(state, make, given=given, device=place, on_event=progress)
        elif workers.leads:
            begin_together(state, make, given, workers)
    if several:
        following = learn_together(state, device, workers)
        if not workers.leads:
            return
    config = following.config
    unused = config.unused(following.learner.method.config)
    warn_unused(config.method, unused, {*given, *settings})
    show_change(following, state, as_json)


def begin_together(
    state: Path, make: Callable[[State], Change], given: Mapping[str, Any], workers: Workers
) -> None:
    """Puts a change on disk for several workers, unless those before them were lost with it."""
    again = os.environ.get(RESTART, "0") != "0"
    if not (again and Store(state).has_pending):
        count = int(os.environ.get("WORLD_SIZE", workers.workers))
        note_change(state, make, given=given, workers=count)


def learn_together(state: Path, device: str, workers: Workers) -> State:
    """Learns a change that is on disk in several workers; one that is refused is forgotten."""
    if not workers.are_wanted:  # this is one of them
        Team.join().wait()  # the first one has put it there
        return resume_together(state, device)[0]
    try:
        workers.launch("resume", str(state), "--device", device, quiet=True)
    except LostError:
        raise
    except InputError:
        resume(state, device=pick_device("cpu"), discard=True)
        raise
    return load_state(state)[0]


def resume_together(path: Path, device: str, discard: bool = False) -> tuple[State, str]:
    """Finishes an interrupted change, with other workers if this is one of several."""
    progress = RunProgress(make_console(stderr=True), change=True)
    with progress.running():
        team, place = Team.join(), pick_device(device)
        found = resume(path, device=place, discard=discard, on_event=progress, team=team)
        team.leave()
    return found


def computed(
    state: Path,
    version: int | None,
    device: str,
    reject: float | None = None,
    *,
    ids: Path | None = None,
    nodes: Path | None = None,
    edges: Path | None = None,
) -> dict[str, Any]:
    """Predicts nodes of a state, or others that files bring, with their probabilities.

    With ``reject`` there is their novelty, and no label where it is too high.
    """
    if (edges is not None and nodes is None) or (nodes is not None and ids is not None):
        raise InputError(
            "Expected --ids of known nodes, or --nodes with --edges of new ones (got a mixture); "
            "leave one out."
        )
    progress = RunProgress(make_console(stderr=True), change=True)
    with progress.running():
        progress.stage("opening the state")
        present, team = load_learned(state, version), Team.join()
        known, asked = present.graph.names, present
        names: Any
        if nodes is not None:
            tables = {"nodes": read_table(nodes)}
            tables |= {"edges": read_table(edges)} if edges is not None else {}
            change = read_change(tables, present)
            warn_of_extra(f"'{nodes}'", ["label"] if change.labels else [])
            names, (asked, rows) = change.ids, extend(present, change)
        elif ids is not None:
            names = like(known.kind, read_table(ids).ids(unique=False))
            rows = present.graph.find(names, "ids")
        else:
            names, rows = known.take(), torch.arange(len(known))
        progress.stage("predicting")
        if team.size > 1:
            if ids is None and nodes is None:
                asked.predict_together(pick_device(device), team)
            team.leave()
            if not team.leads:
                return {}
        logits = asked.logits(place := pick_device(device), rows, progress)
        best = asked.probabilities(logits).max(dim=1)
        labels = np.array(list(map(str, present.classes)), dtype=object)[best.indices.numpy()]
        found = {"id": list(map(str, names)), "label": labels, "probability": best.values}
        if reject is not None:
            found["novelty"], refused = Novelty.of(asked, place).refuse(asked, rows, reject)
            labels[refused] = None
    return {name: values if name == "id" else values.tolist() for name, values in found.items()}


def load_learned(folder: Path, version: int | None) -> State:
    """Reads a state, refusing one without classes."""
    state, _ = load_state(folder, version)
    if not state.classes:
        raise InputError(
            f"Expected a state that has learned labels (got none in '{folder}'); learn some first."
        )
    return state


def explain(
    state: StateArgument,
    ids: Annotated[list[str], typer.Argument(help="Names of nodes.")],
    count: Annotated[int, "How many nodes and features to show, for and against."] = 5,
    version: VersionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which neighbours and features decided a node's class, against the runner-up."""
    check_at_least(1, count=count)
    present = load_learned(state, version)
    rows = present.graph.find(like(present.graph.names.kind, ids), "ids")
    found = explain_rows(present, rows)
    texts = (one.text(count) for one in found)
    show({"nodes": [one.summary(count) for one in found]}, [], as_json, *texts)


def inspect(
    state: StateArgument,
    novel: Annotated[
        Path | None, "Write nodes that fit no known class to a .csv or .parquet file."
    ] = None,
    version: VersionOption = None,
    device: Device = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show classes, buffer, memory, accuracy on held-out nodes over time, and warnings."""
    if novel is not None:
        check_table_name(novel)
    present, number = load_state(state, version)
    if novel is not None:
        nodes, scores, groups, _ = novel_nodes(present, pick_device(device))
        ids = [str(name) for name in present.graph.names.take(nodes.numpy())]
        write_table(novel, {"id": ids, "novelty": scores.tolist(), "group": groups.tolist()})
    about = {"version": number, **diagnose(present, pick_device(device))}
    history = [entry.model_dump() for entry in present.history]
    buffer = about["buffer"]
    line = (
        f"{about['method']} · version {number} · {about['nodes']:,} nodes, {about['edges']:,} "
        f"edges · buffer {buffer['nodes']}/{buffer['size']}, {about['memory_bytes']:,} bytes"
    )
    if about["calibration_error"] is not None:
        line += f" · calibration error {about['calibration_error']:.3f}"
    warnings = [f"warning: {warning}" for warning in about["warnings"]]
    judged = ("buffer", "held_out", "accuracy", "best_accuracy")
    rows = [[one_line(str(e["name"])), *(e[key] for key in judged)] for e in about["classes"]]
    headings = ["class", "in buffer", "held out", "accuracy", "best ever"]
    keys = ("step", "kind", "num_nodes", "num_edges", "trained_on")
    steps = [
        [*(e[key] for key in keys), one_line(", ".join(e["new_classes"])) or None, e["accuracy"]]
        for e in history
    ]
    columns = ["step", "kind", "nodes", "edges", "labels learned", "new classes", "held-out"]
    past = Sheet("History", columns, steps, prose=("kind", "new classes"))
    sheets = [Sheet("Classes", headings, rows), past]
    show({**about, "history": history}, sheets, as_json, line, *warnings)


def convert(
    old: Annotated[Path, typer.Argument(help="Folder of a state written by release 0.1.0.")],
    new: Annotated[
        Path | None, typer.Argument(help="Folder to write to. [the same folder]")
    ] = None,
) -> None:
    """Convert a state of release 0.1.0 to the current format."""
    make_console().print(convert_state(old, new or old), markup=False)


def resume_state(
    path: Path, device: str, workers: Workers, *, as_json: bool, discard: bool
) -> None:
    """Finishes an interrupted change of a state, or forgets it."""
    if workers.are_wanted and not discard:
        workers.launch()
        return
    state, told = resume_together(path, device, discard)
    if workers.leads:
        make_console(stderr=True).print(told, markup=False)
        show_change(state, path, as_json)


def show_change(state: State, path: Path, as_json: bool) -> None:
    """Prints what the last change did."""
    if not state.history:
        show({}, [], as_json)
        return
    entry = state.history[-1].model_dump()
    judged = entry["accuracy"]
    accuracy = "no held-out nodes" if judged is None else f"{judged:.2f} % on held-out nodes"
    new = one_line(", ".join(entry["new_classes"]))
    line = (
        f"{path}: {counted(entry['num_nodes'], 'node')}, {counted(entry['num_edges'], 'edge')}, "
        f"{counted(len(state.classes), 'class', 'classes')}{f' (new: {new})' if new else ''}; "
        f"learned {counted(entry['trained_on'], 'label')}; {accuracy}"
    )
    show(entry, [], as_json, line, *(f"warning: {text}" for text in noticed(state)))
