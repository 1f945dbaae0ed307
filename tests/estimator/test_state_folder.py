"""State folders: whole generations, whatever breaks; one writer, any number of readers."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from batches import contents, quick
from evergraph.errors import InputError
from evergraph.estimator import ContinualNodeClassifier
from evergraph.estimator.change import Change, make_change
from evergraph.estimator.folder import StateFolder
from evergraph.estimator.lock import locked
from evergraph.estimator.state import State
from evergraph.estimator.transaction import learn_into, resume

CPU = torch.device("cpu")
GIVEN = {"method": "replay", "settings": {"epochs": 1, "channels": 2, "heads": 1}}


def change(start: int, names: tuple[str, str] = ("u", "v")) -> Callable[[State], Change]:
    """Makes a change of six nodes in a row, half of them labelled."""

    def make(state: State) -> Change:
        ids = [f"n{start + at}" for at in range(6)]
        x = [[float(at % 2), 1.0] for at in range(6)]
        edges = list(pairwise(ids))
        labels = [names[at % 2] if at < 4 else None for at in range(6)]
        return make_change("learn", columns=None, ids=ids, x=x, edges=edges, labels=labels)

    return make


def learn(path: Path, start: int, **named: Any) -> State:
    return learn_into(path, change(start), given=GIVEN, device=CPU, **named)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A state of two changes: generations 1 and 2 are there."""
    path = tmp_path / "state"
    learn(path, 0)
    learn(path, 6)
    return path


def test_a_state_folder_holds_no_pickle_and_the_last_two_generations(folder: Path):
    assert sorted(path.name for path in (folder / "generations").iterdir()) == [
        "00000001",
        "00000002",
    ]
    found = {path.name for path in folder.rglob("*") if path.is_file()}
    assert found == {
        "lock",
        "current.json",
        "manifest.json",
        "config.json",
        "names.json",
        "evaluator.json",
        "graph.safetensors",
        "learner.safetensors",
    }
    assert json.loads((folder / "current.json").read_text())["generation"] == 2
    manifest = json.loads((folder / "generations/00000002/manifest.json").read_text())
    assert manifest["schema_version"] == 1


def test_earlier_generation_is_readable(folder: Path):
    assert len(ContinualNodeClassifier.load(folder).ids_) == 12
    assert len(ContinualNodeClassifier.load(folder, generation=1).ids_) == 6
    with pytest.raises(InputError, match=r"generation 7 .*got 1, 2"):
        ContinualNodeClassifier.load(folder, generation=7)


def test_the_same_changes_give_the_same_bytes(folder: Path, tmp_path: Path):
    other = tmp_path / "other"
    learn(other, 0)
    learn(other, 6)
    assert contents(other) == contents(folder)


def test_the_library_and_the_folder_agree(folder: Path):
    clf = ContinualNodeClassifier(device="cpu", **GIVEN)
    for start in (0, 6):
        clf._apply(change(start)(clf._now()))
    assert clf._now().to_files() == StateFolder(folder).load()[0].to_files()


def test_save_refuses_a_folder_that_has_moved_on(folder: Path):
    first, second = (ContinualNodeClassifier.load(folder) for _ in range(2))
    first.learn(["a"], [[1.0, 1.0]]).save(folder)
    second.learn(["b"], [[1.0, 1.0]])
    with pytest.raises(InputError, match=r"at generation 2.*got 3"):
        second.save(folder)
    with pytest.raises(InputError, match="at generation None"):
        quick().save(folder)
    assert ContinualNodeClassifier.load(folder).ids_[-1] == "a"


def test_folder_of_something_else_is_left_alone(tmp_path: Path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="holds other files"):
        learn(tmp_path, 0)
    with pytest.raises(InputError, match="to hold the state"):
        ContinualNodeClassifier.load(tmp_path)
    with pytest.raises(InputError, match="to be a folder"):
        learn(tmp_path / "note.txt", 0)
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_wrong_first_change_creates_nothing(tmp_path: Path):
    def wrong(state: State) -> Change:
        return make_change("learn", columns=None, ids=[], edges=[("a", "b")])

    with pytest.raises(InputError, match="known nodes"):
        learn_into(tmp_path / "state", wrong, given=GIVEN, device=CPU)
    assert not (tmp_path / "state").exists()


def test_other_settings_are_refused(folder: Path):
    for given, words in (
        ({"method": "gem"}, "method"),
        ({"settings": {"epochs": 2}}, "epochs"),
        ({"seed": 1}, "seed"),
    ):
        with pytest.raises(InputError, match=f"another {words}"):
            learn_into(folder, change(12), given=given, device=CPU)
    learn_into(folder, change(12), given={"settings": {"epochs": 1}}, device=CPU)


# --- damage ---------------------------------------------------------------------------------


def flips(path: Path, count: int) -> Iterator[bytes]:
    """Yields a file's content with a bit flipped, at places spread over all of it."""
    good = path.read_bytes()
    for at in sorted({len(good) * part // count for part in range(count)} | {len(good) - 1}):
        yield good[:at] + bytes([good[at] ^ (1 << at % 8)]) + good[at + 1 :]


NAMES = (
    "manifest.json",
    "config.json",
    "names.json",
    "evaluator.json",
    "graph.safetensors",
    "learner.safetensors",
)


@pytest.mark.parametrize("name", NAMES)
def test_damage_anywhere_is_a_sentence_and_the_last_generation_stays(folder: Path, name: str):
    path = folder / "generations/00000002" / name
    good = path.read_bytes()
    cuts = [good[: len(good) * part // 8] for part in range(8)]
    for bad in [*flips(path, 24), *cuts, good + b"x", b""]:
        path.write_bytes(bad)
        with pytest.raises(InputError, match=r"generation 2 .*damage in .*generation 1 is still"):
            ContinualNodeClassifier.load(folder)
        assert len(ContinualNodeClassifier.load(folder, generation=1).ids_) == 6
        with pytest.raises(InputError, match="damage"):
            learn(folder, 12)
    path.unlink()
    with pytest.raises(InputError, match="damage"):
        ContinualNodeClassifier.load(folder)
    path.write_bytes(good)
    assert len(ContinualNodeClassifier.load(folder).ids_) == 12


def test_damaged_pointer_is_a_sentence_or_harmless(folder: Path):
    path = folder / "current.json"
    good = path.read_bytes()
    for bad in [*flips(path, len(good)), *(good[:cut] for cut in range(len(good)))]:
        path.write_bytes(bad)
        with pytest.raises(InputError, match=r"damage|name a generation|generation \d"):
            ContinualNodeClassifier.load(folder)
    path.unlink()
    with pytest.raises(InputError, match="evergraph resume"):
        ContinualNodeClassifier.load(folder)
    assert "Generation 2" in resume(folder, device=CPU)[1]
    assert len(ContinualNodeClassifier.load(folder).ids_) == 12


def test_damaged_note_is_a_sentence_and_the_state_is_readable(folder: Path):
    with pytest.raises(KeyboardInterrupt):  # a kill leaves the note
        learn(folder, 12, on_event=interrupt)
    path = folder / "pending.safetensors"
    for bad in [*flips(path, 40), path.read_bytes()[:-1]]:
        good, _ = path.read_bytes(), path.write_bytes(bad)
        with pytest.raises(InputError, match="whole change"):
            resume(folder, device=CPU)
        assert len(ContinualNodeClassifier.load(folder).ids_) == 12
        path.write_bytes(good)
    assert "is learned: generation 3" in resume(folder, device=CPU)[1]
    assert not path.exists()


def interrupt(event: object) -> None:
    raise KeyboardInterrupt


def test_state_of_a_later_release_is_left_alone(folder: Path):
    path = folder / "current.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    before = contents(folder), path.read_bytes()
    for use in (ContinualNodeClassifier.load, lambda path: resume(path, device=CPU)):
        with pytest.raises(InputError, match=r"version 1 .*got 2.*newer"):
            use(folder)
    with pytest.raises(InputError, match="version 1"):
        learn(folder, 12)
    assert (contents(folder), path.read_bytes()) == before


def test_resume_goes_back_to_the_last_whole_generation(folder: Path):
    (folder / "generations/00000002/names.json").write_bytes(b"{}")
    state, told = resume(folder, device=CPU)
    assert told.startswith("Generation 1 is current again")
    assert state.graph.num_nodes == 6
    learn(folder, 6)
    assert len(ContinualNodeClassifier.load(folder).ids_) == 12


def test_all_damaged_is_a_sentence(folder: Path):
    for path in folder.glob("generations/*/manifest.json"):
        path.write_bytes(b"[]")
    with pytest.raises(InputError, match="restore a copy"):
        resume(folder, device=CPU)


def test_links_and_pipes_are_not_followed(folder: Path, tmp_path: Path):
    path = folder / "generations/00000002/names.json"
    shutil.copy(path, tmp_path / "elsewhere.json")
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere.json")
    with pytest.raises(InputError, match=r"damage in names\.json"):
        ContinualNodeClassifier.load(folder)
    path.unlink()
    os.mkfifo(path)  # reading it would wait for ever
    with pytest.raises(InputError, match=r"damage in names\.json"):
        ContinualNodeClassifier.load(folder)
    inner = folder / "generations/00000002"
    shutil.move(inner, tmp_path / "moved")
    inner.symlink_to(tmp_path / "moved")
    with pytest.raises(InputError, match="damage in"):
        ContinualNodeClassifier.load(folder)


def test_a_writer_removes_nothing_through_a_link(folder: Path, tmp_path: Path):
    home = tmp_path / "home"
    shutil.move(folder / "generations", home)
    for name in (".ssh", ".00000009.old"):
        (home / name).mkdir()
    (folder / "generations").symlink_to(home)
    with pytest.raises(InputError, match="got a link"):
        learn(folder, 12)
    assert {".ssh", ".00000009.old"} <= {path.name for path in home.iterdir()}
    (folder / "generations").unlink()
    shutil.move(home, folder / "generations")
    learn(folder, 12)
    there = {path.name for path in (folder / "generations").iterdir()}
    assert there == {".ssh", "00000002", "00000003"}  # our own leftover alone is removed


# --- disk full, read-only -------------------------------------------------------------------


class Faults:
    """Lets the n-th operation on files fail, after half of a write."""

    def __init__(self, fail_at: int, code: int) -> None:
        self.fail_at, self.code, self.count = fail_at, code, 0

    def step(self) -> bool:
        self.count += 1
        return self.count - 1 == self.fail_at

    def write_synced(self, path: Path, content: bytes) -> None:
        if self.step():
            path.write_bytes(content[: len(content) // 2])
            raise OSError(self.code, os.strerror(self.code))
        path.write_bytes(content)

    def sync_folder(self, path: Path) -> None:
        if self.step():
            raise OSError(self.code, os.strerror(self.code))

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for module in ("evergraph.files", "evergraph.estimator.generations"):
            patch.setattr(f"{module}.write_synced", self.write_synced)
            patch.setattr(f"{module}.sync_folder", self.sync_folder)
        patch.setattr("evergraph.estimator.pending.sync_folder", self.sync_folder)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_full_or_read_only_disk_at_every_operation_keeps_the_last_generation(
    folder: Path, tmp_path: Path, code: int
):
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole)
    expected = learn(whole, 12).to_files()
    before = StateFolder(folder).load()[0].to_files()
    for fail_at in range(100):
        copy = tmp_path / f"copy-{fail_at}"
        shutil.copytree(folder, copy)
        faults = Faults(fail_at, code)
        with pytest.MonkeyPatch.context() as patch:
            faults.install(patch)
            try:
                learn(copy, 12)
            except InputError as error:
                assert os.strerror(code) in str(error)  # noqa: PT017
        if faults.count <= fail_at:
            break
        state, number = StateFolder(copy).load()
        assert state.to_files() == (before if number == 2 else expected)
        if number == 2:
            there = sorted(path.name for path in (copy / "generations").iterdir())
            assert there == ["00000001", "00000002"]  # nothing of what failed is left
            resume(copy, device=CPU)
            if StateFolder(copy).generation() == 2:
                learn(copy, 12)
        assert StateFolder(copy).load()[0].to_files() == expected
        shutil.rmtree(copy)
    assert fail_at > 10  # every file, both folders, the note and the switch


def test_real_limit_on_file_size_is_a_sentence(folder: Path):
    # What a quota does: the kernel refuses to write beyond a size.
    resource = pytest.importorskip("resource")
    before = StateFolder(folder).load()[0].to_files()

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
        try:
            learn(folder, 12)
        except InputError as error:
            os._exit(7 if "File too large" in str(error) else 8)
        os._exit(9)

    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limited()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    assert StateFolder(folder).load()[0].to_files() == before


def test_folder_that_cannot_be_created_is_a_sentence(tmp_path: Path):
    with pytest.raises(InputError, match="create the folder"):
        learn(Path("/proc/nowhere/state"), 0)


# --- writers and readers --------------------------------------------------------------------


def test_second_writer_is_refused_with_the_holder_named(folder: Path):
    before = contents(folder)
    with locked(folder):
        with pytest.raises(InputError, match=rf"process {os.getpid()} on .*since"):
            learn(folder, 12)
        with pytest.raises(InputError, match="another writer"):
            ContinualNodeClassifier.load(folder).save(folder)
        assert len(ContinualNodeClassifier.load(folder).ids_) == 12  # a reader is not held up
    assert contents(folder) == before
    learn(folder, 12)


def write_many(path: Path, count: int) -> None:
    for at in range(count):
        learn_into(path, edge(at), given=GIVEN, device=CPU)


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
            state, number = StateFolder(path).load()
        except InputError as error:
            failures.append(str(error))
            break
        # Whole: its history is as long as its generation says, its graph as the history says.
        entry = state.history[-1]
        edges = state.graph.adjacency.num_edges // 2
        if len(state.history) != number or entry.num_edges != edges:
            failures.append(f"generation {number} is mixed")
        seen.add(number)
    answers.put((sorted(seen), failures))


def test_ten_readers_during_twenty_updates_see_whole_generations(folder: Path):
    around = multiprocessing.get_context("fork")
    stop, answers = around.Event(), around.Queue()
    readers = [around.Process(target=read_many, args=(folder, stop, answers)) for _ in range(10)]
    for reader in readers:
        reader.start()
    time.sleep(0.2)
    write_many(folder, 20)
    stop.set()
    found = [answers.get(timeout=60) for _ in readers]
    for reader in readers:
        reader.join()
    assert [failures for _, failures in found if failures] == []
    assert StateFolder(folder).generation() == 22
    assert len({number for seen, _ in found for number in seen}) > 3
