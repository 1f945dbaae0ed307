"""``evergraph report``: runs or a state as a page to look at, runs as figures for a paper.

What the page of a state shows is put together here: it is plain values, as those of runs are.
"""

from __future__ import annotations

import webbrowser
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from evergraph import __version__
from evergraph.device import pick_device
from evergraph.errors import InputError
from evergraph.estimator.diagnosis import diagnose
from evergraph.estimator.explanation import explain
from evergraph.estimator.state import Entry, State
from evergraph.estimator.store import NAME
from evergraph.estimator.transaction import load_state
from evergraph.estimator.watch import FALSE_ALARMS, KINDS, interval, sentences
from evergraph.lab.page import write_page
from evergraph.lab.page.data import page_data
from evergraph.lab.report.run_figures import check_formats, write_figures
from evergraph.lab.tables import make_console
from evergraph.metrics import probability_scores
from evergraph.stream import LabelledNodes

#: The most changes that are shown, the last ones, and nodes that are explained.
MOST_CHANGES, MOST_EXPLAINED = 200, 5
#: What the page does not show of a change.
LEFT_OUT = {"report", "arrivals", "class_accuracy", "class_judged", "class_labels"}


def report(
    folder: Annotated[Path, typer.Argument(help="A run, a grid, a folder of runs, or a state.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. [FOLDER/report.html]")
    ] = None,
    figures: Annotated[
        Path | None, "Folder for figures of runs, for a paper; needs matplotlib."
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", help="Format of figures: pdf, png or svg; repeatable. [pdf]"),
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Turn runs, or a state, into one self-contained HTML page, and runs into figures."""
    wanted, console = check_formats(formats, figures), make_console()
    page = output or folder / "report.html"
    program = "state" if (folder / NAME).exists() else "runs"
    if program == "state":
        if figures is not None:
            raise InputError(
                f"Expected '--figures' with runs (got the state '{folder}'); leave it out: "
                "the page saves its figures."
            )
        state, version = load_state(folder)
        with make_console(stderr=True).status("Judging the state"):
            data = state_data(state, version, folder.resolve().name, pick_device("auto"))
        told = f"{state.config.method}, version {version}"
    else:
        with make_console(stderr=True).status("Reading runs"):  # embeddings are laid out: seconds
            data = page_data(folder)
        told = f"{data['num_runs']} runs"
    write_page(data, page, program)
    console.print(f"{told} · {page}", markup=False, soft_wrap=True)
    if open_page and not webbrowser.open(page.resolve().as_uri()):
        console.print("warning: no browser could be opened; open the file yourself", markup=False)
    if figures is not None:
        for path in write_figures(data, figures, wanted):
            console.print(str(path), markup=False, soft_wrap=True)


def state_data(state: State, version: int, title: str, device: torch.device) -> dict[str, Any]:
    """Describes a state; the same state always gives the same values."""
    about, changes = diagnose(state, device), state.history[-MOST_CHANGES:]
    judges, probability = state.judges()[0], None
    proba = state.probabilities(state.logits(device, judges.nodes))
    if judges.nodes.numel():  # as that of a run is shown
        told = {"calibrated_on": state.history[-1].calibrated_on}
        told["ece"] = about["calibration_error"]
        probability = probability_scores(proba.numpy(), judges.labels.numpy()) | told
    for part, count in zip(about["classes"], state.class_labels, strict=True):
        part |= {"name": str(part["name"]), "labels": count}
    shown = {
        "name": f"version-{version}",
        "class_names": [part["name"] for part in about["classes"]],
        "groups": [{"name": about["method"], "seeds": [0], "probability": [probability]}],
        "about": {**about, "version": version},
        "changes": [_change(entry) for entry in changes],
        "why": _why(state, judges, proba),
    }
    heads = {"title": title, "version": __version__, "false_alarms": FALSE_ALARMS}
    return {**heads, "order": [about["method"], *KINDS[1:]], "datasets": [shown]}


def _why(state: State, judges: LabelledNodes, proba: torch.Tensor) -> list[dict[str, Any]]:
    """Explains the held-out nodes that are surest of a wrong class; none if nobody can."""
    if not judges.nodes.numel():
        return []
    sure, given = proba.max(dim=1)
    wrong = torch.nonzero(given != judges.labels).flatten()
    chosen = wrong[torch.argsort(sure[wrong], descending=True, stable=True)][:MOST_EXPLAINED]
    try:
        found = explain(state, judges.nodes[chosen])
    except InputError:  # scores of such a method are neither linear nor a network's
        return []
    truth = [state.classes[label] for label in judges.labels[chosen].tolist()]
    return [
        {**one.summary(), "id": str(one.id), "text": f"{one.text().splitlines()[0]}; it is {name}"}
        for one, name in zip(found, truth, strict=True)
    ]


def _change(entry: Entry) -> dict[str, Any]:
    classes = zip_longest(entry.class_accuracy, entry.class_judged, fillvalue=0)
    return {
        **entry.model_dump(exclude=LEFT_OUT),
        "change": entry.step + 1,
        "accuracy": interval(entry.accuracy, sum(entry.class_judged)),
        "by_class": [interval(*one) for one in classes],
        "told": sentences(entry.watch),
    }
