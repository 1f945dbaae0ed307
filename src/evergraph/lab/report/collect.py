"""Finds the runs below a folder and groups those that differ in their seed alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.config import load_mapping
from evergraph.errors import InputError
from evergraph.files import read_json
from evergraph.lab.folder import finished_runs, read_results
from evergraph.stream.datasets import DATASETS


@dataclass(frozen=True)
class Run:
    """A finished run and its folder; other files than the results are read when asked for."""

    folder: Path
    results: dict[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        """Reads the run's complete configuration."""
        path = self.folder / "config.yaml"
        return load_mapping(path.read_text(encoding="utf-8", errors="replace"), str(path))

    @property
    def environment(self) -> dict[str, Any]:
        """Reads where the run took place; nothing if that was not kept."""
        path = self.folder / "environment.json"
        content = read_json(path) if path.exists() else {}
        return content if isinstance(content, dict) else {}

    @property
    def events(self) -> list[dict[str, Any]]:
        """Reads what happened task by task; nothing if that was not kept."""
        path = self.folder / "events.jsonl"
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            return [dict(json.loads(line)) for line in text.splitlines()]
        except (ValueError, TypeError):
            raise InputError(
                f"Expected '{path}' to hold one JSON object per line (it does not); restore it "
                "or remove it."
            ) from None


@dataclass(frozen=True)
class Group:
    """Runs of one variant on one dataset, by seed, and their settings as ``section.key``."""

    name: str
    runs: list[Run]
    config: dict[str, Any]


@dataclass(frozen=True)
class Collection:
    """Everything that a folder holds.

    A dataset is all variants that were run on one graph under one protocol, and so may be compared.
    """

    title: str
    datasets: dict[str, list[Group]]
    num_runs: int
    unfinished: list[str]  # folders of runs that have no results yet
    copies: list[str]  # folders of runs that were found before in another one
    reference: str | None  # the variant that others are compared with, if the folder names one


def collect(folder: Path) -> Collection:
    """Reads a run folder, a grid, or any folder with run folders below."""
    if not folder.is_dir():
        raise InputError(f"Expected a folder with runs (got '{folder}'); check the path.")
    configs = {
        path
        for path in folder.glob("**/config.yaml")
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    }
    finished = [run for run in finished_runs(folder) if (run / "config.yaml") in configs]
    runs: dict[tuple[str, str], Run] = {}
    for path in finished:
        results = read_results(path / "results.json")
        runs.setdefault((results["config_hash"], results["graph"]), Run(path, results))
    if not runs:
        got = f"{len(configs)} unfinished" if configs else "none"
        raise InputError(
            f"Expected '{folder}' to hold a finished run (got {got}); check the path or finish a "
            "run first."
        )
    waiting = configs - {run / "config.yaml" for run in finished}
    shown = {run.folder for run in runs.values()}
    by_protocol: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs.values():
        key = (run.results["dataset"], run.results["protocol_hash"], run.results["graph"])
        by_protocol.setdefault(key, []).append(run)
    names = _dataset_names(by_protocol)
    places = {name: place for place, name in enumerate(DATASETS)}  # others come after them
    path = folder / "comparisons.json"
    compared: Any = read_json(path) if path.exists() else None
    reference = None
    with suppress(TypeError, LookupError):  # there is none
        reference = str(compared[0]["reference"])
    order = sorted(by_protocol, key=lambda key: (places.get(key[0], len(places)), names[key]))
    return Collection(
        title=folder.resolve().name,
        datasets={names[key]: make_groups(by_protocol[key]) for key in order},
        num_runs=len(runs),
        unfinished=sorted(str(path.parent.relative_to(folder)) for path in waiting),
        copies=sorted(str(path.relative_to(folder)) for path in finished if path not in shown),
        reference=reference,
    )


def make_groups(runs: Sequence[Run]) -> list[Group]:
    """Groups runs of one dataset by variant; labels that several share get what differs."""
    parts: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        parts.setdefault((run.results["label"], run.results["variant_hash"]), []).append(run)
    sections = ("settings", "training", "model", "protocol")  # how a run was made
    configs = {
        key: {
            f"{section}.{name}": value
            for section in sections
            for name, value in (part[0].config.get(section) or {}).items()
        }
        for key, part in parts.items()
    }
    groups = []
    for (label, variant), part in parts.items():
        alike = [configs[key] for key in parts if key[0] == label]
        differing = {
            key.split(".")[-1]: value
            for key, value in configs[label, variant].items()
            if any(other.get(key) != value for other in alike)
        }
        words = ", ".join(f"{key}={value}" for key, value in sorted(differing.items()))
        name = label if len(alike) == 1 else f"{label} ({words or variant[:6]})"
        part.sort(key=lambda run: int(run.results["seed"]))
        groups.append(Group(name, part, configs[label, variant]))
    return groups


def _dataset_names(by_protocol: dict[tuple[str, str, str], list[Run]]) -> dict[Any, str]:
    """Names datasets so that no two are alike, with no more words than that takes."""
    details = {
        key: (key[0], part[0].results["evaluated_on"], key[1][:6], key[2][:6])
        for key, part in by_protocol.items()
    }
    names = {}
    for key, words in details.items():
        others = [other for other in details.values() if other != words]
        length = next((n for n in (1, 2, 3) if words[:n] not in {o[:n] for o in others}), 4)
        names[key] = " · ".join(words[:length])
    return names
