"""Finds the runs below a folder and groups those that differ in their seed alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evergraph.config import SCHEMA_VERSION, load_mapping
from evergraph.errors import InputError
from evergraph.files import read_json
from evergraph.stream.datasets import DATASETS

#: What every results.json must hold to be shown.
REQUIRED = frozenset(
    {
        *("dataset", "method", "label", "protocol_hash", "graph", "config_hash", "variant_hash"),
        *("settings", "seed", "evaluated_on", "class_names", "tasks", "accuracy_matrix"),
        *("pm", "fm", "current", "seconds", "memory_bytes"),
    }
)


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
    """Runs of one variant on one dataset, by seed."""

    name: str
    runs: list[Run]
    config: dict[str, Any]


@dataclass(frozen=True)
class Dataset:
    """All variants that were run on one graph under one protocol, and so may be compared."""

    name: str
    groups: list[Group]


@dataclass(frozen=True)
class Collection:
    """Everything that a folder holds."""

    title: str
    datasets: list[Dataset]
    num_runs: int
    num_unfinished: int
    num_copies: int  # the same run found again in another folder
    reference: str | None  # the variant that others are compared with, if the folder names one


def collect(folder: Path) -> Collection:
    """Reads a run folder, a grid, or any folder with run folders below."""
    if not folder.is_dir():
        raise InputError(f"Expected a folder with runs (got '{folder}'); check the path.")
    configs = [
        path
        for path in sorted(folder.glob("**/config.yaml"))
        if not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    finished = [path for path in configs if path.with_name("results.json").exists()]
    runs, copies = _read_runs(finished)
    if not runs:
        raise InputError(
            f"Expected '{folder}' to hold a finished run (got {len(configs)} unfinished); "
            "check the path or finish a run first."
        )
    by_protocol: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        key = (run.results["dataset"], run.results["protocol_hash"], run.results["graph"])
        by_protocol.setdefault(key, []).append(run)
    names = _dataset_names(by_protocol)
    known = list(DATASETS)
    order = sorted(by_protocol, key=lambda key: (*_place(key[0], known), names[key]))
    return Collection(
        title=folder.resolve().name,
        datasets=[Dataset(names[key], make_groups(by_protocol[key])) for key in order],
        num_runs=len(runs),
        num_unfinished=len(configs) - len(finished),
        num_copies=copies,
        reference=_reference(folder),
    )


def make_groups(runs: Sequence[Run]) -> list[Group]:
    """Groups runs of one dataset by variant; labels that several share get what differs."""
    parts: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        parts.setdefault((run.results["label"], run.results["variant_hash"]), []).append(run)
    configs = {key: part[0].config for key, part in parts.items()}
    groups = []
    for (label, variant), part in parts.items():
        alike = [flat(configs[key]) for key in parts if key[0] == label]
        mine = flat(configs[label, variant])
        differing = {
            key.split(".")[-1]: value
            for key, value in mine.items()
            if any(other.get(key) != value for other in alike)
        }
        words = ", ".join(f"{key}={value}" for key, value in sorted(differing.items()))
        name = label if len(alike) == 1 else f"{label} ({words or variant[:6]})"
        part.sort(key=lambda run: int(run.results["seed"]))
        groups.append(Group(name, part, configs[label, variant]))
    return groups


def flat(config: dict[str, Any]) -> dict[str, Any]:
    """Flattens the sections of a configuration that say how a run was made."""
    sections = ("settings", "training", "model", "protocol")
    return {
        f"{section}.{key}": value
        for section in sections
        for key, value in (config.get(section) or {}).items()
    }


def _read_runs(paths: Sequence[Path]) -> tuple[list[Run], int]:
    """Reads results, each run once; returns how many copies were passed over."""
    runs: dict[tuple[str, str], Run] = {}
    for path in paths:
        file = path.with_name("results.json")
        results = read_json(file)
        missing = sorted(REQUIRED - results.keys()) if isinstance(results, dict) else ["dataset"]
        if missing:
            raise InputError(
                f"Expected '{missing[0]}' in '{file}' (it is not there); run it again or move its "
                "folder away."
            )
        if results.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"Expected 'schema_version' {SCHEMA_VERSION} in '{file}' (got "
                f"{results.get('schema_version')}); use the release that wrote it."
            )
        key = (results["config_hash"], results["graph"])
        runs.setdefault(key, Run(path.parent, results))
    return list(runs.values()), len(paths) - len(runs)


def _dataset_names(by_protocol: dict[tuple[str, str, str], list[Run]]) -> dict[Any, str]:
    """Names datasets so that no two are alike, with no more words than that takes."""
    details = {
        key: (key[0], part[0].results["evaluated_on"], key[1][:6], key[2][:6])
        for key, part in by_protocol.items()
    }
    names = {}
    for key, words in details.items():
        length = 1
        while (
            length < 4 and sum(other[:length] == words[:length] for other in details.values()) > 1
        ):
            length += 1
        names[key] = " · ".join(words[:length])
    return names


def _place(name: str, known: Sequence[str]) -> tuple[int, str]:
    """Orders registered datasets as they are listed, others by name after them."""
    return (known.index(name), "") if name in known else (len(known), name)


def _reference(folder: Path) -> str | None:
    """Returns what a grid compared its methods with."""
    path = folder / "comparisons.json"
    content = read_json(path) if path.exists() else []
    first = content[0] if isinstance(content, list) and content else None
    name = first.get("reference") if isinstance(first, dict) else None
    return None if name is None else str(name)
