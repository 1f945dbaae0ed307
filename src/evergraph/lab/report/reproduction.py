"""The files of an experiment, and the document of all of them; everything from outcomes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from evergraph.config import load_mapping
from evergraph.errors import InputError, unknown_name
from evergraph.files import make_folder, read_json, write_atomic, write_json
from evergraph.lab.paper.experiments import EXPERIMENTS
from evergraph.lab.paper.outcome import Outcome, judged, measured
from evergraph.lab.report.figures import write_figure
from evergraph.lab.report.outcomes import (
    latex,
    outcome_csv,
    outcome_markdown,
    outcome_sheets,
    verdict_of,
)
from evergraph.lab.tables import Sheet, paper_numbers

EXPLANATIONS = "explanations.yaml"
#: The folder beside the document that holds what was measured, and a few pictures.
RESULTS = "results"
PICTURED = ("main", "embedding", "frontier")


@dataclass(frozen=True)
class Published:
    """Everything that the document is written from, each by experiment.

    Attributes:
        ours: With our settings, in the order of the catalogue.
        as_printed: With the settings that the paper prints.
        again: With other seeds.
    """

    ours: Mapping[str, Outcome]
    as_printed: Mapping[str, Outcome] = field(default_factory=dict)
    again: Mapping[str, Outcome] = field(default_factory=dict)


def write_experiment(outcome: Outcome, folder: Path) -> None:
    """Writes ``ID.json``, ``.csv``, ``.md``, ``.tex`` and the figure as PNG, SVG and PDF."""
    make_folder(folder)
    name = outcome["experiment"]
    write_json(folder / f"{name}.json", outcome)
    write_atomic(folder / f"{name}.csv", outcome_csv(outcome).encode())
    write_atomic(folder / f"{name}.md", outcome_markdown(outcome).encode())
    tables = "\n".join(latex(sheet) for sheet in outcome_sheets(outcome))
    write_atomic(folder / f"{name}.tex", tables.encode())
    write_figure(outcome, folder, name)


def read_outcomes(output: Path) -> dict[str, Outcome]:
    """Reads every outcome below a folder, rounded as it will be published, in the usual order."""
    found = _read(output, "{0}/{0}.json")
    return {name: judged(measured(outcome)) for name, outcome in found.items()}


def read_published(folder: Path) -> Published | None:
    """Reads what :func:`publish` wrote and judges it by the rules in force; None if not there."""
    found = _read(folder, "{0}.json")
    kinds: dict[str, dict[str, Outcome]] = {"ours": {}, "as_printed": {}, "again": {}}
    for name, content in found.items():
        for kind, outcome in content.items():
            kinds[kind][name] = judged(outcome)
    return Published(**kinds) if found else None


def _read(folder: Path, place: str) -> dict[str, Any]:
    paths = {name: folder / place.format(name) for name in EXPERIMENTS}
    return {name: read_json(path) for name, path in paths.items() if path.exists()}


def publish(
    output: Path, page: Path, beside: Path | None = None, again: Path | None = None
) -> None:
    """Writes the document, and beside it ``results/ID.json`` with all that was measured.

    Args:
        output: A folder with outcomes, or the ``results`` of an earlier document.
        page: The document. Explanations are read from ``results/explanations.yaml`` beside it.
        beside: A folder with outcomes under the paper's settings, for columns of their own.
        again: A folder with outcomes of other seeds, for another column.
    """
    found = read_published(output) or Published(read_outcomes(output))
    if beside is not None:
        found = replace(found, as_printed=read_printed(beside))
    if again is not None:
        found = replace(found, again=read_again(again, found.ours))
    results = page.parent / RESULTS
    text = document(found, read_explanations(results))
    make_folder(results)
    for name, outcome in found.ours.items():
        content = {kind: measured(all_[name]) for kind, all_ in vars(found).items() if name in all_}
        compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        write_atomic(results / f"{name}.json", compact.encode() + b"\n")
        if name in PICTURED:
            write_figure(outcome, results, name, ["png"], dpi=80)
    write_atomic(page, text.encode())


def read_printed(folder: Path) -> Mapping[str, Outcome]:
    """Reads the outcomes of a reproduction with ``--as-printed``, refusing any other."""
    found = read_outcomes(folder)
    if not found or not all(outcome["as_printed"] for outcome in found.values()):
        wrong = "other settings" if found else "no outcome"
        raise InputError(
            "Expected '--beside' to be a folder of outcomes with --as-printed (got "
            f"'{folder}', which has {wrong}); check the path."
        )
    return found


def read_again(folder: Path, ours: Mapping[str, Outcome]) -> Mapping[str, Outcome]:
    """Reads what was measured with our settings and seeds that no statement of ours has."""
    found = {name: one for name, one in read_outcomes(folder).items() if one["statements"]}
    common = {
        name: _seeds(outcome) & _seeds(ours[name])
        for name, outcome in found.items()
        if name in ours
    }
    repeated = next((name for name, seeds in common.items() if seeds), None)
    wrong = None if found else "no outcome"
    if any(outcome["as_printed"] or outcome["quick"] for outcome in found.values()):
        wrong = "other settings"
    elif repeated is not None:
        wrong = f"seed {min(common[repeated])} of '{repeated}' as well"
    if wrong is not None:
        raise InputError(
            "Expected '--again' to be a folder of outcomes with our settings and other seeds (got "
            f"'{folder}', which has {wrong}); reproduce with --first-seed into a folder of its own."
        )
    return found


def _seeds(outcome: Outcome) -> set[int]:
    return {seed for entry in outcome["statements"] for seed in entry["seeds"]}


def document(found: Published, explanations: Mapping[str, Any]) -> str:
    """Writes ``docs/reproduction.md``: an overview, then every experiment.

    Args:
        found: What there is.
        explanations: Experiment → paragraph on what is worse or does not hold.
    """
    quick = any(outcome["quick"] for outcome in found.ours.values())
    warning = "\n**Quick mode: few epochs and seeds; nothing here is a result.**\n" if quick else ""
    prose = resources.files("evergraph.lab.report").joinpath("reproduction.md").read_text("utf-8")
    head, rules, as_printed, again = prose.strip().split("\n\n")
    parts = [
        "# Reproduction",
        f"{head}\n{warning}",
        rules,
        *([as_printed] if found.as_printed else []),
        *([again] if found.again else []),
        overview(found.ours.values(), linked=True, again=found.again).markdown(),
        contradictions().markdown(),
        *(_section(name, found, explanations) for name in found.ours),
    ]
    return "\n\n".join(parts) + "\n"


def overview(
    outcomes: Iterable[Outcome],
    *,
    linked: bool = False,
    again: Mapping[str, Outcome] | None = None,
) -> Sheet:
    """Counts verdicts per experiment; in the document each name leads to its section.

    Args:
        outcomes: What there is.
        linked: Whether names are links to sections.
        again: Experiment → what it came to with other seeds, for a column of its own.
    """
    rows = []
    for outcome in outcomes:
        numbers = [claim["verdict"] for row in outcome["rows"] for claim in row["claims"]]
        words = [verdict_of(entry) for entry in outcome["statements"]]
        seeds = sorted({len(row["seeds"]) for row in outcome["rows"]}) or [0]
        name = outcome["experiment"]
        shown = [_counts(numbers), _counts(words)]
        title = f"[{name}](#{name})" if linked else name
        counted = "–".join(str(count) for count in dict.fromkeys((seeds[0], seeds[-1])))
        rows.append([title, outcome["source"], counted, *shown])
        if again:
            repeated = again.get(name, {"statements": ()})["statements"]
            rows[-1].append(_counts(verdict_of(entry) for entry in repeated if entry["seeds"]))
    columns = ["experiment", "paper", "seeds", "numbers", "statements"]
    columns += ["with other seeds"] if again else []
    return Sheet("Overview", columns, rows)


def contradictions() -> Sheet:
    """Lists where the paper prints two values for one thing."""
    rows = [
        [entry["what"], "; ".join(f"{where}: {value}" for where, value in entry["values"].items())]
        for entry in paper_numbers()["contradictions"]
    ]
    return Sheet("Where the paper contradicts itself", ["what", "printed"], rows)


def read_explanations(folder: Path) -> dict[str, Any]:
    """Reads ``explanations.yaml``, which people write, {} without it; refuses unknown names."""
    path = folder / EXPLANATIONS
    if not path.exists():
        return {}
    found = load_mapping(path.read_text(encoding="utf-8"), str(path))
    for name in found:
        if name not in EXPERIMENTS:
            raise unknown_name(f"experiment in '{path}'", name, EXPERIMENTS)
    return found


def _section(name: str, found: Published, explanations: Mapping[str, Any]) -> str:
    outcome = found.ours[name]
    tables = outcome_markdown(outcome, found.as_printed.get(name), found.again.get(name))
    text = [f"## {name}", f"{outcome['title']} ({outcome['source']}).", tables.strip()]
    drawn = outcome["figure"]["kind"] != "embedding" or outcome.get("planes")
    if name in PICTURED and outcome["rows"] and drawn:
        text.append(f"![{outcome['title']}]({RESULTS}/{name}.png)")
    if name in explanations:
        text.append(str(explanations[name]).strip())
    return "\n\n".join(text)


def _counts(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(words).items()) or "–"
