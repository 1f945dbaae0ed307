"""Fuzzing of everything that reads files from anyone: damaged and hostile input by the thousand.

    python scripts/fuzz.py all --cases 20000

A reader may answer or refuse in one sentence. Any other exception, a crash, more than two seconds
or a growth of more than a gigabyte is a failure; its input is kept in the folder of failures.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

SECONDS = 2.0
GROWTH = 1 << 30
#: Address space of a worker beyond what it has at its start: an allocation past it fails at once.
ROOM = 6 << 30

Reader = Callable[[Path], object]

#: Pieces that parsers stumble over.
TOKENS: dict[str, list[bytes]] = {
    "config": [
        b"&a ",
        b"*a",
        b"!!python/object:os.system ",
        b"<<: ",
        b"[" * 300,
        b"{" * 300,
        b"- ",
        b"!!binary x",
        b"1" * 5000,
        b"2001-99-99",
        b".nan",
        b".inf",
        b"? ",
        b"\x00",
        b"1:1:1:1",
        b"null",
        b"\xff",
        b"|\n",
        b"--- ",
        b"...",
        b"!!set {a}",
        b"1e999",
        b"0x",
        b"-1",
        b"99999999",
    ],
    "csv": [
        b",",
        b'"',
        b"\n",
        b"\r",
        b"nan",
        b"inf",
        b"1e400",
        b"\x00",
        b"\xff",
        b"id",
        b"," * 300,
        b"9" * 400,
        b"2020-01-01",
        b"true",
        b"'",
        b"=1+1",
        b"\xef\xbb\xbf",
        b"label",
        b"source",
    ],
    "json": [
        b"{",
        b"[" * 2000,
        b"null",
        b"-1",
        b"1e999",
        b"true",
        b'"',
        b"99999999999999999999",
        b"\\ud800",
        b"[]",
        b"{}",
        b"0.5",
        b'"\\u0000"',
        b"NaN",
        b"Infinity",
        b"18446744073709551615",
    ],
    "binary": [
        b"\x00" * 8,
        b"\xff" * 8,
        b"\xff\xff\xff\x7f",
        b"\x00\x00\x00\x80",
        b"PAR1",
        b"PK",
        b"\x93NUMPY",
        b"'descr'",
        b"|O",
        b"(99999999999,)",
        b"\x80\x04",
        b"F64",
        b"I64",
        b"[0,0]",
    ],
}


def mutate(content: bytes, rng: random.Random, tokens: list[bytes]) -> bytes:
    """Changes a few places: bits, bytes, lengths, pieces moved, doubled or cut, tokens put in."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        size, at = len(data), rng.randrange(len(data) + 1)
        kind = rng.randrange(8)
        if kind == 0 and at < size:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < size:
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 8, 64, size))]
        elif kind == 3:
            end = at + rng.choice((1, 4, 16, 64))
            data[at:at] = data[at:end] * rng.choice((1, 2, 50))
        elif kind == 4:
            token = rng.choice(tokens)
            data[at : at + rng.choice((0, len(token)))] = token
        elif kind == 5 and size >= 4:
            width = rng.choice((1, 2, 4, 8))
            value = rng.choice((0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1, size))
            piece = (value % (1 << 8 * width)).to_bytes(width, "little")
            data[at : at + width] = piece
        elif kind == 6 and size:
            other = rng.randrange(size)
            data[at : at + 8] = data[other : other + 8]
        elif kind == 7:
            digits = [i for i in range(size) if 48 <= data[i] <= 57]
            if digits:
                spot = rng.choice(digits)
                data[spot : spot + 1] = rng.choice((b"0", b"9", b"-1", b"99999999999", b"1e308"))
    return bytes(data)


class Target:
    """One reader: its good inputs, how they are spoilt, and how they are read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seeds = self.make_seeds()

    def make_seeds(self) -> list[tuple[str, bytes]]:
        """Returns names and contents of good files."""
        raise NotImplementedError

    def write(self, rng: random.Random) -> Path:
        """Writes one spoilt input."""
        name, content = rng.choice(self.seeds)
        path = self.folder / name
        path.write_bytes(mutate(content, rng, self.tokens(name)))
        return path

    def tokens(self, name: str) -> list[bytes]:
        """Returns pieces to put in."""
        return TOKENS["binary"]

    def read(self, path: Path) -> object:
        """Reads an input as a user's command would."""
        raise NotImplementedError


class ConfigTarget(Target):
    """``config.yaml`` of a run, and files of settings."""

    def make_seeds(self) -> list[tuple[str, bytes]]:
        from evergraph.config import Variant, resolve  # noqa: PLC0415

        methods = ("dslr", "replay:selector=mf", "rclg")
        texts = [
            resolve(Variant.parse_dataset("cora"), Variant.parse(m), 0).to_yaml() for m in methods
        ]
        return [("config.yaml", text.encode()) for text in [*texts, "beta: 0.1\ntau: [1, 2]\n"]]

    def tokens(self, name: str) -> list[bytes]:
        return TOKENS["config"]

    def read(self, path: Path) -> object:
        from evergraph.config import RunConfig  # noqa: PLC0415
        from evergraph.lab.cli.runs import SettingOptions  # noqa: PLC0415

        settings = SettingOptions(config=path)
        if "schema_version" in settings.file():
            complete = RunConfig.from_values(settings.file())
            return complete.hash, complete.to_yaml()
        return settings.shared()


class NpzTarget(Target):
    """A user's graph."""

    def make_seeds(self) -> list[tuple[str, bytes]]:
        from evergraph.stream.datasets import load_graph, write_plain  # noqa: PLC0415

        found = []
        for options in ({"nodes": 30, "classes": 3, "feature_dim": 4, "mean_degree": 3},):
            write_plain(load_graph("synthetic", None, options), self.folder / "g.npz")
            found.append(("graph.npz", (self.folder / "g.npz").read_bytes()))
        import numpy  # noqa: PLC0415

        x = numpy.eye(5, dtype=numpy.float32)
        edges = numpy.array([[0, 1], [1, 2]])
        numpy.savez(self.folder / "h.npz", x=x, edge_index=edges, y=numpy.arange(5) % 2)
        found.append(("graph.npz", (self.folder / "h.npz").read_bytes()))
        return found

    def read(self, path: Path) -> object:
        from evergraph.stream.datasets import load_graph  # noqa: PLC0415

        return load_graph(str(path)).fingerprint


class CsvTarget(Target):
    """Tables of nodes and edges."""

    suffix = ".csv"

    def make_seeds(self) -> list[tuple[str, bytes]]:
        from evergraph.estimator.tables import write_table  # noqa: PLC0415

        columns: list[dict[str, Any]] = [
            {"id": ["a", "b", "c"], "f": [0.5, 1.0, 2.0], "g": [1, 2, 3], "label": ["u", "v", "u"]},
            {"source": ["a", "b"] * 20, "target": ["b", "c"] * 20},
        ]
        found = []
        for at, table in enumerate(columns):
            path = self.folder / f"seed-{at}{self.suffix}"
            write_table(path, table)
            found.append((f"case{self.suffix}", path.read_bytes()))
        return found

    def tokens(self, name: str) -> list[bytes]:
        return TOKENS["csv" if self.suffix == ".csv" else "binary"]

    def read(self, path: Path) -> object:
        from evergraph.errors import InputError  # noqa: PLC0415
        from evergraph.estimator.tables import read_table  # noqa: PLC0415

        table = read_table(path)
        for name in list(table.columns):
            for use in (table.ids, lambda name: table.numbers([name])):
                try:
                    use(name)
                except InputError as error:
                    check_sentence(error)
        return None


class ParquetTarget(CsvTarget):
    """The same as Parquet."""

    suffix = ".parquet"


class StateTarget(Target):
    """A state: its database spoilt, or what is in it with checksums that fit again."""

    def make_seeds(self) -> list[tuple[str, bytes]]:
        from evergraph.estimator import ContinualNodeClassifier  # noqa: PLC0415

        for number, method in enumerate(("dslr", "joint", "ewc")):
            settings: dict[str, Any] = {"epochs": 1, "channels": 2, "heads": 1}
            if method == "dslr":
                settings |= {"link_epochs": 1, "buffer_size": 8}
            clf = ContinualNodeClassifier(
                method, settings=settings, validation_fraction=0.2, device="cpu"
            )
            for batch in range(2):
                ids = [f"{batch}-{at}" for at in range(10)]
                x = [[float(at % 2), float(batch), 1.0] for at in range(10)]
                edges = [(ids[at], ids[at - 1]) for at in range(10)]
                clf.learn(ids, x, edges, [f"c{batch}-{at % 2}" for at in range(10)])
                clf.save(self.folder / f"good-{number}")
        return []

    def write(self, rng: random.Random) -> Path:
        from evergraph.estimator.blocks import block_checksum  # noqa: PLC0415

        good = self.folder / f"good-{rng.randrange(3)}"
        path = self.folder / "state"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(good, path)
        file = path / "state.sqlite"
        if rng.random() < 0.3:
            file.write_bytes(mutate(file.read_bytes(), rng, TOKENS["binary"]))
            return path
        with closing(sqlite3.connect(file)) as db, db:
            number, text = db.execute("SELECT max(number), document FROM version").fetchone()
            if rng.random() < 0.5:
                text = mutate(text.encode(), rng, TOKENS["json"]).decode(errors="replace")
            else:  # an array, with the checksum of its new bytes
                query = "SELECT rowid, base, start, data FROM block ORDER BY base, start"
                row, base, start, data = rng.choice(db.execute(query).fetchall())
                data = mutate(data, rng, TOKENS["binary"])
                values = (data, block_checksum(base, start, data), row)
                db.execute("UPDATE block SET data = ?, crc32 = ? WHERE rowid = ?", values)
            digest = hashlib.sha256(f"{number} {text}".encode()).digest()
            change = "UPDATE version SET document = ?, sha256 = ? WHERE number = ?"
            db.execute(change, (text, digest, number))
        return path

    def read(self, path: Path) -> object:
        from evergraph.estimator import ContinualNodeClassifier  # noqa: PLC0415
        from evergraph.estimator.convert import convert_state  # noqa: PLC0415

        if (path / "current.json").exists():  # of release 0.1.0
            with tempfile.TemporaryDirectory() as place:
                return convert_state(path, Path(place) / "new")
        clf = ContinualNodeClassifier.load(path, device="cpu")
        return json.dumps(clf.history_), clf.diagnose(), clf.predict_proba()


class CheckpointTarget(StateTarget):
    """A run folder that is to be resumed: its checkpoint or its results spoilt."""

    def make_seeds(self) -> list[tuple[str, bytes]]:
        from evergraph.config import Variant, resolve  # noqa: PLC0415
        from evergraph.lab.folder import Run  # noqa: PLC0415
        from evergraph.lab.runs import execute  # noqa: PLC0415

        small = {"epochs": 1, "channels": 2, "heads": 1, "buffer_size": 8}
        dataset = Variant.parse_dataset("synthetic:nodes=40,classes=4,feature_dim=3,mean_degree=3")
        self.config = resolve(dataset, Variant.parse("replay"), 0, small)
        execute(Run(self.folder / "good", self.config))
        return []

    def write(self, rng: random.Random) -> Path:
        path = self.folder / "run"
        shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.folder / "good", path)
        if rng.random() < 0.5:
            file, tokens = path / "results.json", TOKENS["json"]
        else:
            (path / "results.json").unlink()
            file = path / "checkpoint" / "learner.safetensors"
            tokens = TOKENS[rng.choice(("json", "binary"))]
        file.write_bytes(mutate(file.read_bytes(), rng, tokens))
        return path

    def read(self, path: Path) -> object:
        from evergraph.lab.folder import Run  # noqa: PLC0415
        from evergraph.lab.runs import execute  # noqa: PLC0415
        from evergraph.lab.tables import accuracy_matrix, run_scores  # noqa: PLC0415

        results = execute(Run(path))
        shown = run_scores(results).markdown(), accuracy_matrix(results).markdown()
        return shown, json.dumps(results)


class FieldTarget(Target):
    """A row of the table of the field."""

    def make_seeds(self) -> list[tuple[str, bytes]]:
        from evergraph.config import Variant, resolve  # noqa: PLC0415

        config = resolve(Variant.parse_dataset("cora"), Variant.parse("dslr"), 0)
        row = {
            "schema_version": 1,
            "config": config.model_dump(mode="json", exclude={"seed"}),
            "protocol_hash": config.protocol.hash,
            "variant_hash": config.variant_hash,
            "version": "1.0",
            "seeds": [0, 1, 2],
            "pm": [80.0, 81.5, 82.0],
            "fm": [3.0, 3.0, 0.0],
            "current": [82.0, 83.5, 82.0],
            "seconds": [1.0, 2.0, 3.5],
            "memory_bytes": [1600, 1600, 1600],
            "published": {"pm": 81.0, "source": "a paper"},
        }
        return [("row.json", json.dumps(row).encode())]

    def tokens(self, name: str) -> list[bytes]:
        return [*TOKENS["config"], b"NaN", b"Infinity", b"1e999", b"null", b"{}", b"[", b'"pm":']

    def read(self, path: Path) -> object:
        from evergraph.lab.field import field_data, read_rows  # noqa: PLC0415

        return field_data(read_rows(path))


TARGETS: dict[str, type[Target]] = {
    "config": ConfigTarget,
    "npz": NpzTarget,
    "csv": CsvTarget,
    "parquet": ParquetTarget,
    "state": StateTarget,
    "run": CheckpointTarget,
    "field": FieldTarget,
}


def check_sentence(error: Exception) -> None:
    """Refuses an error that is not one line of bearable length."""
    text = str(error)
    if "\n" in text or len(text) > 2000:
        raise AssertionError(f"not a sentence: {text[:200]!r}")


def judge(read: Reader, path: Path, *, again: bool = True) -> str | None:
    """Reads one input; returns what is wrong with the reader, None if nothing is.

    A slow input is read again: the first may have compiled what others use.
    """
    from evergraph.errors import InputError  # noqa: PLC0415

    begin = time.process_time()  # a machine that is busy with other things is no hang
    try:
        try:
            read(path)
        except InputError as error:
            check_sentence(error)
    except Exception:
        return traceback.format_exc()
    took = time.process_time() - begin
    if took > SECONDS and again:
        return judge(read, path, again=False)
    return f"took {took:.1f} s" if took > SECONDS else None


def memory() -> int:
    """Returns the peak of this process in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def work(name: str, seed: int, span: tuple[int, int], failures: Path, told: Any) -> None:
    """Runs cases in this process, noting each before it is read."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        target = TARGETS[name](Path(place))
        for number in range(*span):
            told.value = number
            rng = random.Random(f"{name} {seed} {number}")
            path = target.write(rng)
            if number == span[0]:  # what the first call loads is not growth
                judge(target.read, path)
                base = memory()
                size = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
                resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, size + ROOM))
            signal.alarm(30)
            wrong = judge(target.read, path)
            signal.alarm(0)
            if wrong is None and memory() - base > GROWTH:
                wrong = f"grew by {(memory() - base) >> 20} MB"
                base = memory()
            if wrong is not None:
                keep(failures, name, number, path, wrong)


def keep(failures: Path, name: str, number: int, path: Path, wrong: str) -> None:
    """Stores a failing input with what went wrong."""
    place = failures / name / str(number)
    place.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, place / path.name, dirs_exist_ok=True)
    else:
        shutil.copy(path, place / path.name)
    (place / "failure.txt").write_text(wrong)
    print(f"{name} {number}: {wrong.strip().splitlines()[-1]}", flush=True)


def fuzz(name: str, cases: int, seed: int, failures: Path) -> int:
    """Fuzzes one reader; returns the number of failures."""
    around = multiprocessing.get_context("spawn")
    told = around.Value("q", 0)
    begin = 0
    while begin < cases:
        arguments = (name, seed, (begin, cases), failures, told)
        worker = around.Process(target=work, args=arguments)
        worker.start()
        worker.join()
        if worker.exitcode == 0:
            break
        # The worker died: the case it was at is to blame.
        with tempfile.TemporaryDirectory() as place:
            path = TARGETS[name](Path(place)).write(random.Random(f"{name} {seed} {told.value}"))
            keep(failures, name, told.value, path, f"the process died with {worker.exitcode}")
        begin = told.value + 1
    found = list((failures / name).glob("*")) if (failures / name).exists() else []
    return len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reader", choices=["all", *TARGETS])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"))
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    total = 0
    for name in TARGETS if given.reader == "all" else [given.reader]:
        begin = time.perf_counter()
        found = fuzz(name, given.cases, given.seed, given.failures)
        seconds = time.perf_counter() - begin
        print(f"{name}: {given.cases} cases, {found} failures, {seconds:.0f} s", flush=True)
        total += found
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
