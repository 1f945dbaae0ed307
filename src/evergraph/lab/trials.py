"""The log of a search: one row per trial in a CSV file, and what was best in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import yaml
from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass

from evergraph.config import parse_settings
from evergraph.errors import InputError
from evergraph.files import make_folder, write_atomic
from evergraph.lab.summary import grouped

if TYPE_CHECKING:
    from evergraph.lab.tuning import Search

#: In percent; an empty field of a file means none.
Score = Annotated[float | None, BeforeValidator(lambda text: None if text == "" else text)]


@dataclass(frozen=True)
class TrialRow:
    """One trial: its settings and their mean scores on validation nodes."""

    dataset: str  # the graph's name
    method: str  # its label
    trial: int  # its number in the search; 0 is where the search started
    seeds: int  # that the scores are a mean of; 0 if a run failed, which leaves no scores
    pm: Score
    fm: Score  # None for a single task as well
    current: Score
    settings: str  # what was searched, key=value with blanks between


@dataclass(frozen=True)
class SeedRow:
    """One run of a trial and its scores; the settings stand in the row of the trial."""

    dataset: str  # the graph's name
    method: str  # its label
    trial: int  # number of the trial
    seed: int
    nodes: str  # validation or test: what was judged
    pm: Score  # None if the run failed, as all scores
    fm: Score
    current: Score


Row = TypeVar("Row", TrialRow, SeedRow)
#: What tells the search that a row is of: dataset and method.
SEARCH = attrgetter("dataset", "method")


def settings_text(settings: Mapping[str, Any], between: str = " ") -> str:
    """Writes settings as ``key=value``, such that :func:`parse_settings` reads them back."""
    words = []
    for key, value in settings.items():
        # Without the decimal point it reads better, and a setting that is a float takes it.
        whole = isinstance(value, float) and value.is_integer()
        text = str(yaml.safe_dump(int(value) if whole else value)).partition("\n")[0]
        words.append(f"{key}={text}")
    return between.join(words)


def write_rows(rows: Iterable[Row], kind: type[Row]) -> bytes:
    """Writes rows as CSV; scores with two decimals."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(field.name for field in fields(kind))
    for row in rows:
        writer.writerow(f"{v:.2f}" if isinstance(v, float) else v for v in astuple(row))
    return text.getvalue().encode()


def read_rows(path: Path, kind: type[Row]) -> list[Row]:
    """Reads what :func:`write_rows` wrote, turning every failure into one sentence."""
    try:
        lines = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8")))
        if lines.fieldnames != [field.name for field in fields(kind)]:
            raise ValueError("other columns")
        values: list[dict[str, Any]] = list(lines)
        return [kind(**line) for line in values]
    except (OSError, ValueError, TypeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a log of trials"
        raise InputError(
            f"Expected to read '{path}' (got: {reason}); name a folder that evergraph tune wrote."
        ) from None


def join_rows(old: Iterable[Row], new: Sequence[Row]) -> list[Row]:
    """Puts new rows after those old ones that are of other datasets or methods."""
    searched = {SEARCH(row) for row in new}
    return [row for row in old if SEARCH(row) not in searched] + list(new)


def best_row(rows: Iterable[TrialRow]) -> TrialRow | None:
    """Returns the highest PM among the rows with most seeds, the earliest of equals."""
    scored = [(row.seeds, row.pm, -row.trial, row) for row in rows if row.pm is not None]
    return max(scored, key=lambda entry: entry[:3])[3] if scored else None


class Log:
    """What a folder holds of searches: trials and their runs as tables, and what was best.

    Rows of other datasets and methods that were there before stay.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.trials, self.seeds = folder, folder / "trials.csv", folder / "seeds.csv"
        self.old_trials = read_rows(self.trials, TrialRow) if self.trials.exists() else []
        self.old_seeds = read_rows(self.seeds, SeedRow) if self.seeds.exists() else []

    def write(self, searches: Sequence[Search]) -> None:
        """Writes ``trials.csv``, ``seeds.csv`` and ``best.yaml``, the settings that were best."""
        make_folder(self.folder)
        trials = join_rows(self.old_trials, [row for one in searches for row in one.rows()])
        seeds = join_rows(self.old_seeds, [row for one in searches for row in one.seed_rows()])
        write_atomic(self.trials, write_rows(trials, TrialRow))
        write_atomic(self.seeds, write_rows(seeds, SeedRow))
        best = yaml.safe_dump(best_settings(trials), sort_keys=False, allow_unicode=True)
        write_atomic(self.folder / "best.yaml", best.encode())


def best_settings(rows: Iterable[TrialRow]) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns what was best, dataset → method → settings."""
    best: dict[str, dict[str, dict[str, Any]]] = {}
    for (dataset, method), group in grouped(rows, SEARCH).items():
        if chosen := best_row(group):
            best.setdefault(dataset, {})[method] = parse_settings(chosen.settings.split())
    return best
