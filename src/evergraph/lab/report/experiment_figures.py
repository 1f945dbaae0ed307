"""Figures of experiments, drawn from their outcomes with matplotlib (the extra ``report``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
#: Without a date the same figure gives the same bytes.
UNDATED: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
#: Colours that stay apart for colour-blind readers and in print (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: Panels side by side.
WIDEST = 4
#: Values of one panel that differ by more than this factor are shown on a log scale.
FAR = 20
MEASURED, PAPER = "measured, ± std", "paper"
Cell = Mapping[str, Any]
Outcome = Mapping[str, Any]
Draw = Callable[["Axes", list[Cell], Outcome], None]


def draw_outcome(outcome: Outcome) -> Figure | None:
    """Draws a line of panels per dataset, None when there is nothing to show."""
    kind, rows = outcome["figure"]["kind"], [row for row in outcome["rows"] if row["seeds"]]
    datasets = list(dict.fromkeys(row["dataset"] for row in rows))
    panels = _panels(outcome, rows) if kind in DRAWERS else []
    if not datasets or not panels:
        return None
    lines = -(-len(panels) // WIDEST)
    across = -(-len(panels) // lines)
    figure = new_figure(4.2 * across, 3.2 * lines * len(datasets))
    axes = figure.subplots(lines * len(datasets), across, squeeze=False)
    for index, dataset in enumerate(datasets):
        mine = axes[index * lines : (index + 1) * lines].flatten()
        for axis in mine[len(panels) :]:
            axis.set_axis_off()
        for axis, (title, metrics, series) in zip(mine, panels, strict=False):
            cells = [
                row
                for row in rows
                if row["dataset"] == dataset
                and row["metric"] in metrics
                and series in (None, row["series"])
            ]
            if cells:
                DRAWERS[kind](axis, cells, outcome)
            axis.set_title(f"{_short(dataset)}{title}")
    if kind == "points":  # one key for all panels, where it covers none
        keys = {text: key for axis in axes.flat for key, text in _keys(axis)}
        figure.legend(keys.values(), keys, loc="outside lower center", ncols=len(keys))
    return figure


def _keys(axis: Axes) -> Iterable[tuple[Any, str]]:
    return zip(*axis.get_legend_handles_labels(), strict=True)


def _panels(outcome: Outcome, rows: Sequence[Cell]) -> list[tuple[str, Sequence[str], str | None]]:
    """Lists the panels of a dataset: title, columns and series (None for all)."""
    spec = outcome["figure"]
    present = {row["metric"] for row in rows}
    metrics = [metric for metric in spec["metrics"] if metric in present]
    if spec["kind"] in {"scatter", "groups"}:
        return [("", metrics, None)] if metrics else []
    names: list[str | None] = [None]
    if spec["split"]:
        names = list(dict.fromkeys(row["series"] for row in rows))
    return [
        (f": {_title(outcome, metric)}{f' over {name}' if name else ''}", [metric], name)
        for metric in metrics
        for name in names
    ]


def new_figure(width: float, height: float) -> Figure:
    """Makes a figure without any window, or says what is missing."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError(
            "Expected matplotlib for figures (it is not installed); "
            "install the extra with pip install 'evergraph[report]'."
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Writes a figure as PNG, SVG and PDF; the same figure gives the same bytes."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra

    paths = [folder / f"{name}.{suffix}" for suffix in FORMATS]
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the places are found; once is enough
    for path in paths:
        with rc_context({"svg.hashsalt": "evergraph"}):
            figure.savefig(path, dpi=150, metadata=UNDATED.get(path.suffix[1:]))
    return paths


def draw_embedding(points: Mapping[str, Any], titles: Sequence[str]) -> Figure:
    """Draws classes in the plane, one panel per selector, kept nodes emphasised.

    Args:
        points: ``{"places": [n, 2], "labels": [n], "kept": {title: [n] of bool}}``.
        titles: The panels, in order.
    """
    figure = new_figure(4.2 * len(titles), 4.2)
    axes = figure.subplots(1, len(titles), squeeze=False)[0]
    places, labels = np.asarray(points["places"]), np.asarray(points["labels"])
    for axis, title in zip(axes, titles, strict=True):
        kept = np.asarray(points["kept"][title], dtype=bool)
        for index, label in enumerate(np.unique(labels)):
            mine = labels == label
            colour = COLOURS[index % len(COLOURS)]
            axis.scatter(*places[mine].T, s=6, color=colour, alpha=0.25, linewidths=0)
            chosen = places[mine & kept].T
            axis.scatter(
                *chosen, s=28, color=colour, edgecolors="black", label=f"class {label + 1}"
            )
        axis.set_title(title)
        axis.set_xticks([])
        axis.set_yticks([])
    axes[0].legend(title="replayed nodes")
    return figure


def _points(axis: Axes, cells: list[Cell], outcome: Outcome) -> None:
    """Draws a point per row, the first on top; values that differ by far on a log scale."""
    means, errors = [cell["mean"] for cell in cells], [cell["std"] or 0.0 for cell in cells]
    places = range(len(cells))
    axis.errorbar(means, places, xerr=errors, fmt="o", color=COLOURS[0], capsize=3, label=MEASURED)
    claimed = [
        (claim["mean"], place)
        for place, cell in enumerate(cells)
        for claim in cell["claims"]
        if claim["mean"] is not None
    ]
    if claimed:
        axis.plot(
            *zip(*claimed, strict=True), "D", color=COLOURS[1], mfc="none", label=PAPER, zorder=3
        )
    shown = [*means, *(mean for mean, _ in claimed)]
    if min(shown) > 0 and max(shown) > FAR * min(shown):
        axis.set_xscale("log")
    axis.set_yticks(places, [_short(cell["row"]) for cell in cells])
    axis.set_ylim(len(cells) - 0.5, -0.5)
    axis.grid(axis="y", alpha=0.3)


def _groups(axis: Axes, cells: list[Cell], outcome: Outcome) -> None:
    """Draws a group of bars per column, one bar per row."""
    columns = list(dict.fromkeys(cell["metric"] for cell in cells))
    names = list(dict.fromkeys(cell["row"] for cell in cells))
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        mine = [cell for cell in cells if cell["row"] == name]
        places = [columns.index(cell["metric"]) + index * width for cell in mine]
        colour = COLOURS[index % len(COLOURS)]
        means, errors = [c["mean"] for c in mine], [c["std"] or 0.0 for c in mine]
        axis.bar(places, means, width, yerr=errors, color=colour, capsize=2, label=name)
        for place, cell in zip(places, mine, strict=True):
            for claim in cell["claims"]:
                axis.plot(place, claim["mean"], "D", color="black", markersize=4)
    if any(cell["claims"] for cell in cells):
        axis.plot([], [], "D", color="black", markersize=4, label="paper")
    middle = width * (len(names) - 1) / 2
    ticks = [place + middle for place in range(len(columns))]
    axis.set_xticks(ticks, [_title(outcome, key) for key in columns], rotation=40, ha="right")
    axis.legend(fontsize="small")


def _lines(axis: Axes, cells: list[Cell], outcome: Outcome) -> None:
    for index, series in enumerate(dict.fromkeys(cell["series"] for cell in cells)):
        mine = sorted((c for c in cells if c["series"] == series), key=lambda c: c["x"])
        x, mean = [c["x"] for c in mine], [c["mean"] for c in mine]
        colour = COLOURS[index % len(COLOURS)]
        errors = [c["std"] or 0.0 for c in mine]
        axis.errorbar(x, mean, errors, marker="o", capsize=3, label=series, color=colour)
        claimed = [(c["x"], claim["mean"]) for c in mine for claim in c["claims"]]
        if claimed:
            axis.plot(*zip(*claimed, strict=True), "D--", color=colour, mfc="none", alpha=0.6)
    if outcome["figure"]["split"]:  # the one series is what the panel is about
        values = sorted({cell["x"] for cell in cells})
        axis.set_xticks(values, [f"{value:g}" for value in values])
        axis.set_xlabel(cells[0]["series"])
        return
    axis.set_xlabel(outcome["figure"]["x"])
    if any(cell["claims"] for cell in cells):
        axis.plot([], [], "D--", color="grey", mfc="none", alpha=0.6, label=PAPER)
    axis.legend(fontsize="small")


def _heatmap(axis: Axes, cells: list[Cell], outcome: Outcome) -> None:
    columns = sorted({cell["x"] for cell in cells})
    lines = sorted({cell["y"] for cell in cells})
    grid = np.full((len(lines), len(columns)), np.nan)
    for cell in cells:
        grid[lines.index(cell["y"]), columns.index(cell["x"])] = cell["mean"]
    image = axis.imshow(grid, origin="lower", aspect="auto", cmap="viridis")
    middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
    for (i, j), value in np.ndenumerate(grid):
        if not np.isnan(value):
            ink = "black" if value > middle else "white"  # high values are bright
            axis.text(j, i, f"{value:.1f}", ha="center", va="center", color=ink, fontsize=8)
    axis.set_xticks(range(len(columns)), [f"{x:g}" for x in columns])
    axis.set_yticks(range(len(lines)), [f"{y:g}" for y in lines])
    axis.set_xlabel(outcome["figure"]["x"])
    axis.set_ylabel(outcome["figure"]["y"])
    axis.figure.colorbar(image, ax=axis)


def _scatter(axis: Axes, cells: list[Cell], outcome: Outcome) -> None:
    """Draws a point per row and seed, with the mean and deviation in five bins."""
    first, second = outcome["figure"]["metrics"]
    found = {
        (c["row"], c["metric"]): dict(zip(c["seeds"], c["values"], strict=True)) for c in cells
    }
    for index, series in enumerate(dict.fromkeys(cell["series"] for cell in cells)):
        names = dict.fromkeys(c["row"] for c in cells if c["series"] == series)
        pairs = [
            (x, found[name, second][seed])
            for name in names
            for seed, x in found.get((name, first), {}).items()
            if seed in found.get((name, second), {})
        ]
        if pairs:
            colour = COLOURS[index % len(COLOURS)]
            across, up = zip(*pairs, strict=True)
            axis.scatter(across, up, s=12, alpha=0.5, color=colour, label=series)
    x = np.array([v for c in cells if c["metric"] == first for v in c["values"]])
    y = np.array([v for c in cells if c["metric"] == second for v in c["values"]])
    if x.size == y.size and x.size >= 5:
        edges = np.linspace(x.min(), x.max(), 6)
        bins = np.clip(np.digitize(x, edges) - 1, 0, 4)
        used = [b for b in range(5) if (bins == b).any()]
        middle = [(edges[b] + edges[b + 1]) / 2 for b in used]
        mean, std = ([f(y[bins == b]) for b in used] for f in (np.mean, np.std))
        axis.errorbar(middle, mean, std, color="black", marker="s", capsize=3, label="mean in bin")
    axis.set_xlabel(_title(outcome, first))
    axis.set_ylabel(_title(outcome, second))
    axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0))


def _short(name: str) -> str:
    """Leaves the folders out of a graph's path."""
    return name.rpartition("/")[2] if name.endswith(".npz") else name


def _title(outcome: Outcome, key: str) -> str:
    return next(str(c["title"]) for c in outcome["columns"] if c["key"] == key)


DRAWERS: dict[str, Draw] = {
    "points": _points,
    "groups": _groups,
    "lines": _lines,
    "heatmap": _heatmap,
    "scatter": _scatter,
}
