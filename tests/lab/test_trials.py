"""The log of a search: what is written is read back, and what is best by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.config import parse_settings
from evergraph.errors import InputError
from evergraph.lab.trials import (
    TrialRow,
    best_row,
    best_settings,
    join_rows,
    read_rows,
    settings_text,
    write_rows,
)


def row(trial: int, pm: float | None, seeds: int = 2, *, method: str = "ewc", lam: int = 1):
    return TrialRow("cora", method, trial, seeds, pm, None, pm, f"lam={lam}")


def test_rows_are_written_for_people_and_read_back(tmp_path: Path):
    rows = [
        TrialRow("cora", "lwf", 0, 2, 61.5, 25.731, 90.0, "lam=1 temperature=0.5"),
        TrialRow("synthetic:nodes=5,classes=2", "a, b", 1, 0, None, None, None, ""),
    ]
    content = write_rows(rows, TrialRow).decode()
    assert content.splitlines()[:2] == [
        "dataset,method,trial,seeds,pm,fm,current,settings",
        "cora,lwf,0,2,61.50,25.73,90.00,lam=1 temperature=0.5",
    ]
    (tmp_path / "trials.csv").write_text(content)
    again = read_rows(tmp_path / "trials.csv", TrialRow)
    assert again[1] == rows[1]
    assert again[0] == TrialRow("cora", "lwf", 0, 2, 61.5, 25.73, 90.0, "lam=1 temperature=0.5")


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", None], ids=["empty", "other", "absent"])
def test_read_rows_refuses_another_file_in_one_sentence(tmp_path: Path, content: str | None):
    if content is not None:
        (tmp_path / "trials.csv").write_text(content)
    with pytest.raises(InputError, match=r"trials\.csv.*evergraph tune"):
        read_rows(tmp_path / "trials.csv", TrialRow)


@given(
    st.dictionaries(
        st.sampled_from(["a", "b_c", "lam"]),
        st.floats(-1e9, 1e9) | st.integers() | st.sampled_from(["share", "none", "mf"]),
    )
)
def test_settings_text_is_read_back(settings):
    for between in (" ", ","):
        text = settings_text(settings, between)
        assert parse_settings(text.split(between) if text else []) == settings


def test_best_row_takes_most_seeds_then_pm_then_the_earliest():
    assert best_row([]) is None
    assert best_row([row(0, None, 0)]) is None
    assert best_row([row(0, 90.0, 2), row(1, 50.0, 4), row(2, 51.0, 4)]).trial == 2
    assert best_row([row(0, 50.0), row(1, 51.0), row(2, 51.0)]).trial == 1


def test_best_settings_are_by_dataset_and_method():
    rows = [row(0, 1.0, lam=1), row(1, 2.0, lam=5), row(0, None, 0, method="mas")]
    assert best_settings(rows) == {"cora": {"ewc": {"lam": 5}}}


def test_join_rows_replaces_what_was_searched_again():
    old = [row(0, 1.0), row(1, 1.0), row(0, 2.0, method="mas")]
    assert join_rows(old, [row(0, 3.0)]) == [old[2], row(0, 3.0)]
