"""Large features in files beside the database: the same promises as for all else of a state."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from batches import contents, quick, stored
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.array_files import ArrayFiles
from evergraph.estimator.blocks import block_checksum
from evergraph.estimator.transaction import resume

CPU = torch.device("cpu")
WIDTH = 512  # two rows are a page of memory
load = ContinualNodeClassifier.load


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every array of features a file, from five rows on."""
    monkeypatch.setattr("evergraph.estimator.blocks.LARGE", 5 * 4 * WIDTH)


def batch(first: int, count: int = 20) -> dict[str, Any]:
    """Makes nodes in a row; the first four have labels."""
    rng = np.random.default_rng(first)
    ids = [f"n{first + at}" for at in range(count)]
    labels = {name: "uv"[at % 2] for at, name in enumerate(ids[:4])}
    edges = list(pairwise(ids))
    x = rng.normal(size=(count, WIDTH)).astype(np.float32)
    return {"ids": ids, "x": x, "edges": edges, "labels": labels}


def begun(folder: Path) -> ContinualNodeClassifier:
    clf = quick("finetune", settings={"epochs": 1}, feature_scaling="none")
    return clf.learn(**batch(0)).save(folder)


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.glob("*.array"))}


def change(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / "state.sqlite")) as db, db:
        db.execute(statement, values)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state of two versions whose features are in one file."""
    begun(tmp_path / "state").learn(**batch(20)).save(tmp_path / "state")
    return tmp_path / "state"


def test_features_are_appended_to_a_file_and_mapped(tmp_path: Path):
    folder = tmp_path / "state"
    clf = begun(folder)
    (name,) = files(folder)
    assert files(folder) == {name: 20 * 4 * WIDTH}
    for first in (20, 40):
        clf = load(folder).learn(**batch(first)).save(folder)
        assert files(folder) == {name: (first + 20) * 4 * WIDTH}
    again = load(folder)
    assert stored(again) == stored(clf)
    x = np.concatenate([batch(first)["x"] for first in (0, 20, 40)])
    assert torch.equal(again._now().graph.features, torch.from_numpy(x))
    if os.path.exists("/proc/self/maps"):
        assert str(folder / name) in Path("/proc/self/maps").read_text()
    with closing(sqlite3.connect(folder / "state.sqlite")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (4,)
        assert db.execute("SELECT max(length(data)) FROM block").fetchone()[0] < 20 * 4 * WIDTH


def test_rows_stay_right_whatever_is_read_appended_and_replaced(tmp_path: Path):
    folder, x = tmp_path / "state", batch(0, 3000)["x"]
    quick("finetune", settings={"epochs": 1}, feature_scaling="none").learn(
        list(range(3000)), x, labels={0: "u", 1: "v"}
    ).save(folder)
    clf, more = load(folder), batch(1, 3500)["x"]
    for at in range(0, 3500, 500):  # into the room behind the file, then beyond it
        clf.learn(list(range(3000 + at, 3500 + at)), more[at : at + 500])
        graph, x = clf._now().graph, np.concatenate([x, more[at : at + 500]])
        rows = torch.arange(0, len(x), 2)  # so many that what was read of the file is dropped
        assert torch.equal(graph.take(rows), torch.from_numpy(x)[::2])
        assert torch.equal(graph.features, torch.from_numpy(x))
    clf.save(folder)
    x[7] = 1
    clf.update([7], x[7:8]).save(folder)  # stored beside the file
    again = load(folder)
    for _ in range(2):
        taken = again._now().graph.take(torch.arange(2000))
        assert torch.equal(taken, torch.from_numpy(x)[:2000])
    same = copy.deepcopy(again)
    assert torch.equal(same._now().graph.features, torch.from_numpy(x))


def test_an_array_that_becomes_large_moves_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("evergraph.estimator.blocks.LARGE", 30 * 4 * WIDTH)
    clf = begun(tmp_path / "state")
    assert files(tmp_path / "state") == {}
    with closing(sqlite3.connect(tmp_path / "state" / "state.sqlite")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)  # as 0.2.0 wrote it
    clf.learn(**batch(20)).save(tmp_path / "state")
    assert list(files(tmp_path / "state").values()) == [40 * 4 * WIDTH]
    assert stored(load(tmp_path / "state")) == stored(clf)
    assert len(load(tmp_path / "state", generation=0).ids_) == 20


def test_removing_nodes_begins_another_file_and_readers_keep_theirs(folder: Path):
    reader, before = load(folder), files(folder)
    features = reader._now().graph.features.clone()
    clf = load(folder).remove(ids=["n3"]).save(folder)
    assert files(folder).items() > before.items()  # the version before needs it
    clf.learn(**batch(60)).save(folder)
    assert not files(folder).keys() & before.keys()
    assert list(files(folder).values()) == [59 * 4 * WIDTH]
    assert torch.equal(reader._now().graph.features, features)
    assert stored(load(folder)) == stored(clf)


def test_a_reader_whose_file_goes_while_it_reads_gets_the_newer_version(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    writer, reading = load(folder), ArrayFiles.reading

    def late(self: ArrayFiles, base: str, size: int) -> Any:
        monkeypatch.setattr(ArrayFiles, "reading", reading)
        for name in ("n4", "n5"):  # after two versions nobody needs the file that is to be read
            writer.remove(ids=[name]).save(folder)
        return reading(self, base, size)

    monkeypatch.setattr(ArrayFiles, "reading", late)
    assert stored(load(folder)) == stored(writer)


def test_what_a_killed_writer_left_is_written_over(folder: Path, tmp_path: Path):
    shutil.copytree(folder, tmp_path / "whole")
    load(tmp_path / "whole").learn(**batch(40)).save(tmp_path / "whole")
    (name,) = files(folder)
    with (folder / name).open("ab") as file:
        file.write(b"torn" * 9999)
    (folder / "state.9-9.array").write_bytes(b"begun and not committed")
    load(folder).learn(**batch(40)).save(folder)
    assert contents(folder) == contents(tmp_path / "whole")
    assert files(folder).keys() == {name}
    assert stored(load(folder)) == stored(load(tmp_path / "whole"))


def test_a_writer_that_died_before_the_first_version_is_in_nobodys_way(tmp_path: Path):
    for name in ("state.0-2.array", "state.0-7.array"):
        (tmp_path / name).write_bytes(b"begun and not committed" * 9999)
    clf = begun(tmp_path)
    assert list(files(tmp_path).values()) == [20 * 4 * WIDTH]
    assert stored(load(tmp_path)) == stored(clf)


def test_a_limit_on_the_size_of_files_keeps_the_last_version(folder: Path, tmp_path: Path):
    # What a full disk or a quota does: the kernel refuses to write beyond a size.
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before, answers = contents(folder), set()
    shutil.copytree(folder, tmp_path / "whole")
    load(tmp_path / "whole").learn(**batch(40)).save(tmp_path / "whole")
    for limit in (0, 20_000, 81_000, 90_000, 100_000, 120_000, 130_000, 1_000_000):
        copied = shutil.copytree(folder, tmp_path / f"copy-{limit}")
        clf = load(copied).learn(**batch(40))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # Python ignores the signal
        try:
            clf.save(copied)
            answer = "saved"
        except InputError as error:
            answer = str(error).split(" '")[0]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        answers.add(answer)
        if answer != "saved":
            assert contents(copied) == before
            assert len(load(copied).ids_) == 40
            clf.save(copied)
        assert contents(copied) == contents(tmp_path / "whole")
        assert stored(load(copied)) == stored(clf)
    assert answers == {"saved", "Expected to write"}


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[5000] ^= 4
    path.write_bytes(content)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte": (spoil, "damage in a block"),
    "short": (lambda path: os.truncate(path, 20 * 4 * WIDTH), "damage in .*version 0 is still"),
    "empty": (lambda path: path.write_bytes(b""), "damage in"),
    "missing": (lambda path: path.unlink(), "damage in .*one of which is missing"),
    "link": (
        lambda path: (path.rename(path.parent.with_name("x")), path.symlink_to("../x")),
        "regular file",
    ),
    "pipe": (lambda path: (path.unlink(), os.mkfifo(path)), "regular file"),  # would wait
    "folder": (lambda path: (path.unlink(), path.mkdir()), "regular file"),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_a_damaged_file_is_a_sentence(folder: Path, case: str):
    damage, words = DAMAGES[case]
    (name,) = files(folder)
    clf = load(folder).learn(**batch(40))
    damage(folder / name)
    with pytest.raises(InputError, match=words):
        load(folder)
    if case == "short":
        assert "Version 0 is current again" in resume(folder, device=CPU)[1]
        load(folder).learn(**batch(20)).save(folder)
        assert len(load(folder).ids_) == 40
    if case == "missing":  # who has read it can write it again
        assert len(load(clf.save(folder) and folder).ids_) == 60


FORGED = {
    "length": "UPDATE block SET data = data - 4 WHERE typeof(data) = 'integer'",
    "negative": "UPDATE block SET data = -data WHERE typeof(data) = 'integer'",
    "huge": "UPDATE block SET data = 1 << 60 WHERE typeof(data) = 'integer'",
    "number": "UPDATE block SET data = 0.5 WHERE typeof(data) = 'integer' AND start > 0",
    "order": "UPDATE block SET start = start + 4 WHERE typeof(data) = 'integer'",
    "missing": "DELETE FROM block WHERE typeof(data) = 'integer' AND start > 0",
    "rows": "UPDATE block SET data = length(data) WHERE typeof(data) = 'blob' AND base LIKE '%-%'",
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_lengths_are_refused(folder: Path, case: str):
    change(folder, FORGED[case])
    with pytest.raises(InputError, match="to be whole"):
        load(folder)


@pytest.mark.parametrize("base", ["x/../../elsewhere-1", "²-1", "1-1\n", "-1-1", "1-1.array/1-1"])
def test_a_base_names_no_other_file(folder: Path, tmp_path: Path, base: str):
    (name,) = files(folder)
    (folder / "state.x").mkdir()
    (folder / "state.1-1.array").mkdir()
    content = (folder / name).rename(folder / f"state.{base}.array").read_bytes()
    old = name.removeprefix("state.").removesuffix(".array")
    with closing(sqlite3.connect(folder / "state.sqlite")) as db, db:
        for start, size in db.execute(
            "SELECT start, data FROM block WHERE base = ?", (old,)
        ).fetchall():
            crc = block_checksum(base, start, content[start : start + size])
            change = "UPDATE block SET base = ?, crc32 = ? WHERE base = ? AND start = ?"
            db.execute(change, (base, crc, old, start))
        for number, text in db.execute("SELECT number, document FROM version").fetchall():
            forged = text.replace(json.dumps(old), json.dumps(base))
            digest = hashlib.sha256(f"{number} {forged}".encode()).digest()
            change = "UPDATE version SET document = ?, sha256 = ? WHERE number = ?"
            db.execute(change, (forged, digest, number))
    with pytest.raises(InputError, match="to be whole"):
        load(folder)
    with pytest.raises(InputError, match="restore a copy"):
        resume(folder, device=CPU)
