"""Tables: one run, or a grid of them, beside the paper's numbers; for terminals and Markdown.

What a command answers is printed here too: tables with lines below, or JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from evergraph.config import load_mapping, usual_protocol
from evergraph.errors import no_effect
from evergraph.methods import METHODS, PROBES
from evergraph.methods.base import SOURCES
from evergraph.validation import parse

#: Characters in a line where no terminal sets a limit.
PIPE_WIDTH = 200
#: Runs behind each number that the paper prints.
PAPER_SEEDS = 10
#: The settings that make a method DSLR, with their defaults.
DSLR_PROPER = {"selector", "structure", "candidates", "addition", "deletion", "sl_ratio"}
METRICS = {"pm": "PM ↑", "fm": "FM ↓", "current": "Current ↑"}
#: What is told of streams in which known classes come again; ``new`` is Current, and BWT is −FM.
STREAM_METRICS = {"seen": "all seen ↑", "aauc": "AAUC ↑", "fwt": "FWT ↑", "bwt": "BWT ↑"}


@dataclass
class Sheet:
    """A table as plain text: names and prose to the left, numbers to the right.

    Cells may be given as text, numbers, ``{"mean", "std"}`` or None for a dash.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    prose: Sequence[str] = ()  # columns that hold text and may wrap

    def __post_init__(self) -> None:
        self.rows = [[cell_text(cell) for cell in row] for row in self.rows]

    def rich(self) -> Table:
        """Renders for a terminal."""
        table = Table(title=Text(self.title), title_justify="left", header_style="bold")
        for index, column in enumerate(self.columns):
            if column in self.prose:
                table.add_column(Text(column), overflow="fold")
            else:
                justify: JustifyMethod = "right" if index else "left"
                table.add_column(Text(column), justify=justify, overflow="fold", no_wrap=index > 0)
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def markdown(self) -> str:
        """Renders as Markdown, title first."""
        left = (self.columns[0], *self.prose)
        rule = ["---" if column in left else "---:" for column in self.columns]
        rows = [[cell.replace("|", "\\|") for cell in row] for row in self.rows]
        lines = [self.columns, rule, *rows]
        return "\n".join([f"**{self.title}**", "", *(f"| {' | '.join(line)} |" for line in lines)])


def make_console(*, stderr: bool = False) -> Console:
    """Returns a console that fits its terminal, or is wide enough for any table in a pipe."""
    quiet = os.environ.get("RANK", "0") != "0"  # of several workers the first one speaks
    console = Console(stderr=stderr, quiet=quiet)
    if not console.is_terminal:
        console = Console(stderr=stderr, quiet=quiet, width=PIPE_WIDTH)
    return console


def show(content: Any, sheets: Iterable[Sheet], as_json: bool, *lines: str) -> None:
    """Prints the answer of a command: as JSON, or as tables with lines below."""
    if as_json:
        print(json.dumps(content, indent=2))
        return
    console = make_console()
    for sheet in sheets:
        console.print(sheet.rich())
    for line in filter(None, lines):
        console.print(line, markup=False)


def warn_unused(method: str, unused: frozenset[str], given: Iterable[str]) -> None:
    """Says on standard error which of the user's settings have no effect."""
    named = unused.intersection(given)
    if named:
        text = f"warning: {no_effect(named, method)} with its other settings."
        make_console(stderr=True).print(text, markup=False)


def as_markdown(sheets: Sequence[Sheet]) -> str:
    """Writes tables one below the other, as a file has them."""
    return "\n\n".join(sheet.markdown() for sheet in sheets) + "\n"


def accuracy_matrix(results: dict[str, Any]) -> Sheet:
    """Shows ``A[i][j]``: accuracy on task j after task i, in percent."""
    names = results["class_names"]
    tasks = [" + ".join(names[label] for label in classes) for classes in results["tasks"]]
    tasks = results.get("stream", {}).get("steps", tasks)
    numbers = range(1, len(tasks) + 1)
    rows = [
        [f"{i}: {name}", *row, *[""] * (len(tasks) - i)]
        for i, name, row in zip(numbers, tasks, results["accuracy_matrix"], strict=True)
    ]
    title = f"Accuracy on {results['evaluated_on']} nodes, class-incremental, %"
    return Sheet(title, ["after task", *(f"on task {j}" for j in numbers)], rows)


def run_scores(results: dict[str, Any]) -> Sheet:
    """Shows PM, FM and Current of one run beside the paper's mean."""
    printed = claimed(results)
    rows = [[title, results[key], printed.get(key)] for key, title in METRICS.items()]
    if "stream" in results:
        rows += [[title, results["stream"][key], None] for key, title in STREAM_METRICS.items()]
    title = f"{results['label']} on {results['dataset']}, seed {results['seed']}{_set(results)}"
    if beyond := learns_from(results["method"], results["settings"]):
        title += f", which also learns from {beyond}"
    other = ", other settings" if printed and _changed(results) else ""
    return Sheet(title, ["", "this run", f"paper ({PAPER_SEEDS} seeds{other})"], rows)


def grid_sheet(summary: Sequence[dict[str, Any]]) -> Sheet:
    """Shows mean ± std over seeds for every dataset and method, beside the paper's."""
    rows, changed = [], False
    for entry in summary:
        found = claimed(entry)
        printed = [cell_text(found.get(key)) for key in ("pm", "fm")]
        if found and _changed(entry):  # what was run is not what the paper ran
            changed, printed = True, [f"{text} *" for text in printed]
        scores = [*(entry[key] for key in METRICS), *printed]
        kept = (entry["memory_bytes"], entry.get("memory_bytes_without_graph"))
        cost = [number(entry["seconds"]["mean"], 1), *map(size, kept)]
        name = f"{entry['dataset']} · {entry['label']}{_set(entry)}"
        rows.append([name, len(entry["seeds"]), *scores, *cost])
    costs = ["paper PM", "paper FM", "s", "memory", "without graph"]
    columns = ["dataset · method", "seeds", *METRICS.values(), *costs]
    beyond = [learns_from(entry["method"], entry["settings"]) for entry in summary]
    if any(beyond):
        columns.append("also learns from")
        rows = [[*row, told or "–"] for row, told in zip(rows, beyond, strict=True)]
    where = sorted({entry["evaluated_on"] for entry in summary})
    legend = "memory: kept for the next task beside the network, with the graph at hand or without"
    legend += "; * the paper's settings differ from those set here" if changed else ""
    return Sheet(f"Mean ± std over seeds, {' and '.join(where)} nodes, %; {legend}", columns, rows)


def stream_sheet(summary: Sequence[dict[str, Any]]) -> Sheet:
    """Shows mean ± std over seeds of what is told of streams in which known classes come again."""
    rows = [
        [f"{entry['dataset']} · {entry['label']}", *map(entry["stream"].get, STREAM_METRICS)]
        for entry in summary
        if "stream" in entry
    ]
    return Sheet("Along the stream, %", ["dataset · method", *STREAM_METRICS.values()], rows)


def comparison_sheet(comparisons: Sequence[dict[str, Any]]) -> Sheet:
    """Shows paired differences with their 95 % intervals and verdicts."""
    rows = []
    for entry in comparisons:
        name = f"{entry['dataset']} · {entry['reference']} − {entry['other']}"
        difference = number(entry["difference"], sign=True)
        rows.append([name, len(entry["seeds"]), difference, interval(entry), entry["verdict"]])
    columns = ["PM difference, paired by seed", "seeds", "mean", "95 % interval", "verdict"]
    return Sheet("Is the first method better?", columns, rows)


def learns_from(method: str, settings: Mapping[str, Any]) -> str:
    """Names what a method learns from beyond current labels and its buffer, "" for nothing."""
    cls = (METHODS | PROBES).get(method)
    if cls is None:  # of somebody's own
        return ""
    own = {key: value for key, value in settings.items() if key in cls.Config.model_fields}
    needs = cls(parse(cls.Config, {**cls.Config.former, **own})).needs & SOURCES
    return ", ".join(sorted(needs)).replace("_", " ")


def _set(entry: dict[str, Any]) -> str:
    """Names what the user set and the label does not: the paper's numbers are of other runs."""
    words = [f"{key}={value}" for key, value in entry["overrides"].items()]
    told = [word for word in words if word not in entry["label"]]
    return f", with {', '.join(told)}" if told else ""


def _changed(entry: dict[str, Any]) -> bool:
    """Tells whether the user set what the paper's number does not go with."""
    named = {"selector"} if entry["method"] == "replay" else set[str]()  # finds that number
    return bool(entry["overrides"].keys() - named)


def claimed(entry: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Finds what the paper claims for results, or for a summary of them."""
    return claims(entry["dataset"], entry["method"], entry["settings"], entry["protocol_hash"])


@cache
def paper_numbers() -> dict[str, Any]:
    """Reads the data file: table → dataset → method or selector → metric."""
    text = resources.files("evergraph.lab.paper").joinpath("paper_numbers.yaml").read_text()
    return load_mapping(text, "paper_numbers.yaml")


def claims(
    dataset: str, method: str, settings: Mapping[str, Any], protocol_hash: str | None = None
) -> dict[str, dict[str, float | None]]:
    """Finds what the paper claims for a run: metric → ``{"mean", "std"}``, {} for nothing.

    Replay is looked up by its selector. A variant of DSLR whose settings leave the method
    (no structure learning, say) is another experiment and has no claim here, nor has a run
    under another protocol than the paper's.
    """
    table, row = ("selectors", settings.get("selector")) if method == "replay" else ("main", method)
    entry = paper_numbers()[table].get(dataset, {}).get(row)
    proper = METHODS["dslr"].Config().model_dump(include=DSLR_PROPER) if method == "dslr" else {}
    if not isinstance(entry, dict) or any(settings.get(k, v) != v for k, v in proper.items()):
        return {}
    if protocol_hash is not None and protocol_hash != usual_protocol(dataset, method).hash:
        return {}
    return {metric: {"mean": mean, "std": std} for metric, (mean, std) in entry.items()}


def cell_text(cell: Any) -> str:
    """Formats what a table holds: numbers by their kind, a dash for none."""
    if isinstance(cell, Mapping):
        return spread(cell)
    if isinstance(cell, int) and not isinstance(cell, bool):
        return f"{cell:,}"
    return number(cell) if cell is None or isinstance(cell, float) else str(cell)


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """Formats a number, a dash for none."""
    return "–" if value is None else f"{value:{'+' if sign else ''}.{digits}f}"


def spread(part: Mapping[str, Any] | None, digits: int = 2, *, sign: bool = False) -> str:
    """Formats ``{"mean", "std"}``, as far as there are any."""
    if part is None or part["mean"] is None:
        return "–"
    std = part["std"]
    mean = number(part["mean"], digits, sign=sign)
    return mean + (f" ± {number(std, digits)}" if std is not None else "")


def interval(part: Mapping[str, Any], digits: int = 2) -> str:
    """Formats ``{"low", "high"}`` with signs."""
    low, high = (number(part[key], digits, sign=True) for key in ("low", "high"))
    return f"[{low}, {high}]"


def counted(number: int, what: str, several: str = "") -> str:
    """Writes a number of things: ``1 node``, ``2,000 nodes``, ``2 classes``."""
    return f"{number:,} {what if number == 1 else several or f'{what}s'}"


def size(num_bytes: int | None) -> str:
    """Formats bytes for people; what was not counted is a dash."""
    if num_bytes is None:
        return "–"
    power = min((len(str(num_bytes)) - 1) // 3, 3)
    unit, digits = ("B", "KB", "MB", "GB")[power], 1 if power else 0
    return f"{num_bytes / 1000**power:.{digits}f} {unit}"
