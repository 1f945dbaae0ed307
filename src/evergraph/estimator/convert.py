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

import numpy as np
import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.estimator.content import (
    change_content,
    check_rows,
    graph_content,
    restore_change,
    restore_features,
    restore_state,
    state_content,
)
from evergraph.estimator.graph import GrowingGraph, Grown
from evergraph.estimator.inputs import Change, unique_ids
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
        change = _read_pending(old, number)
    except Exception:  # whatever damaged bytes bring about
        raise InputError(
            f"Expected a whole state of 0.1.0 in '{old}' (it is damaged); run 'evergraph resume' "
            "of 0.1.0, or restore a copy."
        ) from None
    store = Store(new)
    with store.writing(converting=True):
        if store.path.exists() or (new != old and not store.is_empty):
            raise InputError(
                f"Expected a folder without a state to convert to (got '{new}'); choose another."
            )
        store.commit(number, content, None if change is None else change_content(change))
    told = f"Version {number} of '{old}' is converted to '{new}'."
    return f"{told} Run 'evergraph resume {new}' to finish its change." if change else told


def _read_files(root: Path) -> tuple[int, dict[str, bytes]]:
    """Reads the current generation; every checksum must hold."""
    pointer = json.loads(read_regular(root / "current.json", root))
    number = int(pointer["generation"])
    folder = root / "generations" / f"{number:08d}"
    manifest = _checked(read_regular(folder / "manifest.json", root), pointer["manifest"])
    about = json.loads(manifest)["files"]
    return number, {
        name: _checked(read_regular(folder / name, root), about[name]["sha256"]) for name in FILES
    }


def _state(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Puts the content of a generation's files as the present format has it."""
    names, evaluator = json.loads(files["names.json"]), json.loads(files["evaluator.json"])
    graph, learner = unpack(files["graph.safetensors"]), unpack(files["learner.safetensors"])
    edges, ids = graph["adjacency"], unique_ids(names["ids"])
    degree = edges["indptr"][1:] - edges["indptr"][:-1]
    pairs = torch.stack([edges["src"], torch.repeat_interleave(degree)])
    check_rows(pairs.T, len(ids), len(ids))
    there = GrowingGraph.empty()
    x = restore_features(graph["features"])
    if ids and x is not None:
        there = there.with_nodes(ids, x).with_edges(pairs)
    lines = "".join(json.dumps(entry) + "\n" for entry in evaluator["history"]).encode()
    granted = learner.pop("granted")
    held_out = there.find(evaluator["held_out"], "held_out"), torch.tensor(evaluator["labels"])
    return {
        "config": json.loads(files["config.json"]),
        "classes": names["classes"],
        "columns": names["columns"],
        "history": Grown.of(np.frombuffer(lines, dtype=np.uint8)),
        **graph_content(there),
        "edits": graph["edits"],
        "granted": _pairs(granted["nodes"], granted["labels"]),
        "learner": _learner(learner, len(ids)),
        "held_out": _pairs(*held_out),
        "shown": Grown.of(torch.nonzero(graph["labelled"]).flatten().numpy()),
    }


def _pairs(nodes: Tensor, labels: Tensor) -> Grown:
    return Grown.of(torch.stack([nodes, labels.long()], 1).numpy())


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


def _read_pending(root: Path, number: int) -> Change | None:
    """Reads the change that was to be made to a generation, if there is one."""
    path = root / "pending.safetensors"
    if not path.exists():
        return None
    content = read_regular(path, root)
    state = unpack(_checked(content[64:], content[:64].decode()))
    # One to an earlier generation is part of this one already.
    return restore_change(state["change"]) if int(state["base"]) == number else None


def _checked(content: bytes, checksum: str) -> bytes:
    if sha256(content).hexdigest() != checksum:
        raise ValueError("a checksum that does not hold")
    return content
