"""``evergraph reproduce frontier``: from runs to table and figure."""

from __future__ import annotations

import json


def test_reproduce_frontier_writes_everything(command, work):
    words = ("reproduce", "frontier", "--dataset", "graph.npz", "--seeds", 2, "--jobs", 1)
    methods = ("--method", "analytic", "--method", "analytic:rank=2@small")
    answer = command(*words, *methods, "--output", "out")
    assert answer.code == 0, answer.err
    assert "frontier.png" in answer.out
    rows = json.loads((work / "out" / "frontier.json").read_text())
    assert {row["label"] for row in rows} == {"analytic", "small"}
    kept = {row["label"]: row["bytes"] for row in rows}
    assert kept["small"] < kept["analytic"]
    for name in ("frontier.csv", "frontier.md", "frontier.png", "frontier.svg", "summary.json"):
        assert (work / "out" / name).stat().st_size > 0
    again = command(*words, *methods, "--output", "again", "--merge", "out")
    assert again.code == 0
    merged = json.loads((work / "again" / "frontier.json").read_text())
    assert [row["pm"] for row in merged] == [row["pm"] for row in rows]


def test_reproduce_refuses_an_unknown_experiment(command, work):
    answer = command("reproduce", "frontiers", "--output", "out")
    assert answer.code == 2
    assert "Unknown experiment 'frontiers': did you mean 'frontier'?" in answer.err
    assert not (work / "out").exists()
