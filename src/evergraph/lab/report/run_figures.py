"""Figures for a paper from a folder of runs: the page's values in the form that figures take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.files import make_folder
from evergraph.lab.folder import slug
from evergraph.lab.paper.experiment import Figure
from evergraph.lab.report.figures import FORMATS, check_matplotlib, write_figure
from evergraph.lab.summary import mean_std, paired_interval

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
            spec = {"figure": asdict(figure), "spread": "95 %", **content}
            spec["class_names"] = dataset["class_names"]
            for row in content.get("rows", ()):
                row["dataset"] = dataset["name"]
            stem = f"{slug(dataset['name'])}-{name}"
            written += write_figure(spec, folder, stem, formats, dpi=300)
    return written


def _figures(dataset: dict[str, Any], groups: Groups) -> Iterator[tuple[str, Figure, Any]]:
    """Lists what there is to draw of a dataset: name, kind and content."""
    scores, tasks = {"pm": "PM [%]", "fm": "FM [%]"}, len(dataset["tasks"])
    matrices = {group["name"]: group["matrices"]["task"] for group in groups}
    rows = [_row(g["name"], key, g[key], claims=g["claims"]) for g in groups for key in scores]
    yield "ablation", Figure("points", tuple(scores)), _content(scores, rows)
    rows = [
        _row(name, "accuracy", [matrix[i][j] for matrix in found], x=j + 1, y=i + 1)
        for name, found in matrices.items()
        for i in range(tasks)
        for j in range(i + 1)
    ]
    figure = Figure("heatmap", ("accuracy",), "on task", "after task", split=True)
    content = _content({"accuracy": "accuracy [%]"}, rows)
    yield "matrices", figure, {**content, "range": (0, 100), "origin": "upper"}
    if tasks > 1:  # the accuracy on every task but the last, and their mean, as others are learned
        titles = {"mean": "mean of tasks seen [%]"}
        titles |= {f"task {j + 1}": f"task {j + 1} [%]" for j in range(tasks - 1)}
        rows = [
            row
            for name, found in matrices.items()
            for i in range(tasks)
            for row in (
                _row(name, "mean", [sum(matrix[i]) / (i + 1) for matrix in found], x=i + 1),
                *(
                    _row(name, f"task {j + 1}", [matrix[i][j] for matrix in found], x=i + 1)
                    for j in range(min(i + 1, tasks - 1))
                ),
            )
        ]
        yield "time", Figure("lines", tuple(titles), "after task"), _content(titles, rows)
    by_name = {group["name"]: group for group in groups}
    rows = [
        _row(series["name"], key, by_name[name][key], x=size)
        for series in dataset["sizes"]
        for size, name in series["sizes"]
        for key in scores
    ]
    yield "sizes", Figure("lines", tuple(scores), "|B|"), _content(scores, rows)
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
    rows = [
        _row(group["name"], stage, [seconds])
        for group in groups
        for stage, seconds in {**group["stages"], "total": sum(group["stages"].values())}.items()
    ]
    figure = Figure("groups", tuple(stages), y="seconds per run")
    yield "stages", figure, _content({stage: stage for stage in stages}, rows)


def _content(titles: dict[str, str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"metrics": [{"key": k, "title": title} for k, title in titles.items()], "rows": rows}


def _row(
    name: str,
    metric: str,
    values: Sequence[float | None],
    *,
    claims: dict[str, Any] | None = None,
    x: float | None = None,
    y: float | None = None,
) -> dict[str, Any]:
    """Describes one value as an outcome does; its spread is half of the 95 % interval."""
    known = [value for value in values if value is not None]
    low, high = paired_interval(known)
    return {
        "row": name,
        "series": name,
        "x": x,
        "y": y,
        "metric": metric,
        "seeds": list(range(len(known))),
        "mean": mean_std(known)["mean"],
        "std": (high - low) / 2 if low is not None and high is not None else 0.0,
        "claims": [claims[metric]] if claims and metric in claims else [],
    }
