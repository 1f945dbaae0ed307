"""Takes over what searches found: as presets of methods, and their trials into the log.

    python scripts/adopt_tuning.py SEARCH_FOLDER... [--method NAME ...]

Writes the ``tuned`` values of ``src/evergraph/presets.yaml`` and ``docs/tuning.csv``, replacing
what they hold of the same datasets and methods and leaving the rest. A variant with one option,
searched without a label (``joint:learner=appnp``), has a preset of its own; a label that is no
method's goes into the log alone. Of a search with ``--per-seed`` the one
choice for all seeds is taken, and its runs go into ``docs/tuning-by-seed.csv``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from evergraph.config import Variant, read_presets, resolve
from evergraph.errors import InputError
from evergraph.files import write_atomic
from evergraph.lab.trials import (
    Row,
    SeedRow,
    TrialRow,
    best_settings,
    join_rows,
    read_rows,
    write_rows,
)
from evergraph.methods import METHODS

ROOT = Path(__file__).resolve().parent.parent


def adopt(folders: list[Path], methods: list[str] | None, root: Path = ROOT) -> list[str]:
    """Joins searches into the repository's files and returns a line for each that was taken."""
    docs, presets = root / "docs", root / "src" / "evergraph" / "presets.yaml"
    new = _found([folder / "trials.csv" for folder in folders], methods, TrialRow)
    if not new:
        named = ", ".join(methods or ["any method"])
        raise InputError(f"Expected trials of {named} in the folders (got none); check the names.")
    text = presets.read_text(encoding="utf-8")
    header = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    chosen = yaml.safe_load(text) or {}
    lines = []
    for dataset, by_method in best_settings(new).items():
        for method, settings in by_method.items():
            variant = Variant.parse(method)
            if variant.name not in METHODS or dataset not in read_presets():
                continue
            variant = variant.model_copy(update={"options": variant.options | settings})
            resolve(Variant.parse_dataset(dataset), variant, 0)  # refuses what cannot be run
            _replace(chosen.setdefault(dataset, {}).setdefault(method, {}), settings)
            lines.append(f"{dataset} {method}: {settings}")
    body = yaml.safe_dump(chosen, sort_keys=False, allow_unicode=True, default_flow_style=None)
    write_atomic(presets, (header + body).encode())
    _log(docs / "tuning.csv", new, TrialRow)
    by_seed = [path for folder in folders if (path := folder / "seeds.csv").exists()]
    if by_seed:
        _log(docs / "tuning-by-seed.csv", _found(by_seed, methods, SeedRow), SeedRow)
    return lines


def _found(files: list[Path], methods: list[str] | None, kind: type[Row]) -> list[Row]:
    """Reads the rows of some methods; of the same search those of the last file count."""
    found: list[Row] = []
    for path in files:
        found = join_rows(found, read_rows(path, kind))
    return [row for row in found if methods is None or row.method in methods]


def _log(path: Path, new: list[Row], kind: type[Row]) -> None:
    """Joins rows into a file of the repository, in the order of its datasets."""
    rows = join_rows(read_rows(path, kind) if path.exists() else [], new)
    order = {dataset: place for place, dataset in enumerate(read_presets())}
    rows.sort(key=lambda row: (order.get(row.dataset, len(order)), row.method, row.trial))
    write_atomic(path, write_rows(rows, kind))


def _replace(preset: dict[str, dict[str, Any]], settings: dict[str, Any]) -> None:
    """Puts other tuned values in the place of those that a method has."""
    for key in list(preset):
        preset[key].pop("tuned", None)
        if not preset[key]:
            del preset[key]
    for key, value in settings.items():
        preset.setdefault(key, {})["tuned"] = value


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
