"""Figures, drawn with matplotlib (the extra ``report``): one form of input, one drawer per kind.

The input is an experiment's outcome, or runs in the same form (:mod:`.run_figures`): ``figure``
says what to draw, as the head of ``experiments.yaml`` has it, ``metrics`` names keys
and titles, ``entries`` hold a mean with its spread each, and what the paper prints. The file is
long because every kind of figure is in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import cycle, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evergraph.errors import import_extra
from evergraph.lab.summary import grouped
from evergraph.methods import method_class

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
#: Without a date, and with fixed names inside, the same figure gives the same bytes.
UNDATED: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
#: Colours that stay apart for colour-blind readers and in print (Okabe and Ito), then three more.
COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"),
    *("#7c4db3", "#96602e", "#56707f"),
)
#: Panels side by side.
WIDEST = 4
#: Values of one panel that differ by more than this factor are shown on a log scale.
FAR = 20
PAPER = "paper"
Entry = Mapping[str, Any]
Spec = Mapping[str, Any]


def write_figure(
    spec: Spec, folder: Path, name: str, formats: Sequence[str] = FORMATS, dpi: int = 150
) -> list[Path]:
    """Draws a figure and writes it in some formats; nothing where there is nothing to show."""
    check_matplotlib()
    from matplotlib import rc_context  # noqa: PLC0415 - an extra

    paths = [folder / f"{name}.{suffix}" for suffix in formats]
    with rc_context(fname=Path(__file__).with_name("paper.mplstyle")):
        figure = draw(spec)
        if figure is None:
            return []
        if spec.get("mark"):
            figure.suptitle(spec["mark"])
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the places are found; once is enough
        for path in paths:
            kept = UNDATED.get(path.suffix[1:])
            figure.savefig(path, dpi=dpi, metadata=kept, bbox_inches="tight")
    return paths


def check_matplotlib() -> None:
    """Says what is missing, if it is."""
    import_extra("matplotlib.figure", "report", "matplotlib for figures")


def draw(spec: Spec) -> Figure | None:
    """Draws a figure of any kind, None when there is nothing to show."""
    spec = {**spec, "figure": {"x": "", "y": "", "split": False, **spec["figure"]}}
    whole = {"embedding": draw_planes, "edges": draw_edges, "frontier": draw_frontier}
    return whole.get(spec["figure"]["kind"], draw_panels)(spec)


def draw_panels(spec: Spec) -> Figure | None:
    """Draws a line of panels per dataset: points, groups, lines, heat maps or a scatter."""
    kind, rows = spec["figure"]["kind"], [row for row in spec["entries"] if row["seeds"]]
    datasets, panels = _grouped(rows, "dataset"), _panels(spec, rows)
    if not panels:
        return None
    lines = math.ceil(len(panels) / WIDEST)
    across = math.ceil(len(panels) / lines)
    split = "series" if spec["figure"]["split"] else "dataset"  # what a panel shows one of
    shown = [part for mine in datasets.values() for part in _grouped(mine, split).values()]
    longest = max(len(_grouped(part, "row")) for part in shown)
    height = max(2.4, 0.8 + 0.2 * longest) if kind == "points" else 2.4
    figure, axes = _figure(across, lines * len(datasets), spec.get("width", 3.2), height)
    places = iter(axes)
    for dataset, mine in datasets.items():
        for axis, panel in zip_longest(islice(places, lines * across), panels):
            if panel is None:
                axis.set_axis_off()
                continue
            title, metrics, series = panel
            entries = [
                row for row in mine if row["metric"] in metrics and series in (None, row["series"])
            ]
            if entries:
                PANELS[kind](axis, entries, spec)
            axis.set_title(f"{_short(dataset)}{title}".removeprefix(": "))
    if kind in {"points", "groups"}:
        _legend_below(figure, axes)
    return figure


def _panels(spec: Spec, rows: Sequence[Entry]) -> list[tuple[str, Sequence[str], str | None]]:
    """Lists the panels of a dataset: title, metrics and series (None for all)."""
    what = spec["figure"]
    present = {row["metric"] for row in rows}
    metrics = [metric for metric in what["metrics"] if metric in present]
    if what["kind"] in {"scatter", "groups"}:
        return [("", metrics, None)] if metrics else []
    names = [*_grouped(rows, "series")] if what["split"] else [None]
    word = "over" if what["kind"] == "lines" else "of"
    return [
        (f": {_title(spec, metric)}{f' {word} {name}' if name else ''}", [metric], name)
        for metric in metrics
        for name in names
    ]


def _figure(across: int, down: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Makes panels of some inches each, without any window."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    from matplotlib.layout_engine import ConstrainedLayoutEngine  # noqa: PLC0415 - an extra

    layout = ConstrainedLayoutEngine(h_pad=0.1)
    figure = Figure(figsize=(width * across, height * down), layout=layout)
    return figure, list(figure.subplots(down, across, squeeze=False).flat)


def _legend_below(figure: Figure, axes: Iterable[Axes]) -> None:
    """Names everything once, below all panels, where it covers none."""
    keys: dict[str, Any] = {}
    for axis in axes:
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True):
            keys.setdefault(text, handle)
    if keys:
        figure.legend(keys.values(), keys, loc="outside lower center", ncols=min(len(keys), 4))


def _grouped(entries: Iterable[Entry], key: str) -> dict[Any, list[Entry]]:
    """Groups entries by one of their values, in order."""
    return grouped(entries, itemgetter(key))


def _coloured(entries: Iterable[Entry], key: str) -> Iterator[tuple[str, str, list[Entry]]]:
    """Lists groups of entries with a colour and a name each."""
    groups = _grouped(entries, key)
    return zip(cycle(COLOURS), groups, groups.values(), strict=False)


def _means(entries: Sequence[Entry]) -> tuple[list[float], list[float]]:
    """Lists means, and how far each reaches to both sides."""
    return [e["mean"] for e in entries], [e["std"] or 0.0 for e in entries]


def _claimed(entries: Sequence[Entry], places: Iterable[float]) -> tuple[list[float], list[float]]:
    """Lists what the paper prints: places and means."""
    x, y = list[float](), list[float]()
    for entry, place in zip(entries, places, strict=True):
        means = [claim["mean"] for claim in entry["claims"] if claim["mean"] is not None]
        x, y = [*x, *[place] * len(means)], [*y, *means]
    return x, y


def _points(axis: Axes, entries: list[Entry], spec: Spec) -> None:
    """Draws a point per row, the first on top; values that differ by far on a log scale."""
    means, reach = _means(entries)
    places = range(len(entries))
    label = spec.get("spread", "measured, ± std")
    axis.errorbar(means, places, xerr=reach, fmt="o", color=COLOURS[0], capsize=3, label=label)
    y, x = _claimed(entries, places)
    if x:
        named = spec.get("claimed", PAPER)
        axis.plot(x, y, "D", color=COLOURS[1], mfc="none", label=named, zorder=3)
    if spec.get("zero", False):
        axis.axvline(0, color="black", lw=0.8)
    shown = [*means, *x]
    if min(shown) > 0 and max(shown) > FAR * min(shown):
        axis.set_xscale("log")
    whose = f"{entries[0]['series']} · " if spec["figure"]["split"] else ""  # the panel's title
    axis.set_yticks(places, [_short(entry["row"].removeprefix(whose)) for entry in entries])
    axis.set_ylim(len(entries) - 0.5, -0.5)
    axis.grid(axis="y", alpha=0.3)


def _groups(axis: Axes, entries: list[Entry], spec: Spec) -> None:
    """Draws a group of bars per metric, one bar per row."""
    metrics, width = [*_grouped(entries, "metric")], 0.8 / len(_grouped(entries, "row"))
    for index, (colour, name, mine) in enumerate(_coloured(entries, "row")):
        places = [metrics.index(entry["metric"]) + index * width for entry in mine]
        means, reach = _means(mine)
        spread = reach if any(reach) else None
        axis.bar(places, means, width, yerr=spread, color=colour, capsize=2, label=name)
        axis.plot(*_claimed(mine, places), "D", color="black", markersize=4)
    if any(entry["claims"] for entry in entries):
        axis.plot([], [], "D", color="black", markersize=4, label=PAPER)
    ticks = [place + 0.4 - width / 2 for place in range(len(metrics))]
    axis.set_xticks(ticks, [_title(spec, key) for key in metrics], rotation=40, ha="right")
    axis.set_ylabel(spec["figure"]["y"])


def _lines(axis: Axes, entries: list[Entry], spec: Spec) -> None:
    """Draws a line per series over ``x``."""
    for colour, series, mine in _coloured(sorted(entries, key=lambda e: e["x"]), "series"):
        means, reach = _means(mine)
        x = [entry["x"] for entry in mine]
        axis.errorbar(x, means, reach, marker="o", ms=4, capsize=3, label=series, color=colour)
        axis.plot(*_claimed(mine, x), "D--", color=colour, mfc="none", alpha=0.6)
    values = sorted({float(entry["x"]) for entry in entries})
    if spec["figure"]["split"] or all(value.is_integer() for value in values):
        axis.set_xticks(values, [f"{value:g}" for value in values])
    if spec["figure"]["split"]:  # the one series is what the panel is about
        axis.set_xlabel(entries[0]["series"])
        return
    axis.set_xlabel(spec["figure"]["x"])
    if any(entry["claims"] for entry in entries):
        axis.plot([], [], "D--", color="grey", mfc="none", alpha=0.6, label=PAPER)
    axis.legend(fontsize="small")


def _heatmap(axis: Axes, entries: list[Entry], spec: Spec) -> None:
    """Draws means over ``x`` and ``y``, each written into its field."""
    xs, ys = (sorted({entry[key] for entry in entries}) for key in ("x", "y"))
    grid = np.full((len(ys), len(xs)), np.nan)
    for entry in entries:
        grid[ys.index(entry["y"]), xs.index(entry["x"])] = entry["mean"]
    low, high = spec.get("range", (np.nanmin(grid), np.nanmax(grid)))
    origin = spec.get("origin", "lower")
    image = axis.imshow(grid, "viridis", vmin=low, vmax=high, origin=origin, aspect="auto")
    for (i, j), value in np.ndenumerate(grid):
        if not np.isnan(value):
            ink = "black" if value > (low + high) / 2 else "white"  # high values are bright
            axis.text(j, i, f"{value:.1f}", ha="center", va="center", color=ink, fontsize=7)
    axis.set_xticks(range(len(xs)), [f"{x:g}" for x in xs])
    axis.set_yticks(range(len(ys)), [f"{y:g}" for y in ys])
    axis.set(xlabel=spec["figure"]["x"], ylabel=spec["figure"]["y"])
    axis.figure.colorbar(image, ax=axis)


def _scatter(axis: Axes, entries: list[Entry], spec: Spec) -> None:
    """Draws a point per row and seed, with the mean and deviation in five bins."""
    first, second = spec["figure"]["metrics"]
    every: list[tuple[float, float]] = []
    for colour, series, mine in _coloured(entries, "series"):
        pairs = []
        for row in _grouped(mine, "row").values():
            by_seed = {e["metric"]: dict(zip(e["seeds"], e["values"], strict=True)) for e in row}
            x, y = by_seed.get(first, {}), by_seed.get(second, {})
            pairs += [(x[seed], y[seed]) for seed in x if seed in y]
        if pairs:
            across, up = zip(*pairs, strict=True)
            axis.scatter(across, up, s=12, alpha=0.5, color=colour, label=series)
        every += pairs
    if len(every) >= 5:
        x, y = np.array(every).T
        edges = np.linspace(x.min(), x.max(), 6)
        bins = np.clip(np.digitize(x, edges) - 1, 0, 4)
        used = [b for b in range(5) if (bins == b).any()]
        middle = [(edges[b] + edges[b + 1]) / 2 for b in used]
        mean, std = ([f(y[bins == b]) for b in used] for f in (np.mean, np.std))
        axis.errorbar(middle, mean, std, color="black", marker="s", capsize=3, label="mean in bin")
    axis.set(xlabel=_title(spec, first), ylabel=_title(spec, second))
    axis.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0))


PANELS: dict[str, Callable[[Axes, list[Entry], Spec], None]] = {
    "points": _points,
    "groups": _groups,
    "lines": _lines,
    "heatmap": _heatmap,
    "scatter": _scatter,
}


def draw_planes(spec: Spec) -> Figure | None:
    """Draws nodes in the plane, a panel per set of kept nodes, which stand out.

    ``planes`` holds ``{"places": [n, 2], "labels": [n], "kept": {title: [n] of bool}}`` each.
    """
    panels = [(title, plane) for plane in spec.get("planes", ()) for title in plane["kept"]]
    if not panels:
        return None
    across = min(len(panels), WIDEST)
    figure, axes = _figure(across, math.ceil(len(panels) / across), 3.2, 3.2)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, (title, plane) in zip(axes, panels, strict=False):
        (x, y), labels = np.asarray(plane["places"]).T, np.asarray(plane["labels"])
        kept = np.asarray(plane["kept"][title], dtype=bool)
        for label in np.unique(labels).tolist():
            mine, colour = labels == label, COLOURS[label % len(COLOURS)]
            axis.scatter(x[mine], y[mine], s=6, color=colour, alpha=0.25, linewidths=0)
            name = spec["class_names"][label] if "class_names" in spec else f"class {label + 1}"
            mine = mine & kept
            axis.scatter(x[mine], y[mine], s=28, color=colour, edgecolors="black", label=name)
        axis.set(title=title, xticks=[], yticks=[])
    axes[0].legend(title="replayed nodes", fontsize="small")
    return figure


def draw_edges(spec: Spec) -> Figure | None:
    """Draws what structure learning added and removed around some replayed nodes."""
    shown = spec["nodes"][:WIDEST]
    if not shown:
        return None
    figure, axes = _figure(len(shown), 1, 2.2, 2.3)
    looks = {"=": ("kept", "0.6", "-"), "+": ("added", "#15803d", "-")}
    looks["-"] = ("removed", "#c2293f", "--")
    for axis, node in zip(axes, shown, strict=True):
        for place, (label, state) in enumerate(zip(node["labels"], node["states"], strict=True)):
            angle = 2 * math.pi * place / len(node["states"])
            x, y = math.cos(angle), math.sin(angle)
            axis.plot([0, x], [0, y], color=looks[state][1], ls=looks[state][2], lw=1.2, zorder=1)
            axis.scatter([x], [y], s=26, color=COLOURS[label % len(COLOURS)], zorder=2)
        own = COLOURS[node["label"] % len(COLOURS)]
        axis.scatter([0], [0], s=70, color=own, edgecolors="black", zorder=3)
        axis.set(title=f"node {node['node']}, {spec['class_names'][node['label']]}")
        axis.set(aspect="equal", xlim=(-1.2, 1.2), ylim=(-1.2, 1.2))
        axis.set_axis_off()
    for name, colour, dashes in looks.values():
        axes[0].plot([], [], color=colour, ls=dashes, label=name)
    _legend_below(figure, axes[:1])
    return figure


COSTS = {
    "bytes": "bytes kept from task to task, graph at hand",
    "bytes_without_graph": "bytes kept from task to task, no graph",
    "seconds": "seconds of a run, all tasks",
}
METHOD_COLOURS = {"analytic": "#0b6e4f", "dslr": "#c44536", "replay": "#e09f3e", "joint": "#444444"}
OTHER_COLOUR = "#5b7db1"
MARKERS = "osD^v<>PXph*"
#: Points further below the best than this are named at the edge: they would flatten the rest.
REACH = 22.0


def draw_frontier(spec: Spec) -> Figure | None:
    """Draws PM against bytes kept and seconds, if times were taken: a line of panels per dataset.

    A method that reads old labels sets the mark and does not compete.
    """
    points: dict[str, dict[str, dict[str, Any]]] = {}
    styles: dict[str, dict[str, str]] = {}
    for entry in (entry for entry in spec["entries"] if entry["seeds"]):
        mine = points.setdefault(entry["dataset"], {}).setdefault(entry["row"], dict(entry))
        mine |= {entry["metric"]: entry["mean"]}
        mine |= {"spread": entry["std"] or 0.0} if entry["metric"] == "pm" else {}
        if entry["row"] not in styles:  # a colour by its method, a marker of its own within it
            colour = METHOD_COLOURS.get(_method(entry), OTHER_COLOUR)
            place = sum(style["color"] == colour for style in styles.values())
            styles[entry["row"]] = {"color": colour, "marker": MARKERS[place % len(MARKERS)]}
    if not points:
        return None
    known = {key for mine in points.values() for point in mine.values() for key in point}
    costs = [cost for cost in COSTS if cost in known]
    figure, axes = _figure(len(costs), len(points), 5, 2.9)
    for number, (dataset, mine) in enumerate(points.items()):
        line = axes[number * len(costs) :][: len(costs)]
        for axis, cost in zip(line, costs, strict=True):
            axis.sharey(line[0])
            _frontier(axis, [*mine.values()], cost, styles)
        line[0].set_ylabel(f"{dataset}\nPM, %")
    for axis, cost in zip(axes[-len(costs) :], costs, strict=True):
        axis.set_xlabel(COSTS[cost])
    _legend_below(figure, axes[:: len(costs)])
    return figure


def on_frontier(point: Entry, rivals: Iterable[Entry], cost: str) -> bool:
    """Tells whether nobody is as accurate for as little, and better in one of the two."""
    mine = (point["pm"], -point[cost])
    theirs = [(rival["pm"], -rival[cost]) for rival in rivals]
    return not any(x >= mine[0] and y >= mine[1] and (x, y) != mine for x, y in theirs)


def _frontier(axis: Axes, points: Sequence[Entry], cost: str, styles: Mapping[str, Any]) -> None:
    best = max(point["pm"] for point in points)
    marks = [p for p in points if "old_labels" in method_class(_method(p)).needs]
    rivals = [point for point in points if point not in marks]
    shown = sorted((p for p in rivals if p["pm"] >= best - REACH), key=lambda p: float(p[cost]))
    axis.set_xscale("log")
    floor = min((point[cost] for point in shown if point[cost] > 0), default=1.0) / 4
    front = [point for point in shown if on_frontier(point, rivals, cost)]
    for point in (point for point in points if point in shown):
        name = point["row"] if point[cost] else f"{point['row']} (keeps nothing)"
        edge = "black" if point in front else "none"
        look = {**styles[point["row"]], "mec": edge, "ms": 8, "elinewidth": 0.8, "ls": "none"}
        axis.errorbar(point[cost] or floor, point["pm"], point["spread"], label=name, **look)
    path = [point[cost] or floor for point in front]
    axis.step(path, [p["pm"] for p in front], where="post", color="black", lw=0.8, zorder=0)
    for point in marks:
        name = f"{point['row']} (reads all old labels)"
        axis.axhline(point["pm"], color=styles[point["row"]]["color"], ls="--", lw=1, label=name)
    below = [f"{p['row']} {p['pm']:.0f}" for p in rivals if p["pm"] < best - REACH]
    if below:
        axis.text(0.01, 0.02, f"below: {', '.join(below)}", fontsize=7, transform=axis.transAxes)
    if cost == "seconds":  # a decade or two: 1, 2 and 5 of each are named
        axis.set_xscale("log", subs=(2, 5))
        axis.xaxis.set_major_formatter("{x:g}")
        axis.xaxis.set_minor_formatter("{x:g}")
    axis.grid(alpha=0.25)


def _method(entry: Entry) -> str:
    return str(entry["method"]).partition(":")[0]


def _short(name: str) -> str:
    """Leaves the folders out of a graph's path."""
    return name.rpartition("/")[2] if name.endswith(".npz") else name


def _title(spec: Spec, key: str) -> str:
    return next(str(metric["title"]) for metric in spec["metrics"] if metric["key"] == key)
