"""The files of an experiment, and the document of all of them; everything from outcomes.

The document is ``reproduction.md`` with a page per experiment in ``reproduction/`` and, in
``results/``, what was measured (``ID.json``), a few pictures and what people wrote about it
(``explanations.yaml``). All but the last is written from ``results/`` alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from evergraph.config import load_mapping
from evergraph.errors import InputError, unknown_name
from evergraph.files import make_folder, read_json, write_atomic, write_json
from evergraph.lab.paper.experiments import EXPERIMENTS, HEADLINES
from evergraph.lab.paper.outcome import SCHEMA_VERSION, Outcome, judged, measured, merged
from evergraph.lab.report import sheets
from evergraph.lab.report.figures import write_figure
from evergraph.lab.report.sheets import PAGES, Everything, Kinds, outcome_sheets, verdict_counts
from evergraph.lab.tables import Sheet, paper_numbers

RESULTS, EXPLANATIONS = "results", "explanations.yaml"
#: The experiments whose figure their page shows beside the table.
PICTURED = ("main", "embedding", "frontier", "leaks")
#: Rows from which on a page shows the figure in place of the table.
MANY_ROWS = 40
QUICK = "Quick mode: few epochs and seeds. It shows that an experiment runs and proves nothing."


def write_experiment(outcome: Outcome, folder: Path) -> None:
    """Writes ``ID.json``, ``.csv``, ``.md``, ``.tex`` and the figure as PNG, SVG and PDF."""
    make_folder(folder)
    name, kinds = outcome["experiment"], {kind_of(outcome): outcome}
    write_json(folder / f"{name}.json", outcome)
    write_atomic(folder / f"{name}.csv", sheets.outcome_csv(outcome).encode())
    write_atomic(folder / f"{name}.md", (outcome_markdown(kinds) + "\n").encode())
    tables = "\n".join(sheets.latex(sheet) for sheet in outcome_sheets(kinds))
    write_atomic(folder / f"{name}.tex", tables.encode())
    write_figure({**outcome, "mark": sheets.reservations([outcome]).strip()}, folder, name)


def kind_of(outcome: Outcome) -> str:
    """Says which settings an outcome has."""
    return "as_printed" if outcome["as_printed"] else "ours"


def read_results(folder: Path) -> dict[str, dict[str, Outcome]]:
    """Reads what a reproduction or an earlier document left: experiment → kind → outcome.

    Verdicts are those of the rules in force.
    """
    found: dict[str, dict[str, Outcome]] = {}
    for name in EXPERIMENTS:
        kinds: dict[str, Outcome] = {}
        if (path := folder / f"{name}.json").exists():
            kinds = read_json(path)
        elif (path := folder / name / f"{name}.json").exists():
            outcome = read_json(path)
            kinds = {kind_of(outcome): outcome}
        for kind, outcome in kinds.items():
            if outcome["schema_version"] != SCHEMA_VERSION:
                raise InputError(
                    f"Expected 'schema_version' {SCHEMA_VERSION} of {kind} in '{path}' (got "
                    f"{outcome['schema_version']}); reproduce into that folder again: runs stay."
                )
            found.setdefault(name, {})[kind] = judged(measured(outcome))
    return found


def publish(
    output: Path, page: Path, beside: Path | None = None, again: Path | None = None
) -> None:
    """Writes the document: what was measured takes the place of what stood there, row by row.

    ``output`` is a folder with outcomes, or the ``results`` of the document itself; ``beside`` has
    outcomes under the paper's settings, ``again`` those of other seeds.
    """
    results = page.parent / RESULTS
    there = read_results(results)

    def take(new: Everything) -> None:
        for name, kinds in new.items():
            mine = there.setdefault(name, {})
            mine |= {k: judged(merged(mine.get(k), outcome)) for k, outcome in kinds.items()}

    take(read_results(output))
    if beside is not None:
        take(read_printed(beside))
    if again is not None:
        take(read_again(again, there))
    everything = {name: there[name] for name in EXPERIMENTS if name in there}
    texts = document(everything, read_explanations(results))
    make_folder(page.parent / PAGES)
    make_folder(results)
    for name, kinds in everything.items():
        content = {kind: measured(outcome) for kind, outcome in kinds.items()}
        compact = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        write_atomic(results / f"{name}.json", compact.encode() + b"\n")
        if pictured(kinds):
            write_figure(kinds["ours"], results, name, ["png"], dpi=80)
    write_figure(sheets.headline_figure(everything), results, "headlines", ["png"], dpi=110)
    for place, text in texts.items():
        write_atomic(page if place == "" else page.parent / PAGES / f"{place}.md", text.encode())


def read_printed(folder: Path) -> Everything:
    """Reads the outcomes of a reproduction with ``--as-printed``, refusing any other."""
    found = read_results(folder)
    if not found or any("ours" in kinds for kinds in found.values()):
        raise InputError(
            "Expected '--beside' to be a folder of outcomes with --as-printed (got "
            f"'{folder}', which has {'other settings' if found else 'no outcome'}); check the path."
        )
    return found


def read_again(folder: Path, everything: Everything) -> Everything:
    """Reads what was measured with our settings and seeds that no statement of ours has."""
    found, wrong = dict[str, dict[str, Outcome]](), "no outcome with our settings"
    for name, kinds in read_results(folder).items():
        new = kinds.get("ours")
        if new is None or not new["statements"] or new["quick"]:
            continue
        found[name] = {"again": new}
        ours = everything.get(name, {}).get("ours", {"rows": ()})
        seeds = [{s for row in one["rows"] for s in row["seeds"]} for one in (ours, new)]
        if common := set.intersection(*seeds):
            found, wrong = {}, f"seed {min(common)} of '{name}' as well"
            break
    if not found:
        raise InputError(
            "Expected '--again' to be a folder of outcomes with our settings and other seeds (got "
            f"'{folder}', which has {wrong}); reproduce with --first-seed into a folder of its own."
        )
    return found


def document(everything: Everything, explanations: Mapping[str, Any]) -> dict[str, str]:
    """Writes every page: experiment → text, the document itself under an empty name."""
    quick = any(outcome["quick"] for kinds in everything.values() for outcome in kinds.values())
    prose = resources.files("evergraph.lab.report").joinpath("document.md").read_text("utf-8")
    head, rules = prose.strip().split("\n\n---\n\n")
    answers = sheets.headlines_sheet(everything, explanations.get("headlines", {}))
    picture = f"![Margins of the headline claims]({RESULTS}/headlines.png)"
    parts = [
        head,
        *([f"**{QUICK}**"] if quick else []),
        sheets.headline_counts(answers),
        answers.markdown(),
        *([picture] if sheets.headline_figure(everything)["entries"] else []),
        overview(everything, linked=True).markdown(),
        rules,
    ]
    twice = [
        [entry["what"], "; ".join(f"{where}: {value}" for where, value in entry["values"].items())]
        for entry in paper_numbers()["contradictions"]
    ]
    table = Sheet("Printed twice", ["what", "printed"], twice, prose=("printed",)).markdown()
    texts = {"": "\n\n".join(parts) + "\n"}
    texts["contradictions"] = f"# Where the paper contradicts itself\n\n{_BACK}\n\n{table}\n"
    for name, kinds in everything.items():
        experiment = EXPERIMENTS[name]
        text = [f"# {name}", f"{experiment.title} ({experiment.source}). {_BACK}"]
        if explanations.get(name) is not None:
            text.append(str(explanations[name]).strip())
        if pictured(kinds):
            text.append(f"![{experiment.title}](../{RESULTS}/{name}.png)")
        texts[name] = "\n\n".join([*text, outcome_markdown(kinds, short=True)]) + "\n"
    return texts


def overview(everything: Everything, *, linked: bool = False) -> Sheet:
    """Counts verdicts per experiment; in the document each name leads to its page."""
    rows = []
    for name, kinds in everything.items():
        numbers, said, beyond = verdict_counts(kinds.get("ours"))
        _, as_printed, _ = verdict_counts(kinds.get("as_printed"))
        title = f"[{name}]({PAGES}/{name}.md)" if linked else name
        rows.append([title, EXPERIMENTS[name].source, numbers, said, as_printed, beyond])
    columns = ["experiment", "paper", "numbers", "statements", "as printed", "beyond the paper"]
    return Sheet("Every experiment", columns, rows, prose=tuple(columns))


def read_explanations(folder: Path) -> dict[str, Any]:
    """Reads ``explanations.yaml``, which people write, {} without it; refuses unknown names."""
    path = folder / EXPLANATIONS
    found = load_mapping(path.read_text(encoding="utf-8"), str(path)) if path.exists() else {}
    for name in found:
        if name not in {*EXPERIMENTS, "headlines"}:
            raise unknown_name(f"experiment in '{path}'", name, EXPERIMENTS)
    for claim in found.get("headlines", {}):
        if claim not in (known := [headline.claim for headline in HEADLINES]):
            raise unknown_name(f"headline in '{path}'", claim, known)
    return found


_BACK = "[All experiments](../reproduction.md) · written by `evergraph reproduce`; do not edit."


def pictured(kinds: Kinds) -> bool:
    """Tells whether a page shows the experiment's figure."""
    outcome = kinds.get("ours")
    if outcome is None or not outcome["entries"]:
        return False
    if outcome["figure"]["kind"] == "embedding":
        return bool(outcome.get("planes"))
    return outcome["experiment"] in PICTURED or len(outcome["rows"]) > MANY_ROWS


def outcome_markdown(kinds: Kinds, *, short: bool = False) -> str:
    """Writes all tables and notes of an experiment; ``short`` leaves a long one to its picture."""
    name = next(iter(kinds.values()))["experiment"]
    tables = outcome_sheets(kinds, short=short)
    if short and name not in PICTURED and pictured(kinds):
        tables = tables[1:]
    notes = list(EXPERIMENTS[name].notes)
    for outcome in kinds.values():
        which = " with the printed settings" if outcome["as_printed"] else ""
        notes += [*outcome["notes"], *([QUICK] if outcome["quick"] else [])]
        for dataset, rows in outcome["missing"].items():
            notes.append(f"Not every run is finished on {dataset}{which}: {', '.join(rows)}.")
    listed = "\n".join(f"- {note}" for note in dict.fromkeys(notes))
    return "\n\n".join([*(table.markdown() for table in tables), *([listed] if listed else [])])
