"""The reproduction as committed: it is what its results say, and nothing is left unexplained."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evergraph.lab.paper.experiments import EXPERIMENTS
from evergraph.lab.report.reproduction import (
    Published,
    document,
    read_explanations,
    read_published,
)

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
#: Verdicts that need a reason.
FAILED = {"worse", "does not hold", "differs"}


def failed(outcome: dict) -> set[str]:
    numbers = {claim["verdict"] for row in outcome["rows"] for claim in row["claims"]}
    return (numbers | {entry["verdict"] for entry in outcome["statements"]}) & FAILED


@pytest.fixture(scope="module")
def published() -> Published:
    found = read_published(RESULTS)
    assert found is not None
    return found


def test_every_experiment_has_its_outcome(published: Published):
    assert list(published.ours) == list(EXPERIMENTS)


def test_results_are_small():
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 1_500_000


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_failed_is_explained(name: str, published: Published):
    words = failed(published.ours[name])
    assert not words or name in read_explanations(RESULTS), words


def test_document_is_written_from_the_results(published: Published):
    text = document(published, read_explanations(RESULTS))
    assert (DOCS / "reproduction.md").read_text(encoding="utf-8") == text


def test_document_links_to_what_is_there():
    text = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(links) > 3
    assert [link for link in links if not (DOCS / link).exists()] == []
