"""Figures for a paper, drawn by matplotlib from the values that the page shows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.experiments.files import make_folder
from evergraph.experiments.grid import slug
from evergraph.experiments.summary import mean_std
from evergraph.report.statistics import estimate

FORMATS = ("pdf", "png", "svg")
COLOURS = (
    *("#0b7a6f", "#d0483f", "#3564c4", "#d48a12", "#7c4db3"),
    *("#4f8a2a", "#c4508f", "#56707f", "#96602e", "#1f9bcf"),
)
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "evergraph",  # the same values give the same file
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
#: Widest number of panels, and variants whose embedding is drawn.
PANELS = 3
MAX_EMBEDDINGS = 6


def check_formats(formats: Sequence[str] | None, folder: Path | None) -> list[str]:
    """Returns the formats wanted, refusing unknown ones and a missing matplotlib."""
    for name in formats or ():
        if name not in FORMATS:
            raise InputError(
                f"Expected '--format' {', '.join(FORMATS)} (got '{name}'); choose among these."
            )
    if formats and folder is None:
        raise InputError(
            f"Expected '--figures' with '--format' (got '{formats[0]}' alone); name a folder."
        )
    if folder is not None and find_spec("matplotlib") is None:
        raise InputError(
            "Expected matplotlib for '--figures' (it is not installed); install evergraph[report]."
        )
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(
            f"Expected '--figures' to be a folder (got the file '{folder}'); choose another."
        )
    return list(formats or ["pdf"])


def write_figures(data: dict[str, Any], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Draws every figure for which there is data, ``DATASET-NAME.FORMAT``."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra that only this needs

    make_folder(folder)
    written = []
    with mpl.rc_context(STYLE):
        for dataset in data["datasets"]:
            order = {name: place for place, name in enumerate(data["order"])}
            groups = sorted(dataset["groups"], key=lambda group: order[group["name"]])
            paint = {name: COLOURS[place % len(COLOURS)] for name, place in order.items()}
            for name, draw in DRAWINGS.items():
                figure = draw(dataset, groups, paint)
                if figure is None:
                    continue
                for ending in formats:
                    path = folder / f"{slug(dataset['name'])}-{name}.{ending}"
                    when = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(ending)
                    figure.savefig(path, bbox_inches="tight", dpi=300, metadata=when)
                    written.append(path)
    return written


Drawing = Callable[[dict[str, Any], list[dict[str, Any]], dict[str, str]], Any]


def _figure(
    count: int, width: float, height: float, columns: int = PANELS
) -> tuple[Any, list[Any]]:
    """Makes panels in rows of at most ``columns``; sizes are inches of one panel."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra that only this needs

    across = min(count, columns)
    down = math.ceil(count / across)
    figure = Figure(figsize=(width * across, height * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).flatten().tolist()
    for spare in axes[count:]:
        spare.axis("off")
    return figure, axes[:count]


def draw_ablation(dataset: dict[str, Any], groups: list[Any], paint: dict[str, str]) -> Any:
    """Draws PM and FM of every variant with 95 % intervals and the paper's mean."""
    figure, axes = _figure(2, 3.2, 0.5 + 0.24 * len(groups))
    names = [group["name"] for group in groups]
    for axis, metric in zip(axes, ("pm", "fm"), strict=True):
        found = [group["estimates"][metric] for group in groups]
        means = [part["mean"] or 0.0 for part in found]
        half = [0 if part["low"] is None else part["mean"] - part["low"] for part in found]
        axis.barh(names, means, xerr=half, color=[paint[name] for name in names], height=0.62)
        claimed = [
            (g["claims"][metric]["mean"], g["name"]) for g in groups if metric in g["claims"]
        ]
        if claimed:
            axis.plot(
                *zip(*claimed, strict=True), "D", mfc="white", mec="black", ms=4, label="paper"
            )
            axis.legend(loc="lower right")
        axis.invert_yaxis()
        axis.set_xlabel(f"{metric.upper()} [%]")
    axes[1].set_yticklabels([])
    return figure


def draw_matrices(dataset: dict[str, Any], groups: list[Any], paint: dict[str, str]) -> Any:
    """Draws the mean accuracy matrix of every variant."""
    figure, axes = _figure(len(groups), 1.9, 1.8, 4)
    tasks = len(dataset["tasks"])
    for axis, group in zip(axes, groups, strict=True):
        means = [
            [mean_std([m[i][j] for m in group["matrices"]["task"]])["mean"] for j in range(i + 1)]
            for i in range(tasks)
        ]
        filled = [[*row, *[math.nan] * (tasks - len(row))] for row in means]
        axis.imshow(filled, vmin=0, vmax=100, cmap="GnBu")
        for i, row in enumerate(means if tasks <= 8 else []):
            for j, value in enumerate(row):
                tone = "white" if (value or 0) > 65 else "black"
                axis.text(j, i, f"{value:.1f}", ha="center", va="center", color=tone, fontsize=7)
        axis.set(title=group["name"], xlabel="on task", ylabel="after task")
        axis.set_xticks(range(tasks), range(1, tasks + 1))
        axis.set_yticks(range(tasks), range(1, tasks + 1))
    return figure


def draw_time(dataset: dict[str, Any], groups: list[Any], paint: dict[str, str]) -> Any:
    """Draws the accuracy on every task, and their mean, while others are learned."""
    tasks = len(dataset["tasks"])
    if tasks < 2:
        return None
    figure, axes = _figure(tasks, 2.2, 1.9)
    for axis, unit in zip(axes, [None, *range(tasks - 1)], strict=True):
        for group in groups:
            points = [
                estimate(
                    [
                        sum(m[i]) / (i + 1) if unit is None else m[i][unit]
                        for m in group["matrices"]["task"]
                    ]
                )
                for i in range(unit or 0, tasks)
            ]
            _line(axis, range((unit or 0) + 1, tasks + 1), points, group["name"], paint)
        axis.set(title="mean of tasks seen" if unit is None else f"task {unit + 1}")
        axis.set(xlabel="after task", ylabel="accuracy [%]")
        axis.set_xticks(range((unit or 0) + 1, tasks + 1))
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def _line(axis: Any, xs: Any, points: Sequence[Any], name: str, paint: dict[str, str]) -> None:
    half = [0 if part["low"] is None else part["mean"] - part["low"] for part in points]
    means = [math.nan if part["mean"] is None else part["mean"] for part in points]
    axis.errorbar(list(xs), means, half, label=name, color=paint[name], marker="o", ms=3, capsize=2)


def draw_sizes(dataset: dict[str, Any], groups: list[Any], paint: dict[str, str]) -> Any:
    """Draws PM and FM over the buffer's size."""
    if not dataset["sizes"]:
        return None
    by_name = {group["name"]: group["estimates"] for group in groups}
    figure, axes = _figure(2, 2.6, 2.1)
    for axis, metric in zip(axes, ("pm", "fm"), strict=True):
        for series in dataset["sizes"]:
            points = [by_name[name][metric] for _, name in series["sizes"]]
            _line(axis, [size for size, _ in series["sizes"]], points, series["name"], paint)
        axis.set(xlabel="|B|", ylabel=f"{metric.upper()} [%]")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def draw_embedding(dataset: dict[str, Any], groups: list[Any], paint: dict[str, str]) -> Any:
    """Draws t-SNE of the recorded embeddings; nodes of the buffer are ringed."""
    shown = [group for group in groups if group.get("embedding")][:MAX_EMBEDDINGS]
    if not shown:
        return None
    from sklearn.manifold import TSNE  # noqa: PLC0415 - seconds of import

    figure, axes = _figure(len(shown), 2.4, 2.3)
    for axis, group in zip(axes, shown, strict=True):
        sample = group["embedding"]
        points = list(zip(*sample["components"], strict=True))
        spread = max(1.0, min(20.0, (len(points) - 1) / 3))
        flat = TSNE(perplexity=spread, init="pca", random_state=0, n_jobs=1).fit_transform(
            _array(points)
        )
        colours = [COLOURS[label % len(COLOURS)] for label in sample["labels"]]
        kept = [role == "b" for role in sample["roles"]]
        axis.scatter(*flat.T, c=colours, s=[22 if mine else 6 for mine in kept], lw=0, alpha=0.75)
        axis.scatter(*flat[kept].T, facecolors="none", edgecolors="black", s=22, lw=0.8)
        axis.set(title=group["name"], xticks=[], yticks=[])
    return figure


def _array(points: Sequence[Sequence[int]]) -> Any:
    import numpy as np  # noqa: PLC0415 - beside the library that asks for it

    return np.asarray(points, dtype=np.float32)


def draw_stages(dataset: dict[str, Any], groups: list[Any], paint: dict[str, str]) -> Any:
    """Draws the seconds of each stage."""
    figure, axes = _figure(1, 4.2, 0.6 + 0.24 * len(groups))
    names = [group["name"] for group in groups]
    stages = sorted({stage for group in groups for stage in group["stages"]})
    start = [0.0] * len(groups)
    for place, stage in enumerate(stages):
        part = [group["stages"].get(stage, 0.0) for group in groups]
        axes[0].barh(names, part, left=start, color=COLOURS[place], label=stage, height=0.62)
        start = [begin + more for begin, more in zip(start, part, strict=True)]
    axes[0].invert_yaxis()
    axes[0].set_xlabel("seconds per run")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


DRAWINGS: dict[str, Drawing] = {
    "ablation": draw_ablation,
    "matrices": draw_matrices,
    "time": draw_time,
    "sizes": draw_sizes,
    "embedding": draw_embedding,
    "stages": draw_stages,
}
