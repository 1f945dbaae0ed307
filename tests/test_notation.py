"""The table of notation: its names exist in the code, its defaults are what a run resolves."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from evergraph.config import Variant, resolve

PAGE = Path(__file__).parent.parent / "docs" / "notation.md"
DATASETS = ("cora", "citeseer", "amazon-computers", "ogbn-arxiv", "reddit")
#: What stands in the column and is no name: variables and files.
WORDS = {"h", "z", "accuracy_matrix", "results.json"}


def rows() -> Iterator[tuple[list[str], str]]:
    """Yields the names and the default of each row of both tables."""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        fields = [field.strip() for field in re.split(r"(?<!\\)\|", line)[1:-1]]
        if "name in the code" in fields or not fields or set(fields[0]) == {"-"}:
            continue
        yield re.findall(r"`([^`]+)`", fields[1]), fields[-1]


@cache
def resolved(dataset: str) -> dict[str, Any]:
    config = resolve(Variant.parse_dataset(dataset), Variant.parse("dslr"), 0)
    return {**config.settings, **config.training.model_dump(), **config.model.model_dump()}


NAMES = sorted({name for names, _ in rows() for name in names if "." in name} - WORDS)
SETTINGS = {
    names[0]: default for names, default in rows() if "." not in names[0] and names[0] not in WORDS
}


@pytest.mark.parametrize("name", NAMES)
def test_name_exists(name: str):
    parts = name.split(".")
    for end in range(len(parts), 0, -1):  # the longest beginning that is a module
        try:
            found = importlib.import_module(".".join(["evergraph", *parts[:end]]))
        except ModuleNotFoundError:
            continue
        break
    for part in parts[end:]:
        fields = getattr(found, "__dataclass_fields__", {})
        found = fields[part] if part in fields else getattr(found, part)


@pytest.mark.parametrize("key", SETTINGS)
def test_default_is_what_a_run_resolves(key: str):
    values = [yaml.safe_load(value) for value in SETTINGS[key].split(" · ")]
    shown = values * len(DATASETS) if len(values) == 1 else values
    assert shown == [resolved(dataset)[key] for dataset in DATASETS]


def test_every_tuned_setting_is_listed():
    search = {"beta", "lam", "num_neighbors", "num_candidates", "tau", "r", "buffer_size"}
    assert search <= set(SETTINGS)
