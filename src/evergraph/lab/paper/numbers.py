"""The paper's own numbers, to be set beside measured ones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import yaml

from evergraph.config import usual_protocol

#: Runs behind each number that the paper prints.
PAPER_SEEDS = 10


class Claim(NamedTuple):
    """A printed mean with its standard deviation, None where none is printed."""

    mean: float
    std: float | None


@cache
def paper_numbers() -> dict[str, Any]:
    """Reads the data file: table → dataset → method or selector → metric."""
    text = resources.files("evergraph.lab.paper").joinpath("paper_numbers.yaml").read_text()
    numbers: dict[str, Any] = yaml.safe_load(text)
    return numbers


def claims(
    dataset: str, method: str, settings: Mapping[str, Any], protocol_hash: str | None = None
) -> dict[str, Claim]:
    """Finds what the paper claims for a run: ``{"pm": ..., "fm": ...}``, {} for nothing.

    Replay is looked up by its selector. A variant of DSLR whose settings leave the method
    (no structure learning, say) is another experiment and has no claim here, nor has a run
    under another protocol than the paper's.
    """
    numbers = paper_numbers()
    if method == "replay":
        entry = numbers["selectors"].get(dataset, {}).get(settings.get("selector"))
    elif method == "dslr" and not _is_dslr_proper(settings):
        entry = None
    else:
        entry = numbers["main"].get(dataset, {}).get(method)
    if not isinstance(entry, dict):
        return {}
    if protocol_hash is not None and protocol_hash != usual_protocol(dataset, method).hash:
        return {}
    return {metric: Claim(*values) for metric, values in entry.items()}


def _is_dslr_proper(settings: Mapping[str, Any]) -> bool:
    usual = {
        "selector": "cd",
        "structure": "learned",
        "candidates": "nearest",
        "addition": "top",
        "deletion": "threshold",
        "sl_ratio": 1.0,
    }
    return all(settings.get(key, value) == value for key, value in usual.items())
