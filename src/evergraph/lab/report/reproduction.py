"""The files of an experiment, and the document of all of them; everything from outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evergraph.config import load_mapping
from evergraph.errors import InputError, unknown_name
from evergraph.files import make_folder, read_json, write_atomic, write_json
from evergraph.lab.paper.catalog import EXPERIMENTS
from evergraph.lab.paper.frontier import points_of
from evergraph.lab.paper.numbers import paper_numbers
from evergraph.lab.report.experiment_figures import draw_embedding, draw_outcome, save_figure
from evergraph.lab.report.frontier_figure import draw_frontier
from evergraph.lab.report.outcomes import (
    Outcome,
    latex,
    outcome_csv,
    outcome_markdown,
    outcome_sheets,
    verdict_of,
)
from evergraph.lab.tables import Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPLANATIONS = "explanations.yaml"
#: What the document links to, in a folder beside it.
RESULTS = "results"
PUBLISHED = ("json", "csv", "tex", "svg")
RULES = """\
**Rules.** A *number* is judged by the 95 % interval of measured minus printed (Welch; ten seeds and
the printed deviation on the paper's side, our deviation where it prints none): *inconclusive* when
the interval is wider than 4 points, *reproduced* when it holds 0, else *better* or *worse*, or
*higher* and *lower* for what has no good side. A point is 1 % of accuracy, 0.01 of a ratio, 1 % of
the printed value for counts and seconds. A *statement* is measured seed by seed as a margin that is
positive where it is true; it *holds* when the 95 % interval of the mean margin lies above 0 and
*does not hold* otherwise: *opposite* when it lies below 0, else *not shown*. p-values are
Student's, two-sided, adjusted by Holm over all statements of an experiment. *Not tested*: fewer
than two seeds."""

AS_PRINTED = """\
**As printed.** This column stands for a second reproduction of the same experiments and seeds with
the settings that the paper prints in its Table 10 (`--as-printed`): no dropout, no label smoothing,
no class weights, new rows of the head as in the authors' code, other methods with their own papers'
settings. What holds there and not with our settings is an effect of the settings; what holds in
neither is not."""

AGAIN = """\
**Other seeds.** This column stands for a reproduction with seeds that nothing was judged by before
(`--first-seed`), for experiments where ten seeds left a statement undecided. A small effect is
shown there or bounded by the interval; a verdict that is the same in both is no accident of the
seeds."""


def write_experiment(
    outcome: dict[str, Any], folder: Path, plane: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Writes ``ID.json``, ``.csv``, ``.md``, ``.tex`` and the figure as PNG, SVG and PDF.

    Args:
        outcome: What the experiment came to.
        folder: Where to.
        plane: The points of an embedding, for the experiment that shows one.

    Returns:
        The outcome as written, which tells whether there was a figure to draw.
    """
    make_folder(folder)
    name = outcome["experiment"]
    figure = _draw(outcome, plane)
    outcome = {**outcome, "figure": {**outcome["figure"], "drawn": figure is not None}}
    write_json(folder / f"{name}.json", outcome)
    write_atomic(folder / f"{name}.csv", outcome_csv(outcome).encode())
    write_atomic(folder / f"{name}.md", outcome_markdown(outcome).encode())
    tables = "\n".join(latex(sheet) for sheet in outcome_sheets(outcome))
    write_atomic(folder / f"{name}.tex", tables.encode())
    if plane is not None:
        write_json(folder / f"{name}-points.json", plane)
    if figure is not None:
        save_figure(figure, folder, name)
    return outcome


def _draw(outcome: Outcome, plane: Mapping[str, Any] | None) -> Figure | None:
    """Draws an outcome's figure, None where there is nothing to show."""
    if outcome["figure"]["kind"] == "frontier":
        return draw_frontier(points_of(outcome))
    if plane is not None:
        return draw_embedding(plane, list(plane["kept"]))
    return draw_outcome(outcome)


def read_outcomes(output: Path) -> list[dict[str, Any]]:
    """Reads every outcome below a folder, in the order of the catalogue."""
    paths = [output / name / f"{name}.json" for name in EXPERIMENTS]
    return [read_json(path) for path in paths if path.exists()]


def publish(
    output: Path, page: Path, beside: Path | None = None, again: Path | None = None
) -> None:
    """Writes the document, and beside it ``results/ID/`` with each experiment's files.

    Args:
        output: A folder with outcomes.
        page: The document; what it links to is copied, so that it stands alone. Explanations are
            read from ``results/explanations.yaml`` beside it.
        beside: A folder with outcomes under the paper's settings, for columns of their own.
        again: A folder with outcomes of other seeds, for another column.
    """
    outcomes = read_outcomes(output)
    printed = read_printed(beside) if beside is not None else {}
    repeated = read_again(again, outcomes) if again is not None else {}
    explanations = read_explanations(page.parent / RESULTS)
    text = document(outcomes, explanations, printed, repeated)
    make_folder(page.parent)
    for name in (outcome["experiment"] for outcome in outcomes):
        make_folder(page.parent / RESULTS / name)
        for suffix in PUBLISHED:
            source = output / name / f"{name}.{suffix}"
            if source.exists():
                write_atomic(page.parent / RESULTS / name / source.name, source.read_bytes())
    for suffix, others in (("as-printed", printed), ("again", repeated)):
        for name, outcome in others.items():
            make_folder(page.parent / RESULTS / name)
            write_json(page.parent / RESULTS / name / f"{name}-{suffix}.json", outcome)
    write_atomic(page, text.encode())


def read_printed(folder: Path) -> dict[str, Outcome]:
    """Reads the outcomes of a reproduction with ``--as-printed``, refusing any other."""
    outcomes = read_outcomes(folder)
    if not outcomes or not all(outcome.get("as_printed", False) for outcome in outcomes):
        found = "other settings" if outcomes else "no outcome"
        raise InputError(
            "Expected '--beside' to be a folder of outcomes with --as-printed (got "
            f"'{folder}', which has {found}); check the path."
        )
    return {outcome["experiment"]: outcome for outcome in outcomes}


def read_again(folder: Path, outcomes: Sequence[Outcome]) -> Mapping[str, Outcome]:
    """Reads what was measured with our settings and seeds that no statement of ``outcomes`` has."""
    found = {one["experiment"]: one for one in read_outcomes(folder) if one["statements"]}
    before = {outcome["experiment"]: _seeds(outcome) for outcome in outcomes}
    wrong = None
    if not found:
        wrong = "no outcome"
    elif any(outcome["as_printed"] or outcome["quick"] for outcome in found.values()):
        wrong = "other settings"
    for name, outcome in found.items():
        common = _seeds(outcome) & before.get(name, set())
        if wrong is None and common:
            wrong = f"seed {min(common)} of '{name}' as well"
    if wrong is not None:
        raise InputError(
            "Expected '--again' to be a folder of outcomes with our settings and other seeds (got "
            f"'{folder}', which has {wrong}); reproduce with --first-seed into a folder of its own."
        )
    return found


def _seeds(outcome: Outcome) -> set[int]:
    return {seed for entry in outcome["statements"] for seed in entry["seeds"]}


def document(
    outcomes: Sequence[Outcome],
    explanations: Mapping[str, Any],
    printed: Mapping[str, Outcome] | None = None,
    again: Mapping[str, Outcome] | None = None,
) -> str:
    """Writes ``docs/reproduction.md``: an overview, then every experiment.

    Args:
        outcomes: What there is.
        explanations: Experiment → paragraph on what is worse or does not hold.
        printed: Experiment → what it came to with the paper's settings.
        again: Experiment → what it came to with other seeds.
    """
    printed, again = printed or {}, again or {}
    quick = any(outcome["quick"] for outcome in outcomes)
    warning = "\n**Quick mode: few epochs and seeds; nothing here is a result.**\n" if quick else ""
    parts = [
        "# Reproduction",
        "Written by `evergraph reproduce --document`; do not edit. Every table and figure of the "
        f"DSLR paper as an experiment: what it claims, what was measured.\n{warning}",
        RULES,
        *([AS_PRINTED] if printed else []),
        *([AGAIN] if again else []),
        overview(outcomes, linked=True, again=again).markdown(),
        contradictions().markdown(),
        *(
            _section(
                one, explanations, printed.get(one["experiment"]), again.get(one["experiment"])
            )
            for one in outcomes
        ),
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


def _section(
    outcome: Outcome,
    explanations: Mapping[str, Any],
    printed: Outcome | None,
    again: Outcome | None,
) -> str:
    name = outcome["experiment"]
    text = [f"## {name}", f"{outcome['title']} ({outcome['source']})."]
    text += [outcome_markdown(outcome, printed, again).strip()]
    if outcome["figure"]["drawn"]:
        text += [f"![{outcome['title']}]({RESULTS}/{name}/{name}.svg)"]
    if name in explanations:
        text.append(str(explanations[name]).strip())
    return "\n\n".join(text)


def _counts(words: Iterable[str]) -> str:
    return ", ".join(f"{count} {word}" for word, count in Counter(words).items()) or "–"
