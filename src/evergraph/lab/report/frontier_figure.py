"""The frontier as a picture: PM against bytes kept and against seconds, a row per dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergraph.lab.paper.frontier import Cost, Point, buffer_bytes
from evergraph.lab.report.experiment_figures import new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES: dict[Cost, str] = {
    "bytes": "bytes kept from task to task",
    "seconds": "seconds of a run, all tasks",
}
COLORS = {"analytic": "#0b6e4f", "dslr": "#c44536", "replay": "#e09f3e", "joint": "#444444"}
OTHER_COLOR = "#5b7db1"
MARKERS = "osD^v<>PXph*"
#: Points further below the best than this are named at the edge: they would flatten the rest.
REACH = 22.0


def draw_frontier(points: Sequence[Point]) -> Figure:
    """Draws a line of two panels per dataset, all labels named below."""
    datasets = list(dict.fromkeys(point.dataset for point in points))
    styles = _styles(points)
    figure = new_figure(10, 2.9 * len(datasets) + 1.1)
    grid = figure.subplots(len(datasets), 2, squeeze=False, sharey="row")
    for row, dataset in zip(grid, datasets, strict=True):
        mine = [point for point in points if point.dataset == dataset]
        for axes, cost in zip(row, TITLES, strict=True):
            _draw(axes, mine, cost, styles)
        row[0].set_ylabel(f"{dataset}\nPM, %")
    for axes, title in zip(grid[-1], TITLES.values(), strict=True):
        axes.set_xlabel(title)
    _legend(figure, grid)
    return figure


def _draw(axes: Any, points: Sequence[Point], cost: Cost, styles: dict[str, Any]) -> None:
    best = max(point.pm for point in points)
    rivals = [point for point in points if not point.reference]
    shown = [point for point in rivals if point.pm >= best - REACH]
    below = [point for point in rivals if point.pm < best - REACH]
    positive = [getattr(point, cost) for point in shown if getattr(point, cost) > 0]
    axes.set_xscale("log")
    floor = min(positive, default=1.0) / 4
    for point in shown:
        value = getattr(point, cost)
        ring = "black" if cost in point.frontier else "none"
        axes.errorbar(
            value or floor,
            point.pm,
            yerr=point.pm_std or 0.0,
            label=point.label if value else f"{point.label} (keeps nothing)",
            markeredgecolor=ring,
            markersize=8,
            elinewidth=0.8,
            linestyle="none",
            **styles[point.label],
        )
    front = sorted((p for p in shown if cost in p.frontier), key=lambda p: getattr(p, cost))
    path = [getattr(point, cost) or floor for point in front]
    axes.step(path, [p.pm for p in front], where="post", color="black", lw=0.8, zorder=0)
    if cost == "bytes" and (buffer := buffer_bytes(points[0].dataset)):
        axes.axvline(buffer, color="grey", ls=":", lw=1)
        axes.annotate(
            "the paper's buffer\nwith its features",
            (buffer, 0.09),  # above the list of what lies below
            xycoords=("data", "axes fraction"),
            fontsize=7,
            color="grey",
            ha="right",
        )
    for point in points:
        if point.reference:
            name = f"{point.label} (reads all old labels)"
            axes.axhline(point.pm, color=styles[point.label]["color"], ls="--", lw=1, label=name)
    if below:
        text = ", ".join(f"{point.label} {point.pm:.0f}" for point in below)
        axes.text(0.01, 0.02, f"below: {text}", fontsize=7, transform=axes.transAxes)
    if cost == "seconds":  # a decade or two: 1, 2 and 5 of each are named
        axes.set_xscale("log", subs=(2, 5))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.25)


def _styles(points: Sequence[Point]) -> dict[str, dict[str, str]]:
    """Gives every label a colour by its method and a marker of its own within that colour."""
    styles: dict[str, dict[str, str]] = {}
    used: dict[str, int] = {}
    for point in points:
        if point.label not in styles:
            color = COLORS.get(point.method, OTHER_COLOR)
            place = used.get(color, 0)
            used[color] = place + 1
            styles[point.label] = {"color": color, "marker": MARKERS[place % len(MARKERS)]}
    return styles


def _legend(figure: Any, grid: Any) -> None:
    """Names every label once, below all panels."""
    handles: dict[str, Any] = {}
    for row in grid:
        for handle, label in zip(*row[0].get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    names = dict(sorted(handles.items()))
    figure.legend(
        names.values(), names.keys(), loc="outside lower center", ncol=4, fontsize=8, frameon=False
    )
