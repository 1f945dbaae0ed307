"""The figures themselves: each from the page's values of one dataset to a matplotlib figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from evergraph.lab.summary import estimate, mean_std

COLOURS = (
    *("#0b7a6f", "#d0483f", "#3564c4", "#d48a12", "#7c4db3"),
    *("#4f8a2a", "#c4508f", "#56707f", "#96602e", "#1f9bcf"),
)
#: Widest number of panels, and variants whose embedding is drawn.
PANELS = 3
MAX_EMBEDDINGS = 6

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


def _legend(figure: Any, axis: Any) -> None:
    """Names what an axis shows, below all panels."""
    handles, names = axis.get_legend_handles_labels()
    if names:
        figure.legend(handles, names, loc="outside lower center", ncols=4)


def draw_ablation(dataset: dict[str, Any], groups: list[Any], paint: dict[str, str]) -> Any:
    """Draws PM and FM of every variant with 95 % intervals and the paper's mean."""
    figure, axes = _figure(2, 3.2, 0.8 + 0.24 * len(groups))
    names = [group["name"] for group in groups]
    for axis, metric in zip(axes, ("pm", "fm"), strict=True):
        found = [group["estimates"][metric] for group in groups]
        means = [part["mean"] or 0.0 for part in found]
        half = [0 if part["low"] is None else part["mean"] - part["low"] for part in found]
        axis.barh(
            names, means, xerr=half, capsize=2, color=[paint[name] for name in names], height=0.62
        )
        claimed = [
            (g["claims"][metric]["mean"], g["name"]) for g in groups if metric in g["claims"]
        ]
        if claimed:
            axis.plot(
                *zip(*claimed, strict=True), "D", mfc="white", mec="black", ms=4, label="paper"
            )
        axis.invert_yaxis()
        axis.set_xlabel(f"{metric.upper()} [%]")
    axes[1].set_yticklabels([])
    _legend(figure, axes[0])
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
    figure, axes = _figure(tasks, 2.2, 2.3)
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
        axis.set_ylim(max(axis.get_ylim()[0], -2), min(axis.get_ylim()[1], 102))
    _legend(figure, axes[0])
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
    _legend(figure, axes[0])
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
    for place, name in enumerate(dataset["class_names"]):
        axes[0].plot([], [], "o", ms=4, color=COLOURS[place % len(COLOURS)], label=name)
    _legend(figure, axes[0])
    return figure


def draw_edges(dataset: dict[str, Any], groups: list[Any], paint: dict[str, str]) -> Any:
    """Draws what structure learning added and removed around replayed nodes."""
    shown = [node for group in groups if group.get("edited") for node in group["edited"]["nodes"]]
    if not shown:
        return None
    figure, axes = _figure(min(len(shown), PANELS), 2.2, 2.3)
    looks = {
        "=": ("kept", "0.6", "-"),
        "+": ("added", "#15803d", "-"),
        "-": ("removed", "#c2293f", "--"),
    }
    for axis, node in zip(axes, shown, strict=False):
        for place, (label, state) in enumerate(zip(node["labels"], node["states"], strict=True)):
            angle = 2 * math.pi * place / len(node["states"])
            x, y = math.cos(angle), math.sin(angle)
            axis.plot([0, x], [0, y], color=looks[state][1], ls=looks[state][2], lw=1.2, zorder=1)
            axis.scatter([x], [y], s=26, color=COLOURS[label % len(COLOURS)], zorder=2)
        own = COLOURS[node["label"] % len(COLOURS)]
        axis.scatter([0], [0], s=70, color=own, edgecolors="black", zorder=3)
        axis.set(title=f"node {node['node']}, {dataset['class_names'][node['label']]}")
        axis.set(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
        axis.axis("off")
    for name, colour, dashes in looks.values():
        axes[0].plot([], [], color=colour, ls=dashes, label=name)
    _legend(figure, axes[0])
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
    _legend(figure, axes[0])
    return figure


DRAWINGS: dict[str, Drawing] = {
    "ablation": draw_ablation,
    "matrices": draw_matrices,
    "time": draw_time,
    "sizes": draw_sizes,
    "embedding": draw_embedding,
    "edges": draw_edges,
    "stages": draw_stages,
}
