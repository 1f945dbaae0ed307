"""The reproduction as committed: it is what its results say, and nothing is left unexplained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evergraph.files import read_json
from evergraph.lab.paper.catalog import EXPERIMENTS
from evergraph.lab.report.reproduction import document, read_explanations, read_outcomes

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
#: Verdicts that need a reason.
FAILED = {"worse", "does not hold", "differs"}


def failed(outcome: dict) -> set[str]:
    numbers = {claim["verdict"] for row in outcome["rows"] for claim in row["claims"]}
    return (numbers | {entry["verdict"] for entry in outcome["statements"]}) & FAILED


def test_every_experiment_has_its_outcome():
    assert [outcome["experiment"] for outcome in read_outcomes(RESULTS)] == list(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_failed_is_explained(name: str):
    words = failed(read_json(RESULTS / name / f"{name}.json"))
    assert not words or name in read_explanations(RESULTS), words


def test_document_is_written_from_the_results():
    printed = {path.parent.name: read_json(path) for path in RESULTS.glob("*/*-as-printed.json")}
    again = {path.parent.name: read_json(path) for path in RESULTS.glob("*/*-again.json")}
    text = document(read_outcomes(RESULTS), read_explanations(RESULTS), printed, again)
    assert (DOCS / "reproduction.md").read_text(encoding="utf-8") == text


def test_document_links_to_what_is_there():
    text = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(links) > len(EXPERIMENTS)
    assert [link for link in links if not (DOCS / link).exists()] == []
