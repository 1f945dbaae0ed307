"""``evergraph report``: a folder of runs as a page to look at, and as figures for a paper."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from evergraph.lab.page import page_data, write_page
from evergraph.lab.report.collect import collect
from evergraph.lab.report.run_figures import check_formats, write_figures
from evergraph.lab.tables import make_console


def report(
    folder: Annotated[Path, typer.Argument(help="A run, a grid, or a folder of runs.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page. [DIR/report.html]")
    ] = None,
    figures: Annotated[Path | None, "Folder for figures, drawn by matplotlib."] = None,
    formats: Annotated[
        list[str] | None, typer.Option("--format", help="pdf, png or svg; repeat. [pdf]")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show runs as one self-contained HTML page, and as figures for a paper."""
    wanted = check_formats(formats, figures)
    with make_console(stderr=True).status("Reading runs"):  # embeddings are laid out: seconds
        data = page_data(collect(folder))
    page = output or folder / "report.html"
    write_page(data, page)
    console = make_console()
    console.print(f"{data['num_runs']} runs · {page}", markup=False, soft_wrap=True)
    if open_page and not webbrowser.open(page.resolve().as_uri()):
        console.print("warning: no browser could be opened; open the file yourself", markup=False)
    if figures is not None:
        for path in write_figures(data, figures, wanted):
            console.print(str(path), markup=False, soft_wrap=True)
