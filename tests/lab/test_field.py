"""The table of the field: rows from runs and from anyone, checked; the page that shows them."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest

from evergraph.errors import InputError
from evergraph.lab.field import (
    LARGEST,
    add_rows,
    check_row,
    field_data,
    known_protocols,
    read_field,
    read_rows,
    rows_of_runs,
)
from evergraph.lab.page import render_page
from evergraph.lab.paper.experiments import EXPERIMENTS, FIELD_STREAMS, Facts
from evergraph.methods import METHODS
from made_runs import make_run
from support import Command

HOSTILE = "</script><img src=x onerror=alert(1)>"


def make_runs(folder: Path, method: str = "dslr", seeds: int = 3, **kwargs: Any) -> None:
    for seed in range(seeds):
        make_run(folder / method.replace(":", "-") / str(seed), method, seed, **kwargs)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A row that is right."""
    folder = tmp_path_factory.mktemp("runs")
    make_runs(folder)
    (row,) = rows_of_runs(folder)
    found: dict[str, Any] = json.loads(row.model_dump_json())
    return found


def test_row_of_runs_holds_what_they_measured(content: dict[str, Any]):
    assert content["seeds"] == [0, 1, 2]
    assert content["pm"] == [75.0, 76.0, 77.0]
    assert content["fm"] == [20.0, 19.0, 18.0]
    assert content["seconds"] == [4.0] * 3
    assert content["memory_bytes"] == [1600] * 3
    assert content["version"] == "0.1.0"
    assert content["published"]["pm"] == 81.59
    assert "seed" not in content["config"]
    row = check_row(content, "row")
    assert row.place == ("cora", "class", "dslr")
    assert row.run.variant_hash == content["variant_hash"]


def test_field_of_the_catalogue_is_what_rows_are_checked_by():
    names = [row.name for row in EXPERIMENTS["field"].rows(Facts("cora", 1, 3, 6, 2))]
    assert names == [*METHODS, *(f"{name} · blurry:0.3" for name in METHODS)]
    grown = Facts("ubuntu-packages", 1, 8, 59, 2, "time")
    rows = EXPERIMENTS["field"].rows(grown)
    assert [row.method for row in rows] == list(METHODS)
    assert set(known_protocols("cora", "dslr").values()) == set(FIELD_STREAMS) - {"time"}
    assert list(known_protocols("ubuntu-packages", "dslr").values()) == ["time"]


def test_added_rows_are_read_back_and_duplicates_are_named(tmp_path: Path):
    make_runs(tmp_path / "runs")
    make_runs(tmp_path / "runs", "dslr:stream=blurry:0.3")
    make_runs(tmp_path / "runs", "joint", dataset="citeseer")
    rows = read_rows(tmp_path / "runs")
    written = add_rows(tmp_path / "field", rows)
    assert sorted(path.name for path in written) == sorted(read_field(tmp_path / "field"))
    assert {row.place for row in rows} == {
        ("cora", "class", "dslr"),
        ("cora", "blurry:0.3", "dslr"),
        ("citeseer", "class", "joint"),
    }
    with pytest.raises(InputError, match=r"got cora · class · dslr, which cora-class-dslr-\w+.js"):
        add_rows(tmp_path / "field", rows)
    with pytest.raises(InputError, match="which another of these rows is"):
        add_rows(tmp_path / "new", [rows[0], rows[0]])
    assert not (tmp_path / "new").exists()
    other = tmp_path / "other"
    make_runs(other, "dslr", shared={"epochs": 7})
    with pytest.raises(InputError, match="cora · class · dslr"):
        add_rows(tmp_path / "field", read_rows(other))
    add_rows(tmp_path / "field", read_rows(other), replace=True)
    found = read_field(tmp_path / "field").values()
    assert len(found) == 3  # the old one is gone
    assert [r.run.training.epochs for r in found if r.place == ("cora", "class", "dslr")] == [7]


def change(path: str, value: Any):
    def apply(content: dict[str, Any]) -> dict[str, Any]:
        *way, last = path.split(".")
        part = content
        for key in way:
            part = part[key]
        part[last] = value
        return content

    return apply


def drop(key: str):
    return lambda content: {k: v for k, v in content.items() if k != key}


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda _: [], "Expected keys and values"),
        (lambda _: None, "Expected keys and values"),
        (drop("config"), "Expected a value for 'config'"),
        (drop("pm"), "Expected a value for 'pm'"),
        (change("sedes", [0]), "'sedes'"),
        (change("schema_version", 2), "Expected 'schema_version'"),
        (change("seeds", [0, 1]), "at least 3 different ones"),
        (change("seeds", [0, 1, 1]), "at least 3 different ones"),
        (change("seeds", [0, 1, -1]), "seeds"),
        (change("seeds", [0, 1, 10**400]), "seeds"),
        (change("pm", [75.0, 76.0]), "Expected 'pm' with a value per seed, 3"),
        (change("pm", [75.0, 76.0, math.nan]), "pm"),
        (change("pm", [75.0, 76.0, math.inf]), "pm"),
        (change("pm", [75.0, 76.0, 101.0]), "pm"),
        (change("pm", [95.0, 96.0, 97.0]), "Expected 'current' − 'pm' between 0 and 'fm'"),
        (change("pm", "75"), "pm"),
        (change("fm", [20.0, 19.0, "x"]), "fm"),
        (change("seconds", [-1.0, 4.0, 4.0]), "seconds"),
        (change("memory_bytes", [1.5, 2, 3]), "memory_bytes"),
        (change("protocol_hash", "0" * 16), "Expected 'protocol_hash'"),
        (change("variant_hash", "0" * 12), "Expected 'variant_hash'"),
        (change("config.protocol.test_share", 0.1), "Expected 'protocol_hash'"),
        (change("config.training.epochs", 3), "Expected 'variant_hash'"),
        (change("config.training.epochs", math.nan), "epochs"),
        (change("config.settings.beta", "a lot"), "beta"),
        (change("config.method", "unheard-of"), "unheard-of"),
        (change("config.dataset", "/etc/passwd"), "a graph that all have"),
        (change("config.dataset_options", {"nodes": 5}), "a graph that all have"),
        (change("config.label", "a\x1b[31mb"), "printable characters"),
        (change("config.label", "x" * 1000), "printable characters"),
        (change("config.label", ""), "printable characters"),
        (change("config.extra", 1), "extra"),
        (change("config", []), "config"),
        (change("published", {"pm": 80}), "source"),
        (change("published", {"pm": 800, "source": "x"}), "pm"),
        (change("version", "9" * 1000), "version"),
    ],
)
def test_bad_row_is_refused_in_one_sentence(content: dict[str, Any], spoil, sentence: str):
    with pytest.raises(InputError) as told:
        check_row(spoil(copy.deepcopy(content)), "row.json")
    text = str(told.value)
    assert sentence in text
    assert "row.json" in text
    assert text.isprintable()
    assert len(text) <= 1100


def test_row_under_another_protocol_is_refused(tmp_path: Path):
    make_runs(tmp_path, "dslr", shared={"test_share": 0.1})
    with pytest.raises(InputError, match=r"of class or blurry:0.3 on cora \(got \w+, another"):
        read_rows(tmp_path)


def test_row_of_a_probe_is_refused(tmp_path: Path):
    make_runs(tmp_path, "one-per-task")
    with pytest.raises(InputError, match=r"Expected 'method' among .*\(got 'one-per-task'\)"):
        read_rows(tmp_path)


def test_row_on_validation_nodes_is_refused(tmp_path: Path):
    tuned = {"validation_fraction": 0.1, "evaluate": "validation"}
    make_runs(tmp_path, "dslr", shared=tuned)
    with pytest.raises(InputError, match="another protocol"):
        read_rows(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "null", '"a"', '{"config": ' + "9" * 5000 + "}", "\x00"]
)
def test_file_that_is_no_row_is_refused(tmp_path: Path, command: Command, text: str):
    (tmp_path / "row.json").write_text(text)
    words = ("field", "--folder", tmp_path / "field")
    answer = command(*words, "--add", tmp_path / "row.json")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    assert not (tmp_path / "field").exists()


def test_command_adds_shows_and_writes_the_page(tmp_path: Path, command: Command):
    make_runs(tmp_path / "runs", "dslr:beta=0.2@" + HOSTILE)
    words = ("field", "--folder", tmp_path / "field")
    assert "(got none)" in command(*words).err
    page = tmp_path / "field.html"
    answer = command(*words, "--add", tmp_path / "runs", "--page", page)
    assert answer.code == 0, answer.err
    assert "76.00 ± 1.00" in answer.out
    (name,) = read_field(tmp_path / "field")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-=_")
    text = page.read_text()
    assert text.count("</script>") == 2
    assert "<img" not in text
    again = command(*words, "--add", tmp_path / "field" / name)
    assert again.code == 2
    assert name in again.err
    assert command(*words, "--add", tmp_path / "field" / name, "--replace").code == 0
    data = json.loads(command(*words, "--json").out)
    assert data["rows"][0]["pm"]["mean"] == 76
    assert data["rows"][0]["name"] == HOSTILE
    (tmp_path / "large.json").write_text(" " * (LARGEST + 1))
    for source in ("large.json", "nowhere.json", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        refused = command(*words, "--add", tmp_path / source)
        assert refused.code == 2
        assert f"Expected a row's JSON file of at most {LARGEST} bytes" in refused.err


def test_page_of_the_field_is_the_same_for_the_same_rows(content: dict[str, Any]):
    first, second = (field_data([check_row(content, "row")]) for _ in range(2))
    assert render_page(first, "field") == render_page(second, "field")
    assert first["rows"][0]["needs"] == (", ".join(sorted(METHODS["dslr"].needs)) or None)
