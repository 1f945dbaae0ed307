"""Figures for a paper from a folder of runs: the page's values in the form that figures take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.files import make_folder
from evergraph.lab.folder import slug
from evergraph.lab.paper.experiments import Figure
from evergraph.lab.report.figures import FORMATS, check_matplotlib, write_figure
from evergraph.lab.summary import estimate

#: Variants whose embedding is drawn.
MAX_EMBEDDINGS = 6
Groups = Sequence[dict[str, Any]]


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
        for name, figure, content in _figures(dataset, groups):
            for entry in content.get("entries", ()):  # as an outcome has them
                found = estimate(entry["values"], dataset["overlap"])
                reach = 0.0 if found["low"] is None else found["high"] - found["mean"]
                entry |= {"dataset": dataset["name"], "series": entry["row"], "std": reach}
                entry |= {"mean": found["mean"], "seeds": range(found["n"])}
                entry.setdefault("claims", [])
            keys = content.pop("titles", {}).items()
            spec = {
                "figure": asdict(figure),
                "spread": "measured, 95 %",
                "class_names": dataset["class_names"],
                "metrics": [{"key": key, "title": title} for key, title in keys],
                **content,
            }
            stem = f"{slug(dataset['name'])}-{name}"
            written += write_figure(spec, folder, stem, formats, dpi=300)
    return written


def _figures(dataset: dict[str, Any], groups: Groups) -> Iterator[tuple[str, Figure, Any]]:
    """Lists what there is to draw of a dataset: name, kind and content."""
    scores, tasks = {"pm": "PM [%]", "fm": "FM [%]"}, len(dataset["tasks"])
    matrices = {group["name"]: group["matrices"]["task"] for group in groups}
    entries = [
        {
            "row": group["name"],
            "metric": key,
            "values": group[key],
            "claims": [group["claims"][key]] if key in group["claims"] else [],
        }
        for group in groups
        for key in scores
    ]
    yield "ablation", Figure("points", tuple(scores)), {"titles": scores, "entries": entries}
    cells = [
        {"row": name, "values": [matrix[i][j] for matrix in found], "x": j + 1, "y": i + 1}
        for name, found in matrices.items()
        for i in range(tasks)
        for j in range(i + 1)
    ]
    figure = Figure("heatmap", ("accuracy",), "on task", "after task", split=True)
    shown = {"titles": {"accuracy": "accuracy [%]"}, "range": (0, 100), "origin": "upper"}
    yield "matrices", figure, {**shown, "entries": [{**c, "metric": "accuracy"} for c in cells]}
    if tasks > 1:  # the accuracy on every task but the last, and their mean, as others are learned
        titles = {"mean": "mean of tasks seen [%]"}
        titles |= {f"task {j + 1}": f"task {j + 1} [%]" for j in range(tasks - 1)}
        entries = [
            {"row": name, "metric": "mean", "values": [sum(m[i - 1]) / i for m in found], "x": i}
            for name, found in matrices.items()
            for i in range(1, tasks + 1)
        ]
        entries += [
            {**cell, "metric": f"task {cell['x']}", "x": cell["y"]}
            for cell in cells
            if cell["x"] < tasks
        ]
        figure = Figure("lines", tuple(titles), "after task")
        yield "time", figure, {"titles": titles, "entries": entries}
    by_name = {group["name"]: group for group in groups}
    entries = [
        {"row": series["name"], "metric": key, "values": by_name[name][key], "x": size}
        for series in dataset["sizes"]
        for size, name in series["sizes"]
        for key in scores
    ]
    yield "sizes", Figure("lines", tuple(scores), "|B|"), {"titles": scores, "entries": entries}
    planes = [
        {
            "places": group["embedding"]["places"],
            "labels": group["embedding"]["labels"],
            "kept": {group["name"]: [role == "b" for role in group["embedding"]["roles"]]},
        }
        for group in groups
        if group.get("embedding")
    ]
    yield "embedding", Figure("embedding", ()), {"planes": planes[:MAX_EMBEDDINGS]}
    nodes = [node for group in groups for node in group.get("edited", {}).get("nodes", ())]
    yield "edges", Figure("edges", ()), {"nodes": nodes}
    stages = [*sorted({stage for group in groups for stage in group["stages"]}), "total"]
    entries = [
        {"row": group["name"], "metric": stage, "values": [seconds]}
        for group in groups
        for stage, seconds in {**group["stages"], "total": sum(group["stages"].values())}.items()
    ]
    figure = Figure("groups", tuple(stages), y="seconds per run")
    yield "stages", figure, {"titles": {stage: stage for stage in stages}, "entries": entries}
