"""Takes over what searches found: as presets of methods, and their trials into the log.

    python scripts/adopt_tuning.py SEARCH_FOLDER... [--method NAME ...]

Writes ``src/evergraph/experiments/tuned.yaml`` and ``docs/tuning.csv``, replacing what they hold
of the same datasets and methods and leaving the rest. A label that is not a method's name, as of
a variant, goes into the log alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from evergraph.config import Variant, resolve
from evergraph.errors import InputError
from evergraph.files import write_atomic
from evergraph.lab.trials import best_settings, join_rows, read_rows, write_rows
from evergraph.methods import METHODS
from evergraph.presets import PRESETS

ROOT = Path(__file__).resolve().parent.parent


def adopt(folders: list[Path], methods: list[str] | None, root: Path = ROOT) -> list[str]:
    """Joins searches into the repository's files and returns a line for each that was taken."""
    log = root / "docs" / "tuning.csv"
    presets = root / "src" / "evergraph" / "tuned.yaml"
    found = []
    for folder in folders:
        found = join_rows(found, read_rows(folder / "trials.csv"))
    new = [row for row in found if methods is None or row.method in methods]
    if not new:
        named = ", ".join(methods or ["any method"])
        raise InputError(f"Expected trials of {named} in the folders (got none); check the names.")
    text = presets.read_text(encoding="utf-8")
    header = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    chosen = yaml.safe_load(text) or {}
    lines = []
    for dataset, by_method in best_settings(new).items():
        for method, settings in by_method.items():
            if method not in METHODS or dataset not in PRESETS:
                continue
            variant = Variant(name=method, options=settings, label=method)
            resolve(Variant.parse_dataset(dataset), variant, 0)  # refuses what cannot be run
            chosen.setdefault(dataset, {})[method] = settings
            lines.append(f"{dataset} {method}: {settings}")
    rows = join_rows(read_rows(log) if log.exists() else [], new)
    order = {dataset: place for place, dataset in enumerate(PRESETS)}
    rows.sort(key=lambda row: (order.get(row.dataset, len(order)), row.method, row.trial))
    body = yaml.safe_dump(chosen, sort_keys=True, allow_unicode=True)
    write_atomic(presets, (header + body).encode())
    write_atomic(log, write_rows(rows))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--method", action="append")
    arguments = parser.parse_args()
    try:
        print("\n".join(adopt(arguments.folders, arguments.method)))
    except InputError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
