"""States on disk: whole versions, whatever breaks; one writer, any number of readers."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from batches import contents, quick, stored
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.graph import Grown
from evergraph.estimator.inputs import Change, make_change
from evergraph.estimator.state import State
from evergraph.estimator.step import advance
from evergraph.estimator.store import Store
from evergraph.estimator.transaction import learn_into, load_state, resume

CPU = torch.device("cpu")
SMALL = {"epochs": 1, "channels": 2, "heads": 1, "attention": "plain"}  # compiled code cannot fork
GIVEN: dict[str, Any] = {"method": "replay", "settings": SMALL}
NAMES = {"state.sqlite", "lock.sqlite", "writer.json"}
load = ContinualNodeClassifier.load


def change(start: int, count: int = 6) -> Callable[[State], Change]:
    """Makes a change of nodes in a row, half of them labelled."""

    def make(state: State) -> Change:
        ids = [f"n{start + at}" for at in range(count)]
        x = [[float(at % 2), 1.0] for at in range(count)]
        labels = ["uv"[at % 2] if at < 4 else None for at in range(count)]
        edges = list(pairwise(ids))
        return make_change("learn", columns=None, ids=ids, x=x, edges=edges, labels=labels)

    return make


def learn(path: Path, start: int, **named: Any) -> State:
    return learn_into(path, change(start), given=GIVEN, device=CPU, **named)


def interrupt(event: object) -> None:
    raise KeyboardInterrupt


def leave_pending(path: Path, start: int = 12) -> None:
    """Ends a learn after the change is noted, as a kill does."""
    with pytest.raises(KeyboardInterrupt):
        learn(path, start, on_event=interrupt)


@contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a state's database as a stranger would, and writes what was changed."""
    with closing(sqlite3.connect(path / "state.sqlite")) as db, db:
        yield db


def rewrite(path: Path, forge: Callable[[Any], None], table: str = "version") -> None:
    """Changes the newest document of a state, so that its checksum holds."""
    with database(path) as db:
        number, text = db.execute(f"SELECT max(number), document FROM {table}").fetchone()
        document = json.loads(text)
        forge(document)
        text = json.dumps(document)
        digest = hashlib.sha256(f"{number} {text}".encode()).digest()
        db.execute(f"UPDATE {table} SET document = ?, sha256 = ?", (text, digest))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state of two changes: versions 1 and 2 are there."""
    path = tmp_path / "state"
    learn(path, 0)
    learn(path, 6)
    return path


def test_a_state_is_a_database_of_two_versions_without_a_pickle(folder: Path):
    assert {path.name for path in folder.iterdir()} == NAMES
    assert Store(folder).numbers() == [1, 2]
    assert len(load(folder).ids_) == 12
    assert len(load(folder, generation=1).ids_) == 6
    with pytest.raises(InputError, match=r"version 7 .*got 1, 2"):
        load(folder, generation=7)


def test_the_same_changes_give_the_same_content_in_files_and_in_memory(
    folder: Path, tmp_path: Path
):
    learn(tmp_path / "other", 0)
    learn(tmp_path / "other", 6)
    assert contents(tmp_path / "other") == contents(folder)
    clf = ContinualNodeClassifier(device="cpu", **GIVEN)
    for start in (0, 6):
        clf._state = advance(clf._now(), change(start)(clf._now()), CPU)
    assert stored(clf) == stored(load(folder))


def test_a_version_writes_what_is_new_and_what_nobody_needs_goes(tmp_path: Path):
    clf = quick("finetune", feature_scaling="none")
    clf.learn(list(range(1000)), torch.rand(1000, 1500), labels={0: 0, 1: 1})
    clf.save(tmp_path / "state")

    def large() -> list[int]:  # blocks of features
        with database(tmp_path / "state") as db:
            query = "SELECT length(data) FROM block WHERE length(data) % 6000 = 0 ORDER BY 1"
            return [row[0] for row in db.execute(query) if row[0] in {6000, 12_000} or row[0] > 1e6]

    assert large() == [6_000_000]
    clf.learn([1000], torch.rand(1, 1500)).save(tmp_path / "state")
    assert large() == [6000, 6_000_000]  # one row more
    clf.update([0, 7], torch.rand(2, 1500)).save(tmp_path / "state")
    assert large() == [6000, 12_000, 6_000_000]  # two rows in place of others
    before = clf._now().graph.features
    assert torch.equal(load(tmp_path / "state")._now().graph.features, before)
    clf.update(list(range(100)), torch.rand(100, 1500)).save(tmp_path / "state")
    assert large() == [6000, 12_000, 6_000_000, 6_006_000]  # both versions
    clf.learn([1001, 1002], torch.rand(2, 1500)).save(tmp_path / "state")
    assert large() == [12_000, 6_006_000]
    assert torch.equal(load(tmp_path / "state")._now().graph.features, clf._now().graph.features)


def test_many_small_changes_grow_a_folder_by_what_came(tmp_path: Path):
    clf = quick("finetune", settings={"epochs": 1}).learn(
        [0, 1], torch.eye(2), [(0, 1)], ["u", "v"]
    )
    sizes = []
    for at in range(2, 202, 2):
        clf.learn([at, at + 1], torch.ones(2, 2), [(at, at - 1), (at + 1, at)]).save(tmp_path / "s")
        sizes.append((tmp_path / "s" / "state.sqlite").stat().st_size)
    assert sizes[-1] - sizes[49] < 2 * (sizes[49] - sizes[9])
    assert sizes[-1] < 1_000_000
    assert len(load(tmp_path / "s").ids_) == 202
    assert {path.name for path in (tmp_path / "s").iterdir()} == NAMES


def test_states_go_on_from_where_they_were_saved_whatever_happens_between(tmp_path: Path):
    clf = quick("finetune", settings={"epochs": 1}).learn(["a", "b"], torch.eye(2))
    clf.save(tmp_path / "one").learn(["c"], torch.ones(1, 2), [("a", "c")])
    clf.save(tmp_path / "two").learn(["d"], torch.zeros(1, 2), [("d", "c")], {"a": "u", "b": "v"})
    clf.save(tmp_path / "two").remove(ids=["b"]).learn(["b"], torch.ones(1, 2))
    clf.save(tmp_path / "two").update(["c"], torch.zeros(1, 2)).save(tmp_path / "two")
    again = load(tmp_path / "two")
    assert stored(again) == stored(clf)
    assert again.ids_ == ["a", "c", "d", "b"]
    both = [c.learn(["e"], torch.ones(1, 2), [("e", "b")]) for c in (clf, again)]
    assert stored(both[0].save(tmp_path / "two")) == stored(both[1])
    with pytest.raises(InputError, match=r"at version 3.*got version 4"):
        both[1].save(tmp_path / "two")
    assert stored(load(tmp_path / "two")) == stored(clf)
    assert load(tmp_path / "one").ids_ == ["a", "b"]


def test_a_version_of_the_same_number_but_other_content_is_not_gone_on_from(folder: Path):
    first, other = load(folder), folder.with_name("other")
    shutil.copytree(folder, other)
    learn(folder, 12)
    second = load(folder)
    shutil.rmtree(folder)
    shutil.copytree(other, folder)
    first.learn(["x"], [[1.0, 1.0]]).save(folder)
    with pytest.raises(InputError, match=r"at version 3.*got another version 3"):
        second.learn(["y"], [[1.0, 1.0]]).save(folder)


def test_a_change_of_any_size_is_noted_and_learned(tmp_path: Path):
    ids = [str(uuid.UUID(int=at)) for at in range(30_000)]  # over a megabyte of names

    def large(state: State) -> Change:
        x, edges = torch.ones(len(ids), 1), list(pairwise(ids))
        return make_change(
            "learn", columns=None, ids=ids, x=x, edges=edges, labels={ids[0]: "u", ids[1]: "v"}
        )

    with pytest.raises(KeyboardInterrupt):
        learn_into(tmp_path / "state", large, given=GIVEN, device=CPU, on_event=interrupt)
    state, _ = resume(tmp_path / "state", device=CPU)
    assert state.graph.names.take() == ids
    assert state.graph.num_edges == len(ids) - 1


# --- what may not be lost -------------------------------------------------------------------


def test_save_refuses_a_folder_that_has_moved_on(folder: Path):
    first, second = load(folder), load(folder)
    first.learn(["a"], [[1.0, 1.0]]).save(folder)
    second.learn(["b"], [[1.0, 1.0]])
    with pytest.raises(InputError, match=r"at version 2.*got version 3"):
        second.save(folder)
    with pytest.raises(InputError, match="hold no state yet"):
        quick().save(folder)
    assert load(folder).ids_[-1] == "a"


def test_a_pending_change_survives_python_and_can_be_discarded(folder: Path):
    leave_pending(folder)
    before = contents(folder)
    clf = load(folder)
    for use in (lambda: clf.learn(["a"], [[1.0, 1.0]]).save(folder), lambda: learn(folder, 18)):
        with pytest.raises(InputError, match=r"unfinished change.*--discard"):
            use()
    assert contents(folder) == before
    shutil.copytree(folder, folder.with_name("copy"))
    assert "is learned: version 3" in resume(folder, device=CPU)[1]
    assert "Nothing was unfinished" in resume(folder, device=CPU)[1]
    told = resume(folder.with_name("copy"), device=CPU, discard=True)[1]
    assert told == "The unfinished change is discarded: version 2 is current."
    learn(folder.with_name("copy"), 12)
    assert contents(folder.with_name("copy")) == contents(folder)


def test_folder_of_something_else_is_left_alone(tmp_path: Path):
    (tmp_path / "note.txt").write_text("mine")
    for use in (lambda: learn(tmp_path, 0), lambda: quick().save(tmp_path)):
        with pytest.raises(InputError, match="holds other files"):
            use()
    with pytest.raises(InputError, match="to hold the state"):
        load(tmp_path)
    with pytest.raises(InputError, match="to be a folder"):
        learn(tmp_path / "note.txt", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_wrong_first_change_creates_nothing(tmp_path: Path):
    def wrong(state: State) -> Change:
        return make_change("learn", columns=None, ids=[], edges=[("a", "b")])

    with pytest.raises(InputError, match="known nodes"):
        learn_into(tmp_path / "state", wrong, given=GIVEN, device=CPU)
    assert not (tmp_path / "state").exists()


INCOMPLETE: dict[str, tuple[Callable[[Path], object], str]] = {
    "log alone": (lambda f: (f / "state.sqlite").rename(f / "state.sqlite-wal"), "the log alone"),
    "empty": (lambda f: (f / "state.sqlite").write_bytes(b""), "damage"),
    "half": (lambda f: os.truncate(f / "state.sqlite", 9000), "damage|read"),
    "header": (lambda f: (f / "state.sqlite").write_bytes(b"SQLite format 4\0" * 999), "damage"),
    "other files": (lambda f: (f / "state.sqlite").rename(f / "renamed"), "other files|hold the"),
    "0.1.0": (
        lambda f: ((f / "state.sqlite").unlink(), (f / "generations").mkdir()),
        "evergraph convert",
    ),
    "another database": (
        lambda f: (
            (f / "state.sqlite").unlink(),
            sqlite3.connect(f / "state.sqlite").execute("CREATE TABLE mine (x)"),
        ),
        "damage in the header",
    ),
}


@pytest.mark.parametrize("case", INCOMPLETE)
def test_an_incomplete_state_is_never_started_over(folder: Path, case: str):
    spoil, words = INCOMPLETE[case]
    spoil(folder)
    there = {path.name: path.stat().st_size for path in folder.iterdir()}
    uses = (load, lambda f: learn(f, 12), quick().save, lambda f: resume(f, device=CPU))
    for use in uses:
        with pytest.raises(InputError, match=rf"{words}|whole version"):
            use(folder)
    assert {path.name: path.stat().st_size for path in folder.iterdir()} == there


def test_state_of_a_later_release_is_left_alone(folder: Path):
    with database(folder) as db:
        db.execute("PRAGMA user_version=5")
    for use in (load, lambda f: learn(f, 12), lambda f: resume(f, device=CPU)):
        with pytest.raises(InputError, match=r"version 4 .*got 5.*newer"):
            use(folder)


# --- settings -------------------------------------------------------------------------------


def test_other_settings_are_refused_by_name(folder: Path):
    for given, words in (
        ({"method": "gem"}, "method"),
        ({"settings": {"epochs": 2}}, "epochs"),
        ({"seed": 1, "buffer_size": 7}, "seed, buffer_size"),
    ):
        with pytest.raises(InputError, match=f"another {words}\\)"):
            learn_into(folder, change(12), given=given, device=CPU)
    with pytest.raises(InputError, match="did you mean 'epochs'"):
        learn_into(folder, change(12), given={"settings": {"epoch": 1}}, device=CPU)
    same = {"settings": {"epochs": 1}, "seed": 0, "buffer_size": 100}  # the default, resolved
    learn_into(folder, change(12), given=same, device=CPU)


def test_a_state_keeps_its_settings_when_defaults_change(folder: Path):
    def as_written_by_another_release(document: Any) -> None:
        document["config"]["training"]["lr"] = 0.125  # once the default
        del document["config"]["model"]["dropout"]  # not known yet

    rewrite(folder, as_written_by_another_release)
    state = learn_into(folder, change(12), given=GIVEN, device=CPU)
    assert state.config.training.lr == 0.125
    assert load_state(folder)[0].config.training.lr == 0.125
    with pytest.raises(InputError, match=r"another lr\)"):
        learn_into(folder, change(18), given={"settings": {"lr": 0.005}}, device=CPU)


# --- damage ---------------------------------------------------------------------------------


def test_damage_anywhere_is_a_sentence_or_harmless(folder: Path):
    path, expected = folder / "state.sqlite", stored(load(folder))
    good, refused = path.read_bytes(), 0
    flipped = range(0, len(good), len(good) // 150)
    spoilt = [good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :] for at in flipped]
    cut = [good[:end] for end in range(0, len(good), len(good) // 20)]
    for content in (*spoilt, *cut):
        path.write_bytes(content)
        try:
            assert stored(load(folder)) == expected
        except InputError as error:
            assert "\n" not in str(error)  # noqa: PT017
            refused += 1
    assert refused > 30


def damage_current(db: sqlite3.Connection) -> None:
    """Spoils a block that the current version alone needs: the end of its names."""
    document = db.execute("SELECT document FROM version WHERE number = 2").fetchone()[0]
    base = json.loads(document)["ids"]["text"]["$array"]["base"]
    where = "WHERE base = ? AND start > 0"
    db.execute(f"UPDATE block SET data = zeroblob(length(data)) {where}", (base,))


def test_damage_in_the_current_version_names_the_remedy(folder: Path):
    with database(folder) as db:
        damage_current(db)
    with pytest.raises(
        InputError, match=r"damage in a block.*version 1 is still.*evergraph resume"
    ):
        load(folder)
    assert len(load(folder, generation=1).ids_) == 6
    with pytest.raises(InputError, match="damage"):
        learn(folder, 12)
    state, told = resume(folder, device=CPU)
    assert told.startswith("Version 1 is current again")
    assert state.graph.num_nodes == 6
    learn(folder, 6)
    assert len(load(folder).ids_) == 12


def test_a_change_to_a_damaged_version_is_not_lost_in_silence(folder: Path):
    leave_pending(folder)
    with database(folder) as db:
        damage_current(db)
    assert "A change to the damaged one is lost" in resume(folder, device=CPU)[1]


def test_all_damaged_is_a_sentence(folder: Path):
    with database(folder) as db:
        db.execute("UPDATE version SET document = '[]'")
    for use in (load, lambda f: resume(f, device=CPU)):
        with pytest.raises(InputError, match="restore a copy"):
            use(folder)


def test_damaged_pending_change_is_a_sentence_and_can_be_discarded(folder: Path):
    leave_pending(folder)
    with database(folder) as db:
        db.execute("UPDATE pending SET document = substr(document, 2)")
    with pytest.raises(InputError, match=r"whole unfinished change.*--discard"):
        resume(folder, device=CPU)
    assert len(load(folder).ids_) == 12
    assert "discarded" in resume(folder, device=CPU, discard=True)[1]
    learn(folder, 12)


@pytest.mark.parametrize("name", ["state.sqlite", "state.sqlite-wal", "lock.sqlite"])
def test_links_and_pipes_are_not_opened(folder: Path, tmp_path: Path, name: str):
    path, elsewhere = folder / name, tmp_path / "elsewhere"
    if path.exists():
        path.rename(elsewhere)
    elsewhere.touch()
    before = elsewhere.read_bytes()
    path.symlink_to(elsewhere)
    for make in (lambda: None, lambda: (path.unlink(), os.mkfifo(path))):  # a pipe would wait
        make()
        with pytest.raises(InputError, match="regular file"):
            learn(folder, 12)
    assert elsewhere.read_bytes() == before


SCHEMAS = (
    "CREATE TRIGGER t AFTER INSERT ON version BEGIN DELETE FROM version; END",
    "CREATE TABLE other (x)",
    "CREATE INDEX i ON version (written)",
    "DROP TABLE pending",
    "ALTER TABLE block ADD COLUMN more INT",
)


@pytest.mark.parametrize("statement", SCHEMAS)
def test_a_database_with_anything_else_in_it_is_not_used(folder: Path, statement: str):
    with database(folder) as db:
        db.execute(statement)
    for use in (load, lambda f: learn(f, 12)):
        with pytest.raises(InputError, match="damage in the schema"):
            use(folder)


FORGED: dict[str, Callable[[Any], object]] = {
    "huge array": lambda d: d["features"]["dense"]["$array"].update(shape=[10**9, 10**6]),
    "larger array": lambda d: d["features"]["dense"]["$array"].update(shape=[13, 2]),
    "negative": lambda d: d["features"]["dense"]["$array"].update(shape=[-12, -2]),
    "kind": lambda d: d["features"]["dense"]["$array"].update(dtype="int32"),
    "no kind": lambda d: d["features"]["dense"]["$array"].update(dtype="object"),
    "block missing": lambda d: d["shown"]["$array"].update(base="7-7"),
    "no base": lambda d: d["shown"]["$array"].update(base=None),
    "not grown": lambda d: d["shown"]["$array"].update(shape=[0], base="00" * 32),
    "room": lambda d: d["features"]["dense"]["$array"].update(shape=[0, 10**15]),
    "no array": lambda d: d.update(shown=3),
    "rows": lambda d: d.update(edges=d["features"]["dense"]),
    "names": lambda d: d["ids"].update(ends=d["ids"]["keys"]),
    "keys": lambda d: d["ids"].update(keys=d["edges"]),
    "classes": lambda d: d.update(classes=["u", "u"]),
    "columns": lambda d: d.update(columns=["f"]),
    "labels": lambda d: d.update(held_out=d["edges"]),
    "patch": lambda d: d.update(patch={"rows": d["edits"]["added"], "x": d["edits"]["added"]}),
    "history": lambda d: d.update(history=d["ids"]["text"]),
    "settings": lambda d: d["config"]["settings"].update(buffer_size=-1),
    "method": lambda d: d["config"]["parameters"].update(method="os"),
    "network": lambda d: d["config"]["model"].update(channels=10**9),
    "nesting": lambda d: d.update(deep=json.loads("[" * 900 + "]" * 900)),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_documents_are_refused_before_memory_is_taken(folder: Path, case: str):
    rewrite(folder, FORGED[case])
    with pytest.raises(InputError, match="to be whole"):
        load(folder)


@pytest.mark.parametrize("learned", [True, False])
def test_a_forged_projection_is_refused_on_any_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learned: bool
):
    clf = ContinualNodeClassifier("analytic", settings={"projection": 4}, device="cpu")
    labels = ["u", "v"] if learned else None
    clf.learn(["a", "b"], torch.eye(2), labels=labels).save(tmp_path / "state")
    rewrite(tmp_path / "state", lambda d: d["config"]["settings"].update(projection=10**8))
    # What was learned does not belong to such a width, however much would fit. Before that it is
    # the memory alone that says no.
    memory = 1 << 60 if learned else 1 << 30
    monkeypatch.setattr("evergraph.estimator.content.physical_memory", lambda: memory)
    with pytest.raises(InputError, match="to be whole"):
        load(tmp_path / "state")


# --- disk full, read-only, torn writes --------------------------------------------------------


def test_a_limit_on_the_size_of_files_at_any_point_keeps_the_last_version(
    folder: Path, tmp_path: Path
):
    # What a full disk or a quota does: the kernel refuses to write beyond a size.
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = contents(folder)
    shutil.copytree(folder, tmp_path / "whole")
    learn(tmp_path / "whole", 12)
    after, answers = contents(tmp_path / "whole"), set()
    for limit in (0, 600, *range(8_000, 250_000, 16_000)):
        copy = tmp_path / f"copy-{limit}"
        shutil.copytree(folder, copy)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))  # Python ignores the signal
        try:
            assert len(load(copy).ids_) == 12  # reading needs no room
            learn(copy, 12)
            answer = "learned"
        except InputError as error:
            answer = str(error).split(" '")[0]
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        answers.add(answer)
        if answer != "learned":
            resume(copy, device=CPU)  # if the disk was too full to take the change back
            if contents(copy) != after:
                assert contents(copy) == before
                learn(copy, 12)
        assert contents(copy) == after
    assert answers == {"learned", "Expected to write"}


def test_a_read_only_place_is_read_and_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    before = (folder / "state.sqlite").read_bytes()
    assert len(load(folder).ids_) == 12
    with pytest.raises(InputError, match="read-only"):
        learn(folder, 12)
    assert (folder / "state.sqlite").read_bytes() == before


def test_folder_that_cannot_be_created_is_a_sentence():
    with pytest.raises(InputError, match="create the folder"):
        learn(Path("/proc/nowhere/state"), 0)


def test_a_log_that_is_cut_anywhere_holds_whole_versions(folder: Path, tmp_path: Path):
    """What a power failure leaves: any beginning of what was to be written."""
    keep = sqlite3.connect(folder / "state.sqlite")  # so that the log stays
    keep.execute("SELECT * FROM version").fetchall()
    before = contents(folder)
    learn(folder, 12)
    after, log = contents(folder), (folder / "state.sqlite-wal").read_bytes()
    base, seen = (folder / "state.sqlite").read_bytes(), set()
    keep.close()
    copy = tmp_path / "copy"
    for cut in (*range(0, len(log), len(log) // 40), len(log)):
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        (copy / "state.sqlite").write_bytes(base)
        (copy / "state.sqlite-wal").write_bytes(log[:cut])
        pending = Store(copy).has_pending
        assert Store(copy).numbers() in ([1, 2], [2, 3])
        seen.add((Store(copy).numbers()[-1], pending))
        resume(copy, device=CPU)
        if not pending and contents(copy) == before:
            learn(copy, 12)
        assert contents(copy) == after
    assert seen == {(2, False), (2, True), (3, False)}


# --- writers and readers --------------------------------------------------------------------


def test_second_writer_is_refused_with_the_holder_named(folder: Path):
    before = contents(folder)
    with Store(folder).writing():
        with pytest.raises(InputError, match=rf"process {os.getpid()} on .*since"):
            learn(folder, 12)
        with pytest.raises(InputError, match="another writer"):
            load(folder).save(folder)
        assert len(load(folder).ids_) == 12  # a reader is not held up
    assert contents(folder) == before
    (folder / "lock.sqlite").write_bytes(b"something else entirely" * 40)
    with pytest.raises(InputError, match="not a database"):
        learn(folder, 12)
    (folder / "lock.sqlite").unlink()
    (folder / "writer.json").write_text("{")
    (folder / ".x.new").mkdir()  # nothing of ours, so that nobody minds
    learn(folder, 12)


def edge(at: int) -> Callable[[State], Change]:
    pairs = [("n0", f"n{2 + at % 4}")]
    if at // 4 % 2:
        return lambda state: make_change("remove", columns=None, removed_edges=pairs)
    return lambda state: make_change("learn", columns=None, edges=pairs)


def read_many(path: Path, stop: Any, answers: Any) -> None:
    torch.set_num_threads(1)
    seen, failures = set(), []
    while not stop.is_set():
        try:
            state, number = load_state(path)
        except InputError as error:
            failures.append(str(error))
            break
        # Whole: its history is as long as its version says, its graph as the history says.
        edges = state.graph.num_edges
        if len(state.history) != number or state.history[-1].num_edges != edges:
            failures.append(f"version {number} is mixed")
        seen.add(number)
    answers.put((sorted(seen), failures))


def test_ten_readers_during_twenty_updates_see_whole_versions(folder: Path):
    around = multiprocessing.get_context("fork")
    stop, answers = around.Event(), around.Queue()
    readers = [around.Process(target=read_many, args=(folder, stop, answers)) for _ in range(10)]
    for reader in readers:
        reader.start()
    time.sleep(0.2)
    for at in range(20):
        learn_into(folder, edge(at), given=GIVEN, device=CPU)
    stop.set()
    found = [answers.get(timeout=60) for _ in readers]
    for reader in readers:
        reader.join()
    assert [failures for _, failures in found if failures] == []
    assert Store(folder).numbers() == [21, 22]
    assert len({number for seen, _ in found for number in seen}) > 3


def test_two_writers_take_turns(folder: Path):
    def write(start: int) -> int:
        done = 0
        while done < 5:
            try:
                learn(folder, start + 6 * done)
                done += 1
            except InputError as error:
                assert "another writer" in str(error)  # noqa: PT017
                time.sleep(0.01)
        return done

    with ThreadPoolExecutor() as pool:
        assert list(pool.map(write, (100, 200))) == [5, 5]
    assert len(load(folder).ids_) == 12 + 2 * 30
    assert Store(folder).numbers() == [11, 12]


def test_state_whose_edges_take_eight_bytes_goes_on(tmp_path: Path):
    first, second = learn(tmp_path / "new", 0), learn(tmp_path / "new", 6)
    edges = Grown.of(first.graph.edges.array.astype(np.int64))
    old = ContinualNodeClassifier("replay", settings=SMALL, device="cpu")
    old._state = replace(first, graph=replace(first.graph, edges=edges), saved=None)
    old.save(tmp_path / "old")
    grown = learn(tmp_path / "old", 6)
    there, _ = load_state(tmp_path / "old")
    assert there.graph.edges.array.dtype == np.int64
    assert there.graph.edges.array.tolist() == second.graph.edges.array.tolist()
    assert grown.logits(CPU).tolist() == second.logits(CPU).tolist()
