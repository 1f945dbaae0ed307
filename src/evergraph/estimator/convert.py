"""Convert: reads a state's folder as release 0.1.0 wrote it, and writes it in the present format.

There, ``current.json`` names a generation and the checksum of its manifest, the manifest those of
the generation's files; ``pending.safetensors`` is a change that is not finished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.chunks import Found
from evergraph.estimator.content import (
    change_content,
    ids_content,
    restore_change,
    restore_state,
    state_content,
)
from evergraph.estimator.store import OLD_NAMES, Store
from evergraph.files import read_regular, unpack

FILES = ("config.json", "names.json", "graph.safetensors", "learner.safetensors", "evaluator.json")


def convert_state(old: Path, new: Path) -> str:
    """Converts the current generation with its history and its unfinished change.

    The files of 0.1.0 stay as they are. Returns a sentence about what was done.
    """
    if not all((old / name).exists() for name in OLD_NAMES):
        raise InputError(
            f"Expected a state of 0.1.0 in '{old}' (got none); check the path, or use the state as "
            "it is if this release wrote it."
        )
    try:
        number, files = _read_files(old)
        content = state_content(restore_state(_state(files)))
        pending = _read_pending(old, number)
    except Exception:  # whatever damaged bytes bring about
        raise InputError(
            f"Expected a whole state of 0.1.0 in '{old}' (it is damaged); run 'evergraph resume' "
            "of 0.1.0, or restore a copy."
        ) from None
    store = Store(new)
    with store.writing(converting=True):
        if store.has_database or (new != old and not store.is_empty):
            raise InputError(
                f"Expected a folder without a state to convert to (got '{new}'); choose another."
            )
        store.create(Found(number, content), pending)
    told = f"Version {number} of '{old}' is converted to '{new}'."
    return f"{told} Run 'evergraph resume {new}' to finish its change." if pending else told


def _read_files(root: Path) -> tuple[int, dict[str, bytes]]:
    """Reads the current generation; every checksum must hold."""
    pointer = json.loads(read_regular(root / "current.json", root))
    number = int(pointer["generation"])
    folder = root / "generations" / f"{number:08d}"
    manifest = read_regular(folder / "manifest.json", root)
    _check(manifest, pointer["manifest"])
    entries = json.loads(manifest)["files"]
    files = {name: read_regular(folder / name, root) for name in FILES}
    for name, content in files.items():
        _check(content, entries[name]["sha256"])
    return number, files


def _state(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Puts the content of a generation's files as the present format has it."""
    names, evaluator = json.loads(files["names.json"]), json.loads(files["evaluator.json"])
    graph, learner = unpack(files["graph.safetensors"]), unpack(files["learner.safetensors"])
    edges, edits = graph["adjacency"], graph["edits"]
    degree = edges["indptr"][1:] - edges["indptr"][:-1]
    pairs = torch.stack([edges["src"], torch.repeat_interleave(degree)])
    rows = {name: row for row, name in enumerate(names["ids"])}
    held_out = torch.tensor([rows[name] for name in evaluator["held_out"]], dtype=torch.int64)
    labels = torch.tensor(evaluator["labels"], dtype=torch.int64)
    return {
        "config": json.loads(files["config.json"]),
        "classes": names["classes"],
        "columns": names["columns"],
        "history": evaluator["history"],
        "ids": ids_content(names["ids"]),
        "features": graph["features"],
        "edges": _ends(pairs[:, pairs[0] < pairs[1]]),
        "edits": {key: _ends(edits[key]) for key in ("added", "deleted")},
        "granted": learner.pop("granted"),
        "learner": _learner(learner, len(names["ids"])),
        "held_out": {"nodes": held_out, "labels": labels},
        "shown": graph["labelled"],
    }


def _learner(learner: dict[str, Any], num_nodes: int) -> dict[str, Any]:
    """Puts what methods kept beside the nodes of their buffer into it."""
    method = learner["method"]
    learner["num_seen"] = method.get("num_seen", num_nodes)
    if "buffer" in method:
        picks = method["buffer"]["picks"]
        rows = {name: method.get(name) for name in ("logits", "widths")}
        rows["features"] = method.get("kept_rows")
        near = {"candidates": method.get("candidates")}
        if method.get("same_class"):
            near["same class"] = _same_class(picks, method["same_class"])
        for name, kept in (("rows", rows), ("neighbours", near)):
            method["buffer"][name] = {key: t for key, t in kept.items() if t is not None}
    return learner


def _same_class(picks: Mapping[str, Tensor], near: Mapping[str, Tensor]) -> Tensor:
    """Joins the neighbours of all classes; a node stands for those that it lacks."""
    width = max(found.shape[1] for found in near.values())
    parts = []
    for label, nodes in picks.items():
        part = nodes[:, None].repeat(1, width)
        part[:, : near[label].shape[1]] = near[label]
        parts.append(part)
    return torch.cat(parts)


def _read_pending(root: Path, number: int) -> dict[str, Any] | None:
    """Reads the change that was to be made to a generation, if there is one."""
    path = root / "pending.safetensors"
    if not path.exists():
        return None
    content = read_regular(path, root)
    _check(content[64:], content[:64].decode())
    state = unpack(content[64:])
    if int(state["base"]) != number:  # it is part of the generation already
        return None
    change = state["change"]
    keys = {
        "removed_sources": change["removed_edges"][0],
        "removed_targets": change["removed_edges"][1],
        "sources": change["edges"][0],
        "targets": change["edges"][1],
        "labelled": change["labels"][0],
        "labels": change["labels"][1],
        **{key: change[key] for key in ("removed", "updated", "ids")},
    }
    same = {key: change[key] for key in ("kind", "x", "updated_x", "columns")}
    found = {**same, **{key: ids_content(ids) for key, ids in keys.items()}}
    return change_content(restore_change(found))


def _ends(pairs: Tensor) -> dict[str, Tensor]:
    return {"first": pairs[0], "second": pairs[1]}


def _check(content: bytes, expected: str) -> None:
    if sha256(content).hexdigest() != expected:
        raise ValueError("a checksum that does not hold")
