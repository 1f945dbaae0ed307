"""Run folders made up for the report: the format of real ones, numbers that tests choose."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evergraph.config import RunConfig, Variant, resolve
from evergraph.lab.paper.contrasts import Table
from evergraph.lab.paper.outcome import outcome_row
from evergraph.metrics import scores

CLASSES = ["alpha", "beta", "gamma", "delta"]
TASKS = [[0, 1], [2, 3]]
ENVIRONMENT = {
    "python": "3.12.0",
    "packages": {"evergraph": "0.1.0", "torch": "2.0"},
    "commit": "abc",
    "device": "cpu",
    "device_name": "abacus",
}


def make_run(
    folder: Path,
    method: str = "dslr",
    seed: int = 0,
    *,
    dataset: str = "cora",
    matrix: list[list[float]] | None = None,
    diagnostics: dict[str, Any] | None = None,
    shared: dict[str, Any] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Writes a finished run of two tasks and returns its results."""
    config = resolve(Variant.parse_dataset(dataset), Variant.parse(method), seed, shared)
    matrix = matrix or [[90.0 + seed], [70.0 + 2 * seed, 80.0]]
    found = scores(matrix)
    by_class = [[value for value in row for _ in range(2)] for row in matrix]
    results = {
        "schema_version": 1,
        "dataset": config.dataset_name,
        "method": config.method,
        "label": config.label,
        "overrides": config.overrides,
        "protocol_hash": config.protocol.hash,
        "graph": "f00d",
        "config_hash": config.hash,
        "variant_hash": config.variant_hash,
        "settings": config.settings,
        "seed": seed,
        "evaluated_on": config.protocol.evaluate,
        "class_names": CLASSES,
        "tasks": TASKS,
        "accuracy_matrix": matrix,
        **found.__dict__,
        "task_incremental": {"accuracy_matrix": matrix, **found.__dict__},
        "by_class": {"accuracy_matrix": by_class, **found.__dict__},
        "seconds": {"classify": 3.0, "evaluate": 1.0, "total": 4.0},
        "memory_bytes": 1600,
        "reports": [{}, {}],
        "diagnostics": diagnostics or {},
        **changes,
    }
    folder.mkdir(parents=True)
    write_files(folder, config, results)
    return results


def write_files(folder: Path, config: RunConfig, results: dict[str, Any]) -> None:
    """Writes the four files of a finished run."""
    (folder / "config.yaml").write_text(config.to_yaml())
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    events = [
        {"task": task, "seconds": {"classify": 1.5, "evaluate": 0.5}, "memory_bytes": 800 * task}
        for task in range(2)
    ]
    events[1]["report"] = {"structure": {"added_edges": 6, "deleted_edges": 2}}
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    (folder / "results.json").write_text(json.dumps(results))


def planted_samples() -> dict[str, Any]:
    """Diagnostics with four far clusters of 20 nodes, and a node whose edges were edited.

    Cluster c lies at 500 on component c; node i is off by up to 9, so that clusters are tight.
    """
    labels = [label for label in range(4) for _ in range(20)]
    components = [
        " ".join(str(500 * (label == part) + (7 * i) % 10) for i, label in enumerate(labels))
        for part in range(4)
    ]
    return {
        "buffer_diversity": {"mean": 1.25, "by_class": {}},
        "embedding_sample": {
            "nodes": " ".join(str(100 + i) for i in range(80)),
            "labels": " ".join(map(str, labels)),
            "predicted": " ".join(map(str, [3, *labels[1:]])),
            "roles": "b" * 4 + "t" * 36 + "e" * 40,
            "components": components,
            "explained": [0.4, 0.3, 0.2, 0.1],
        },
        "edit_sample": [
            {
                "node": 7,
                "label": 0,
                "neighbours": "8 9 10 11",
                "labels": "0 0 1 2",
                "states": "++-=",
                "left_out": 0,
            }
        ],
    }


def planted_probability() -> dict[str, Any]:
    """Scores of probabilities of 40 nodes in two bins, four classes of ten, the last one missed."""
    confusion = [[10, 0, 0, 0], [1, 9, 0, 0], [0, 0, 8, 2], [10, 0, 0, 0]]
    return {
        "ece": 0.075,
        "calibrated_on": "validation nodes",
        "reliability": [[20, 0.3, 0.4], [20, 0.9, 0.95]],
        "confusion": confusion,
    }


def make_grid(folder: Path, methods: tuple[str, ...], num_seeds: int, **options: Any) -> None:
    """Writes a grid of runs in which each method is about 5 points above the next."""
    for place, method in enumerate(methods):
        for seed in range(num_seeds):
            wobble = (seed * 7) % 5 + place * ((seed * 3) % 4) / 4
            matrix = [[95.0 - place], [80.0 - 5 * place + wobble, 90.0 - 5 * place + wobble]]
            path = folder / "runs" / str(options.get("dataset", "cora")) / str(place) / str(seed)
            make_run(path, method, seed, matrix=matrix, **options)


def table_rows(table: Table, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Writes a table, NaN for what was not measured, as the rows of an outcome."""
    return [
        outcome_row(
            table.dataset,
            row,
            {
                metric: {
                    seed: value
                    for seed, value in zip(
                        table.seeds, table(row.name, metric).tolist(), strict=True
                    )
                    if not math.isnan(value)
                }
                for metric in metrics
            },
        )
        for row in table.rows
    ]
