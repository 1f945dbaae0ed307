"""The reproduction as committed: it is what its results say, and nothing is left unexplained."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evergraph.lab.field import field_data, read_field
from evergraph.lab.paper.experiments import EXPERIMENTS, HEADLINES
from evergraph.lab.paper.verdicts import HOLDS, OPPOSITE, TESTED
from evergraph.lab.report.document import document, overview, read_explanations, read_results
from evergraph.lab.report.sheets import (
    Everything,
    headline_counts,
    headline_statements,
    headlines_sheet,
    numbers_sheet,
    statements_sheet,
)

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "results"
#: Verdicts that need a reason.
FAILED = ("(worse)", "differs", OPPOSITE)


@pytest.fixture(scope="module")
def everything() -> Everything:
    return read_results(RESULTS)


def numbers(outcome: Any) -> list[Any]:
    return [claim for entry in outcome["entries"] for claim in entry["claims"]]


def test_every_experiment_of_the_paper_has_its_outcome(everything: Everything):
    assert {name for name, one in EXPERIMENTS.items() if one.in_paper} <= set(everything)


def test_results_are_small():
    assert sum(path.stat().st_size for path in RESULTS.iterdir()) < 1_500_000


def test_no_judged_number_without_zero_is_called_inconclusive(everything: Everything):
    walked = 0
    for kinds in everything.values():
        for outcome in kinds.values():
            for claim in numbers(outcome):
                if claim["low"] is None:
                    continue
                walked += 1
                within = claim["low"] <= 0 <= claim["high"]
                assert within == (claim["verdict"] in ("inconclusive", "reproduced"))
                assert within or claim["verdict"].split()[0] == (
                    "higher" if claim["difference"] > 0 else "lower"
                )
    assert walked > 500


def test_statements_follow_their_p_after_holm(everything: Everything):
    for kinds in everything.values():
        for outcome in kinds.values():
            for entry in outcome["statements"]:
                sure = entry["p_holm"] is not None and entry["p_holm"] <= 0.05
                assert sure == (entry["verdict"] in (HOLDS, OPPOSITE))
                assert (entry["verdict"] in TESTED) == (entry["p_holm"] is not None)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_failed_is_explained(name: str, everything: Everything):
    outcome = everything.get(name, {}).get("ours", {"entries": (), "statements": ()})
    said = [entry["verdict"] for entry in outcome["statements"] if entry["in_paper"]]
    words = [*(claim["verdict"] for claim in numbers(outcome)), *said]
    failed = [word for word in words if word.endswith(FAILED)]
    assert not failed or name in read_explanations(RESULTS), failed


def test_every_headline_has_its_reason(everything: Everything):
    why = read_explanations(RESULTS)["headlines"]
    assert set(why) == {headline.claim for headline in HEADLINES}
    assert all(text.strip().count(". ") <= 1 for text in why.values())


def test_counts_add_up_to_what_the_tables_say(everything: Everything):
    rows = {row[0]: row for row in overview(everything).rows}
    for name, kinds in everything.items():
        ours = {"ours": kinds["ours"]}
        sheet = numbers_sheet(ours)
        printed = [row[2] for row in sheet.rows if "paper" in sheet.columns and row[2] != "–"]
        judged = sum(len(cell.split(" or ")) for cell in printed)
        said, beyond = (len(statements_sheet(ours, in_paper=x).rows) for x in (True, False))
        for column, count in ((2, judged), (3, said), (5, beyond)):
            counted = re.findall(r"(?:^|, )(\d+) ", rows[name][column])
            assert sum(map(int, counted)) == count, (name, column)


def test_headlines_add_up_to_what_their_statements_say(everything: Everything):
    for headline, row in zip(HEADLINES, headlines_sheet(everything, {}).rows, strict=True):
        for kind, told in zip(("as_printed", "ours"), row[1:3], strict=True):
            entries = headline_statements(headline, everything, kind)
            counts = Counter(entry["verdict"] for entry in entries)
            tested = sum(counts[word] for word in TESTED)
            if tested:
                assert f"({counts[HOLDS]} of {tested} hold" in told, headline.claim
            assert told.startswith("**yes**") == (0 < tested == counts[HOLDS])


def test_the_first_sentence_counts_every_claim(everything: Everything):
    sheet = headlines_sheet(everything, {})
    for column, told in zip((2, 1), headline_counts(sheet).split(". As printed"), strict=True):
        counted = re.findall(r"(\d+) (yes|no|in part|not shown|not tested|not run)", told)
        assert sum(int(count) for count, _ in counted) == len(HEADLINES)
        holds = sum(row[column].startswith("**yes**") for row in sheet.rows)
        assert dict(map(reversed, counted)).get("yes", "0") == str(holds)


def test_document_is_written_from_the_results(everything: Everything):
    for name, text in document(everything, read_explanations(RESULTS)).items():
        path = DOCS / "reproduction.md" if not name else DOCS / "reproduction" / f"{name}.md"
        assert path.read_text(encoding="utf-8") == text, path


def test_pages_are_short_and_link_to_what_is_there(everything: Everything):
    pages = [DOCS / "reproduction.md", *(DOCS / "reproduction").iterdir()]
    assert len(pages) == len(everything) + 2
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert text.count("\n") < 170, page
        links = re.findall(r"\]\(([^)#]+)\)", text)
        assert [link for link in links if not (page.parent / link).exists()] == []


def test_page_of_the_field_is_drawn_from_its_rows():
    rows = read_field(RESULTS / "field")
    assert rows
    assert all(row.file_name == name for name, row in rows.items())
    page = (DOCS / "field.html").read_text(encoding="utf-8")
    held = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert held["rows"] == field_data(rows.values())["rows"]
