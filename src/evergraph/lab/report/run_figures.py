"""Figures for a paper from a folder of runs: the page's values in the form that figures take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.files import make_folder
from evergraph.lab.folder import slug
from evergraph.lab.report.figures import FORMATS, check_matplotlib, write_figure
from evergraph.lab.summary import estimate

#: Variants whose embedding is drawn.
MAX_EMBEDDINGS = 6
SCORES = {"pm": "PM [%]", "fm": "FM [%]"}


def check_formats(formats: Sequence[str] | None, folder: Path | None) -> list[str]:
    """Returns the formats wanted, refusing unknown ones and a missing matplotlib."""
    for name in formats or ():
        if name not in FORMATS:
            known = ", ".join(sorted(FORMATS))
            raise InputError(f"Expected '--format' {known} (got '{name}'); choose among these.")
    if formats and folder is None:
        raise InputError(
            f"Expected '--figures' with '--format' (got '{formats[0]}' alone); name a folder."
        )
    if folder is not None:
        check_matplotlib()
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(
            f"Expected '--figures' to be a folder (got the file '{folder}'); choose another."
        )
    return list(formats or ["pdf"])


def write_figures(data: dict[str, Any], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Draws every figure for which there is data, ``DATASET-NAME.FORMAT``."""
    make_folder(folder)
    written = []
    for dataset in data["datasets"]:
        groups = sorted(dataset["groups"], key=lambda group: data["order"].index(group["name"]))
        entries = _entries(dataset, groups)
        for name, (figure, titles, content) in _figures(dataset, groups).items():
            for entry in entries[name]:  # as an outcome has them
                found = estimate(entry["values"], dataset["overlap"])
                reach = 0.0 if found["low"] is None else found["high"] - found["mean"]
                entry |= {"dataset": dataset["name"], "series": entry["row"], "std": reach}
                entry |= {"mean": found["mean"], "seeds": range(found["n"])}
            spec = {
                "figure": {**figure, "metrics": tuple(titles)},
                "spread": "measured, 95 %",
                "class_names": dataset["class_names"],
                "metrics": [{"key": key, "title": title} for key, title in titles.items()],
                "entries": entries[name],
                **content,
            }
            stem = f"{slug(dataset['name'])}-{name}"
            written += write_figure(spec, folder, stem, formats, dpi=300)
    return written


def _figures(dataset: dict[str, Any], groups: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Lists the figures of a dataset by name: how each is drawn, its metrics, and what else."""
    stages = [*sorted({stage for group in groups for stage in group["stages"]}), "total"]
    learned = range(1, len(dataset["tasks"]))  # all tasks but the last, which none follows
    after = {"mean": "mean of tasks seen [%]"} | {f"task {j}": f"task {j} [%]" for j in learned}
    cells = {"kind": "heatmap", "x": "on task", "y": "after task", "split": True}
    planes = [
        {
            "places": group["embedding"]["places"],
            "labels": group["embedding"]["labels"],
            "kept": {group["name"]: [role == "b" for role in group["embedding"]["roles"]]},
        }
        for group in groups
        if group.get("embedding")
    ]
    nodes = [node for group in groups for node in group.get("edited", {}).get("nodes", ())]
    return {
        "ablation": ({"kind": "points"}, SCORES, {}),
        "matrices": (cells, {"accuracy": "accuracy [%]"}, {"range": (0, 100), "origin": "upper"}),
        **({"time": ({"kind": "lines", "x": "after task"}, after, {})} if learned else {}),
        "sizes": ({"kind": "lines", "x": "|B|"}, SCORES, {}),
        "embedding": ({"kind": "embedding"}, {}, {"planes": planes[:MAX_EMBEDDINGS]}),
        "edges": ({"kind": "edges"}, {}, {"nodes": nodes}),
        "stages": ({"kind": "groups", "y": "seconds per run"}, {s: s for s in stages}, {}),
    }


def _entries(dataset: dict[str, Any], groups: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Lists the values of each figure by seed, with their place on its axes."""
    entries = defaultdict[str, list[Any]](list)

    def add(figure: str, row: str, metric: str, values: Sequence[float], **more: Any) -> None:
        entry = {"row": row, "metric": metric, "values": values, "claims": [], **more}
        entries[figure].append(entry)

    for group in groups:
        name, matrices = group["name"], group["matrices"]["task"]
        for key in SCORES:
            claims = [group["claims"][key]] if key in group["claims"] else []
            add("ablation", name, key, group[key], claims=claims)
        for i in range(1, len(dataset["tasks"]) + 1):
            add("time", name, "mean", [sum(matrix[i - 1]) / i for matrix in matrices], x=i)
            for j in range(1, i + 1):
                values = [matrix[i - 1][j - 1] for matrix in matrices]
                add("matrices", name, "accuracy", values, x=j, y=i)
                add("time", name, f"task {j}", values, x=i)
        for stage, seconds in group["stages"].items():
            add("stages", name, stage, [seconds])
        add("stages", name, "total", [sum(group["stages"].values())])
    by_name = {group["name"]: group for group in groups}
    for series in dataset["sizes"]:
        for size, name in series["sizes"]:
            for key in SCORES:
                add("sizes", series["name"], key, by_name[name][key], x=size)
    return entries
