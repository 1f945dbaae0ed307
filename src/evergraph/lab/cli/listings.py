"""``evergraph datasets`` and ``evergraph methods``: what there is."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from evergraph.lab.cli import options
from evergraph.lab.cli.progress import make_console
from evergraph.lab.tables import Sheet
from evergraph.memory import SELECTORS
from evergraph.methods import METHODS
from evergraph.stream import protocol_for
from evergraph.stream.datasets import DATASETS


def datasets(as_json: options.JsonOption = False) -> None:
    """List the datasets, their protocol and where they come from."""
    entries: list[dict[str, Any]] = [
        {**asdict(info), "protocol": protocol_for(name).name, "hash": protocol_for(name).hash}
        for name, info in DATASETS.items()
    ]
    if as_json:
        print(json.dumps(entries, indent=2))
        return
    rows = [
        [
            entry["name"],
            *(f"{entry[key]:,}" for key in ("nodes", "edges", "features", "classes")),
            entry["protocol"],
            entry["obtained"],
        ]
        for entry in entries
    ]
    rows.append(["path/to/file.npz", "–", "–", "–", "–", "default", "your own graph"])
    columns = ["dataset", "nodes", "edges", "features", "classes", "protocol", "obtained"]
    make_console().print(Sheet("Datasets", columns, rows, prose=("protocol", "obtained")).rich())


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
    if as_json:
        print(json.dumps({"methods": entries, "selectors": selectors}, indent=2))
        return
    console = make_console()
    rows = [
        [
            str(entry["name"]),
            str(entry["summary"]),
            f"{entry['paper']}, {entry['year']}",
            " ".join(f"{key}={value}" for key, value in entry["settings"].items()),
        ]
        for entry in entries
    ]
    columns = ["method", "what it does", "paper", "settings"]
    console.print(Sheet("Methods", columns, rows, prose=tuple(columns[1:])).rich())
    rows = [[entry["name"], entry["summary"]] for entry in selectors]
    columns = ["selector", "which nodes it keeps"]
    console.print(Sheet("Selectors", columns, rows, prose=tuple(columns)).rich())
