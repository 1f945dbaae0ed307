"""``evergraph report``: runs or a state as a page to look at, runs as figures for a paper."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from evergraph.errors import InputError
from evergraph.estimator.store import NAME
from evergraph.estimator.transaction import load_state
from evergraph.lab.cli.state_page import state_data
from evergraph.lab.page.data import page_data
from evergraph.lab.page.render import STATE_SCRIPTS, write_page
from evergraph.lab.report.collect import collect
from evergraph.lab.report.run_figures import check_formats, write_figures
from evergraph.lab.tables import make_console
from evergraph.nn.device import pick_device


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
    if (folder / NAME).exists():
        if figures is not None:
            raise InputError(
                f"Expected '--figures' with runs (got the state '{folder}'); leave it out: "
                "the page saves its figures."
            )
        state, version = load_state(folder)
        with make_console(stderr=True).status("Judging the state"):
            data = state_data(state, version, folder.resolve().name, pick_device("auto"))
        write_page(data, page, STATE_SCRIPTS)
        told = f"{state.config.method}, version {version}"
    else:
        with make_console(stderr=True).status("Reading runs"):  # embeddings are laid out: seconds
            data = page_data(collect(folder))
        write_page(data, page)
        told = f"{data['num_runs']} runs"
    console.print(f"{told} · {page}", markup=False, soft_wrap=True)
    if open_page and not webbrowser.open(page.resolve().as_uri()):
        console.print("warning: no browser could be opened; open the file yourself", markup=False)
    if figures is not None:
        for path in write_figures(data, figures, wanted):
            console.print(str(path), markup=False, soft_wrap=True)
