"""``evergraph datasets build``: a graph that grew, from an archive's index files."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from evergraph.errors import InputError
from evergraph.lab.cli.progress import make_console
from evergraph.stream.datasets.download import mirror_indexes
from evergraph.stream.datasets.packages import build_packages


@dataclass(frozen=True)
class BuildOptions:
    """What ``datasets build packages`` reads and writes."""

    folder: Annotated[
        Path | None,
        typer.Option("--from", help="Folder of index files, one subfolder per release."),
    ] = None
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The npz file.")] = None
    releases: Annotated[
        str | None, typer.Option(help="Releases in order, a,b,c; else subfolders by name.")
    ] = None
    mirror: Annotated[
        str | None, typer.Option(help="Address of an archive to get index files from.")
    ] = None
    architecture: Annotated[str, typer.Option(help="Whose packages a mirror gives.")] = "amd64"
    words: Annotated[int, typer.Option(help="The most words that make the features.")] = 2000


def build(what: list[str], options: BuildOptions) -> None:
    """Builds the dataset that the words after ``datasets`` name."""
    if what != ["build", "packages"]:
        raise InputError(
            f"Expected 'datasets' alone or 'datasets build packages' (got 'datasets "
            f"{' '.join(what)}'); change the words."
        )
    output, releases = options.output, [r for r in (options.releases or "").split(",") if r]
    if output is None:
        raise InputError("Expected '--output' (got none); name the npz file to write.")
    if options.words < 1:
        raise InputError(f"Expected '--words' of at least 1 (got {options.words}); raise it.")
    tell = make_console(stderr=True).print
    with tempfile.TemporaryDirectory(prefix="evergraph-") as passing:
        folder = options.folder or Path(passing)
        if options.mirror is not None:
            if not releases:
                raise InputError(
                    "Expected '--releases' beside '--mirror' (got none); name them in order."
                )
            kind = options.architecture
            mirror_indexes(options.mirror, releases, folder, architecture=kind, tell=tell)
        elif options.folder is None:
            raise InputError(
                "Expected '--from' or '--mirror' (got neither); name a folder or an archive."
            )
        build_packages(folder, output, releases, num_words=options.words, tell=tell)
