"""``evergraph datasets`` and ``evergraph methods``: what there is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from evergraph.lab.cli import options
from evergraph.lab.cli.build import BuildOptions, build
from evergraph.lab.cli.progress import show
from evergraph.lab.tables import Sheet
from evergraph.memory import SELECTORS
from evergraph.methods import METHODS
from evergraph.stream import protocol_for
from evergraph.stream.datasets import DATASETS


def datasets(
    action: Annotated[
        list[str] | None, typer.Argument(help="'build packages' builds one instead.")
    ] = None,
    *,
    building: BuildOptions,
    as_json: options.JsonOption = False,
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


def methods(as_json: options.JsonOption = False) -> None:
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
            " ".join(f"{key}={value}" for key, value in entry["settings"].items()),
        ]
        for entry in entries
    ]
    columns = ["method", "what it does", "paper", "settings"]
    kept = ["selector", "which nodes it keeps"]
    chosen = [[entry["name"], entry["summary"]] for entry in selectors]
    sheets = [
        Sheet("Methods", columns, rows, prose=tuple(columns[1:])),
        Sheet("Selectors", kept, chosen, prose=tuple(kept)),
    ]
    show({"methods": entries, "selectors": selectors}, sheets, as_json)
