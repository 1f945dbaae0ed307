"""``evergraph datasets`` and ``evergraph methods``: what there is, and what can be built."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from evergraph.errors import InputError
from evergraph.lab.cli.runs import JsonOption
from evergraph.lab.tables import Sheet, make_console, show
from evergraph.memory import SELECTORS
from evergraph.methods import METHODS
from evergraph.stream import protocol_for
from evergraph.stream.datasets import DATASETS
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
    releases: Annotated[str | None, "Releases in order, a,b,c; else subfolders by name."] = None
    mirror: Annotated[str | None, "Address of an archive to get index files from."] = None
    architecture: Annotated[str, "Whose packages a mirror gives."] = "amd64"
    words: Annotated[int, "The most words that make the features."] = 2000


def datasets(
    action: Annotated[
        list[str] | None, typer.Argument(help="'build packages' builds one instead.")
    ] = None,
    *,
    building: BuildOptions,
    as_json: JsonOption = False,
) -> None:
    """List the datasets and where they come from, or build one."""
    if action or building != BuildOptions():
        build(action or [], building)
        return
    entries: list[dict[str, Any]] = [
        {**asdict(info), "protocol": protocol_for(name).name, "hash": protocol_for(name).hash}
        for name, info in DATASETS.items()
    ]
    columns = ["dataset", "nodes", "edges", "features", "classes", "protocol", "obtained"]
    rows = [[entry["name"], *(entry[key] for key in columns[1:])] for entry in entries]
    rows.append(["path/to/file.npz", None, None, None, None, "default", "your own graph"])
    show(entries, [Sheet("Datasets", columns, rows, prose=("protocol", "obtained"))], as_json)


def methods(as_json: JsonOption = False) -> None:
    """List the methods and selectors with their settings."""
    entries: list[dict[str, Any]] = [
        {
            "name": name,
            "summary": cls.summary,
            "paper": cls.paper,
            "year": cls.year,
            "needs": sorted(cls.needs),
            "settings": {
                key: field.get_default(call_default_factory=True)
                for key, field in cls.Config.model_fields.items()
                if not field.deprecated
            },
            "search": cls.search,
        }
        for name, cls in METHODS.items()
    ]
    selectors = [{"name": name, "summary": info.summary} for name, info in SELECTORS.items()]
    rows = [
        [
            entry["name"],
            entry["summary"],
            f"{entry['paper']}, {entry['year']}",
            " ".join(entry["needs"]) or "–",
            " ".join(f"{key}={value}" for key, value in entry["settings"].items()),
        ]
        for entry in entries
    ]
    columns = ["method", "what it does", "paper", "needs", "settings"]
    kept = ["selector", "which nodes it keeps"]
    chosen = [[entry["name"], entry["summary"]] for entry in selectors]
    sheets = [
        Sheet("Methods", columns, rows, prose=tuple(columns[1:])),
        Sheet("Selectors", kept, chosen, prose=tuple(kept)),
    ]
    show({"methods": entries, "selectors": selectors}, sheets, as_json)


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
