"""Bad input through the command: exit code 2, one sentence with a remedy, nothing half-written.

Most cases call the command's ``main`` in this process, which saves starting Python; a few go
through a real process, Ctrl-C among them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evergraph.stream import Graph
from evergraph.stream.datasets import write_plain
from support import QUICK, Answer, Command

TIMEOUT = 60


Arrays = dict[str, Any]


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Lists everything below a folder with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def check_refused(answer: Answer, *mentions: str) -> None:
    """Asserts exit code 2 and one sentence that mentions all of the given words."""
    assert answer.code == 2, answer
    assert answer.out == ""
    lines = answer.err.splitlines()
    assert len(lines) == 1, answer.err
    assert lines[0].startswith("evergraph: ")
    assert "Traceback" not in lines[0]
    for word in mentions:
        assert word in lines[0]


def good_arrays(make_graph: Callable[..., Graph]) -> Arrays:
    graph = make_graph()
    return {"x": graph.x.numpy().copy(), "edge_index": graph.edges.numpy(), "y": graph.y.numpy()}


# --- words of the command ------------------------------------------------------------------

SETTINGS = {
    "unknown key": (("--set", "bta=0.1"), ("'bta'", "did you mean 'beta'?")),
    "unknown key of a method": (
        ("--method", "dslr:bta=0.1"),
        ("'dslr'", "'bta'", "did you mean 'beta'?"),
    ),
    "key of another method": (
        ("--method", "finetune", "--set", "tau=0.5"),
        ("finetune", "'tau'", "belongs to dslr", "leave it out"),
    ),
    "option of another method": (
        ("--method", "joint:buffer_size=5"),
        ("joint", "'buffer_size'", "belongs to replay", "leave it out"),
    ),
    "method in capitals": (("--method", "DSLR"), ("'DSLR'", "did you mean 'dslr'?")),
    "option misspelt": (("--sed", "1"), ("'--sed'", "did you mean '--seed'?")),
    "option misspelt with its value": (("--sed=1",), ("'--sed'", "did you mean '--seed'?")),
    "option with an underscore": (
        ("--split_seed", "1"),
        ("'--split_seed'", "did you mean '--split-seed'?"),
    ),
    "option with one dash": (("-seed", "1"), ("'-seed'", "did you mean '--seed'?")),
    "option of another command": (("--seeds", "3"), ("'--seeds'", "did you mean '--seed'?")),
    "setting in two words": (("--set", "beta", "0.5"), ("'0.5'", "write --set beta=0.5")),
    "dataset without its option": (("citeseer",), ("'citeseer'", "write --dataset citeseer")),
    "method without its option": (("ewc:lam=3",), ("'ewc:lam=3'", "write --method ewc:lam=3")),
    "seed with a point": (("--seed", "1.5"), ("'--seed'", "integer", "'1.5'")),
    "seed joined by a sign": (("--seed=one",), ("'--seed'", "integer", "'one'")),
    "unknown tracker": (("--track", "wandb"), ("'wandb'", "mlflow")),
    "output that is a file": (("--output", "graph.npz"), ("'--output'", "'graph.npz'", "folder")),
    "fanout of none": (("--fanout", "0"), ("'fanout'", "at least 1", "0")),
    "unknown method": (("--method", "dlsr"), ("'dlsr'", "did you mean 'dslr'?")),
    "unknown selector": (("--selector", "randon"), ("'randon'", "did you mean 'random'?")),
    "selector far from all": (("--selector", "zzz"), ("'zzz'", "choose one of cd, cd-core, cm,")),
    "beta above": (("--set", "beta=1.5"), ("'beta'", "[0, 1]", "1.5", "change")),
    "beta below": (("--set", "beta=-0.1"), ("'beta'", "[0, 1]", "-0.1")),
    "beta not a number": (("--set", "beta=.nan"), ("'beta'", "[0, 1]", "nan")),
    "beta a wrong word": (("--set", "beta=much"), ("'beta'", "[0, 1]", "'much'")),
    "lam above": (("--set", "lam=1.01"), ("'lam'", "[0, 1]", "1.01")),
    "lam below": (("--set", "lam=-1"), ("'lam'", "[0, 1]", "-1")),
    "tau above": (("--set", "tau=1.7"), ("'tau'", "[0, 1]", "1.7")),
    "tau below": (("--method", "dslr:tau=-0.2"), ("'tau'", "[0, 1]", "-0.2")),
    "N above K": (
        ("--set", "num_neighbors=6", "--set", "num_candidates=5"),
        ("'num_neighbors'", "'num_candidates'", "5", "6", "lower N or raise K"),
    ),
    "buffer below classes": (("--set", "buffer_size=3"), ("'buffer_size'", "4", "3", "raise it")),
    "no epochs": (("--set", "epochs=0"), ("'epochs'", "at least 1", "0")),
    "epochs not a number": (("--set", "epochs=many"), ("'epochs'", "integer", "'many'")),
    "infinite radius": (("--set", "r=.inf"), ("'r'", "inf")),
    "setting without value": (("--set", "beta"), ("key=value", "'beta'")),
    "setting without key": (("--set", "=1"), ("key=value", "'=1'")),
    "setting of broken YAML": (("--set", "beta=["), ("'beta'", "'['")),
    "method option without value": (("--method", "dslr:beta"), ("key=value", "'dslr:beta'")),
    "unknown order": (("--order", "backwards"), ("'order'", "'backwards'", "random:0")),
    "order without seed": (("--order", "random:"), ("'order'", "'random:'", "random:0")),
    "no classes per task": (
        ("--classes-per-task", "0"),
        ("'classes_per_task'", "at least 1", "0"),
    ),
    "negative split seed": (("--split-seed", "-1"), ("'split_seed'", "at least 0", "-1")),
    "unknown evaluation": (("--evaluate", "train"), ("'evaluate'", "'test'", "'train'")),
    "negative seed": (("--seed", "-1"), ("'seed'", "at least 0", "-1")),
    "seed not a number": (("--seed", "first"), ("'--seed'", "'first'", "--help")),
    "unknown device": (("--device", "nonsense"), ("'--device'", "'nonsense'", "cpu or cuda")),
    "device of another kind": (("--device", "meta"), ("'--device'", "'meta'", "cpu or cuda")),
    "unknown option": (("--bogus", "1"), ("--bogus", "--help")),
    "option like no other": (("--replicas", "3"), ("'--replicas'", "see 'evergraph run --help'")),
    "option cut short": (("--data", "x"), ("'--data'", "did you mean '--dataset'?")),
    "value for a flag": (("--json=yes",), ("'--json'", "'yes'", "see 'evergraph run --help'")),
    "option without value": (("--set",), ("--set", "--help")),
    "method of no letters": (("--method", ""), ("method ''", "choose one of al-gnn, analytic")),
    "epochs that no tensor holds": (("--set", f"epochs={10**30}"), ("'epochs'", "below 2^63")),
    "seed that no tensor holds": (("--seed", str(10**30)), ("'seed'", "below 2^63")),
    "epochs beyond floats": (("--set", "epochs=1e400"), ("'epochs'", "integer", "'1e400'")),
    "stream misspelt": (("--stream", "blury:0.3"), ("'stream'", "'blury:0.3'", "blurry:0.3")),
    "stream of nothing": (("--stream", "blurry:nan"), ("'stream'", "[0, 1)", "'blurry:nan'")),
    "choice of three": (("--set", "backbone=gin"), ("'backbone'", "'gat', 'gcn' or 'sage'")),
    "file as the data's folder": (
        ("--dataset", "ogbn-arxiv", "--data-root", "graph.npz"),
        ("--data-root", "the file 'graph.npz'", "name the folder"),
    ),
    "device as a settings file": (("--config", "/dev/zero"), ("'--config'", "not a regular file")),
    "backbone that the method cannot take": (
        ("--method", "rclg", "--set", "backbone=gcn"),
        ("'backbone'", "'gat'", "RCLG", "'gcn'", "change it"),
    ),
    "no validation nodes for a method that needs them": (
        ("--method", "rclg", "--set", "validation_fraction=0"),
        ("'validation_fraction'", "above 0", "RCLG", "0.1"),
    ),
    "options of a file": (("--dataset", "graph.npz:nodes=5"), ("'graph.npz'", "nodes", "drop")),
    "generated graph with a wrong key": (
        ("--dataset", "synthetic:node=50"),
        ("'node'", "did you mean 'nodes'?"),
    ),
}


@pytest.mark.parametrize(("words", "mentions"), SETTINGS.values(), ids=SETTINGS)
def test_run_refuses_wrong_words(
    work: Path, command: Command, words: Sequence[str], mentions: Sequence[str]
):
    before = snapshot(work)
    answer = command("run", "--dataset", "graph.npz", "--output", "out", *words)
    check_refused(answer, *mentions)
    assert snapshot(work) == before


def test_run_refuses_unknown_dataset(work: Path, command: Command):
    before = snapshot(work)
    answer = command("run", "--dataset", "coraa")
    check_refused(answer, "dataset", "'coraa'", "did you mean 'cora'?")
    assert snapshot(work) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="CUDA is there")
@pytest.mark.parametrize("name", ["run", "compare"])
def test_command_refuses_cuda_without_cuda(work: Path, command: Command, name: str):
    before = snapshot(work)
    answer = command(name, "--dataset", "graph.npz", "--device", "cuda", "--output", "out")
    check_refused(answer, "'--device'", "'cuda'", "use --device cpu")
    assert snapshot(work) == before


COMPARE = {
    "no seeds": (("--seeds", "0"), ("'--seeds'", "at least 1", "0")),
    "no jobs": (("--jobs", "0"), ("'--jobs'", "at least 1", "0")),
    "unknown method": (("--method", "dlsr"), ("'dlsr'", "did you mean 'dslr'?")),
    "unknown key of all": (
        ("--method", "finetune", "--method", "joint", "--set", "bta=1"),
        ("'bta'",),
    ),
    "same method twice": (
        ("--method", "finetune", "--method", "finetune"),
        ("'finetune'", "label", "@label"),
    ),
    "same label twice": (
        ("--method", "replay:beta=0.2@x", "--method", "replay:beta=0.3@x"),
        ("'x'", "twice", "@label"),
    ),
    "labels of one folder": (
        ("--method", "replay@a/b", "--method", "replay:beta=0.3@a b"),
        ("'a b'", "@label"),
    ),
    "merge of a missing folder": (("--merge", "nowhere"), ("'--merge'", "'nowhere'", "check")),
    "merge of a folder without runs": (("--merge", "empty"), ("'--merge'", "'empty'", "check")),
    "unknown device": (("--device", "nonsense"), ("'--device'", "'nonsense'", "cpu or cuda")),
    "beta above": (("--method", "replay:beta=2"), ("'beta'", "[0, 1]", "2")),
    "backbone that one method cannot take": (
        ("--method", "finetune", "--method", "rclg", "--set", "backbone=sage"),
        ("'backbone'", "'gat'", "RCLG", "'sage'"),
    ),
}


@pytest.mark.parametrize(("words", "mentions"), COMPARE.values(), ids=COMPARE)
def test_compare_refuses_wrong_words(
    work: Path, command: Command, words: Sequence[str], mentions: Sequence[str]
):
    (work / "empty").mkdir()
    before = snapshot(work)
    answer = command("compare", "--dataset", "graph.npz", "--output", "out", *words)
    check_refused(answer, *mentions)
    assert snapshot(work) == before


def test_compare_refuses_two_files_of_one_name(work: Path, command: Command):
    (work / "other").mkdir()
    (work / "other" / "graph.npz").write_bytes((work / "graph.npz").read_bytes())
    before = snapshot(work)
    datasets = ("--dataset", "graph.npz", "--dataset", "other/graph.npz")
    answer = command("compare", *datasets, "--seeds", 1, *QUICK, "--output", "out")
    # The label is not what clashes here, so another label is no remedy.
    check_refused(answer, "dataset", "graph.npz", "other/graph.npz")
    assert snapshot(work) == before


@pytest.mark.parametrize("dataset", ["coraa", "truncated.npz"])
def test_compare_refuses_bad_dataset_before_it_writes(work: Path, command: Command, dataset: str):
    (work / "truncated.npz").write_bytes((work / "graph.npz").read_bytes()[:-200])
    before = snapshot(work)
    words = ("--method", "finetune", "--seeds", 1, "--jobs", 1, "--output", "out")
    answer = command("compare", "--dataset", dataset, *words)
    check_refused(answer, dataset)
    assert snapshot(work) == before


def test_command_refuses_unknown_command(work: Path, command: Command):
    check_refused(command("rum"), "'rum'", "did you mean 'run'?")
    check_refused(command("zzz"), "'zzz'", "'evergraph --help'")


OTHERS = {
    "a table as a row of the field": (
        ("field", "--folder", "new", "--add", "table.csv"),
        ("'table.csv'", "not valid JSON", "give a row's JSON file or a folder of finished runs"),
    ),
    "a missing row of the field": (("field", "--add", "none.json"), ("'none.json'", "check")),
    "no row in the field": (("field", "--folder", "new"), ("'new'", "add some with --add")),
    "a file as the field": (("field", "--folder", "graph.npz"), ("'--folder'", "'graph.npz'")),
    "report of an empty folder": (("report", "empty"), ("'empty'", "(got none)", "finish a run")),
    "report of nothing": (("report", "nowhere"), ("'nowhere'", "check the path")),
    "report of a file": (("report", "graph.npz"), ("'graph.npz'", "check the path")),
    "figures of an unknown kind": (("report", "empty", "--format", "gif"), ("'gif'", "pdf, png")),
    "a method in capitals": (("methods", "DSLR"), ("'DSLR'", "did you mean 'dslr'?")),
    "two methods": (("methods", "dslr", "ewc"), ("'ewc'", "see 'evergraph methods --help'")),
    "a word after datasets": (("datasets", "bild"), ("'datasets bild'", "datasets build packages")),
    "packages from nowhere": (
        ("datasets", "build", "packages", "--from", "nowhere", "--output", "x.npz"),
        ("'nowhere'", "check the path"),
    ),
    "an experiment misspelt": (("reproduce", "mian", "--output", "o"), ("did you mean 'main'?",)),
    "less than no seeds": (
        ("reproduce", "main", "--output", "o", "--seeds", "-3"),
        ("'--seeds'", "at least 1", "-3"),
    ),
    "no output for predictions": (("predict", "empty"), ("'--output'", "none", "predict --help")),
    "predictions of no state": (("predict", "empty", "-o", "-"), ("'empty'", "learn into it")),
    "explanations of no state": (("explain", "nowhere", "n1"), ("'nowhere'", "learn into it")),
    "explanations of nothing": (("explain", "empty"), ("'ids'", "none", "explain --help")),
    "less than no explanations": (("explain", "empty", "n", "--count", "-1"), ("'--count'", "-1")),
    "an old state that is none": (("convert", "empty", "new"), ("'empty'", "check the path")),
    "a state at a file": (
        ("learn", "table.csv", "--nodes", "table.csv"),
        ("'table.csv'", "folder"),
    ),
    "a folder as a table": (("learn", "new", "--nodes", "empty"), ("'empty'", "convert or rename")),
    "an empty table": (
        ("learn", "new", "--nodes", "empty.csv"),
        ("'empty.csv'", "an empty file", "write it again"),
    ),
    "a table of bytes": (
        ("learn", "new", "--nodes", "bytes.parquet"),
        ("'bytes.parquet'", "write"),
    ),
    "a state where none can be": (
        ("learn", "graph.npz/s", "--nodes", "table.csv"),
        ("graph.npz/s",),
    ),
    "a share above all": (
        ("learn", "new", "--nodes", "table.csv", "--validation-fraction", "1.5"),
        ("'validation_fraction'", "[0, 0.5]", "1.5"),
    ),
    "a scaling misspelt": (
        ("learn", "new", "--nodes", "table.csv", "--feature-scaling", "robst"),
        ("'feature_scaling'", "'auto', 'none' or 'robust'", "'robst'"),
    ),
    "help as a command": (("help",), ("'help'", "see 'evergraph --help'")),
    "a version misspelt": (("--verison",), ("'--verison'", "did you mean '--version'?")),
}


@pytest.mark.parametrize(("words", "mentions"), OTHERS.values(), ids=OTHERS)
def test_other_commands_refuse_wrong_words(
    work: Path, command: Command, words: Sequence[str], mentions: Sequence[str]
):
    (work / "empty").mkdir()
    (work / "table.csv").write_text("id,f\na,1\n")
    (work / "empty.csv").write_text("")
    (work / "bytes.parquet").write_bytes(b"\x00\xff")
    before = snapshot(work)
    check_refused(command(*words), *mentions)
    assert snapshot(work) == before


def test_resume_refuses_to_discard_a_run(work: Path, command: Command):
    finish(work, command)
    check_refused(command("resume", "out", "--discard"), "'--discard'", "'out'", "leave it out")


def test_compare_refuses_missing_output(work: Path, command: Command):
    check_refused(command("compare", "--dataset", "graph.npz"), "'--output'", "--help")


def test_resume_refuses_missing_argument(work: Path, command: Command):
    check_refused(command("resume"), "'folder'", "--help")


# --- settings files ------------------------------------------------------------------------

CONFIGS = {
    "missing": (None, ("'--config'", "'settings.yaml'", "check the path")),
    "not YAML": (b"beta: [1, 2\nepochs: 3\n", ("'settings.yaml'", "YAML", "line", "fix it")),
    "a list": (b"- beta\n- 0.1\n", ("'settings.yaml'", "keys and values", "list", "fix it")),
    "a number": (b"3\n", ("'settings.yaml'", "keys and values", "int")),
    "empty": (b"", ("'settings.yaml'", "keys and values")),
    "binary": (b"\x80\xff\x00\x01", ("'--config'", "'settings.yaml'", "UTF-8")),
    "control characters": (b"beta: \x01\n", ("'settings.yaml'", "YAML")),
    "unknown key": (b"bta: 0.1\n", ("'bta'", "did you mean 'beta'?")),
    "a key twice": (b"beta: 0.1\nbeta: 0.2\n", ("'settings.yaml'", "'beta' once", "keep one")),
    "a reference": (b"a: &a 1\nb: *a\n", ("'settings.yaml'", "reference", "write the value out")),
    "number as key": (b"1: 0.1\n", ("'1'",)),
    "value out of range": (b"tau: 1.7\n", ("'tau'", "[0, 1]", "1.7")),
    "nested": (b"beta: {a: 1}\n", ("'beta'", "{'a': 1}")),
}


@pytest.mark.parametrize(("content", "mentions"), CONFIGS.values(), ids=CONFIGS)
def test_run_refuses_wrong_settings_file(
    work: Path, command: Command, content: bytes | None, mentions: Sequence[str]
):
    if content is not None:
        (work / "settings.yaml").write_bytes(content)
    before = snapshot(work)
    words = ("--config", "settings.yaml", "--output", "out")
    check_refused(command("run", "--dataset", "graph.npz", *words), *mentions)
    assert snapshot(work) == before


def test_run_refuses_folder_as_settings_file(work: Path, command: Command):
    (work / "settings").mkdir()
    answer = command("run", "--dataset", "graph.npz", "--config", "settings", "--output", "out")
    check_refused(answer, "'--config'", "'settings'", "check the path")
    assert not (work / "out").exists()


# --- graph files ---------------------------------------------------------------------------


def set_feature(value: float) -> Callable[[Arrays], None]:
    return lambda arrays: arrays["x"].__setitem__((7, 2), value)


def add_edge(first: int, second: int) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        arrays["edge_index"] = np.concatenate([arrays["edge_index"], [[first], [second]]], axis=1)

    return change


def replace(key: str, make: Callable[[Any], Any]) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.update({key: make(arrays[key])})


def relabel(keep: int) -> Callable[[Any], Any]:
    """Leaves ``keep`` nodes of class 3; the others join class 0."""

    def change(y: Any) -> Any:
        y = y.copy()
        y[np.flatnonzero(y == 3)[keep:]] = 0
        return y

    return change


GRAPHS = {
    "NaN feature": (set_feature(np.nan), ("'x'", "1 NaN or infinite", "clean")),
    "infinite feature": (set_feature(np.inf), ("'x'", "1 NaN or infinite", "clean")),
    "negative infinity": (set_feature(-np.inf), ("'x'", "1 NaN or infinite", "clean")),
    "text features": (replace("x", lambda x: x.astype(str)), ("'x'", "numbers", "convert")),
    "features in a row": (replace("x", np.ravel), ("'x'", "[n, d]", "[320]")),
    "edge to an unknown node": (
        add_edge(0, 40),
        ("'edge_index'", "[0, 39]", "40", "unknown nodes"),
    ),
    "edge to a negative node": (add_edge(-1, 3), ("'edge_index'", "[0, 39]", "-1")),
    "edges in three rows": (
        replace("edge_index", lambda e: np.concatenate([e, e[:1]])),
        ("'edge_index'", "[2, E]", "[3, "),
    ),
    "edges as fractions": (
        replace("edge_index", lambda e: e.astype(float)),
        ("'edge_index'", "integers", "float64"),
    ),
    "no labels": (lambda arrays: arrays.pop("y"), ("'y'", "edge_index, x", "add")),
    "no edges": (lambda arrays: arrays.pop("edge_index"), ("'edge_index'", "x, y", "add")),
    "no features": (lambda arrays: arrays.pop("x"), ("'x_data'", "store")),
    "labels too few": (replace("y", lambda y: y[:-3]), ("'y'", "40", "37", "fix")),
    "labels negative": (
        replace("y", lambda y: np.where(np.arange(40) < 2, -1, y)),
        ("'y'", "2 of 40 missing", "leave them out"),
    ),
    "labels NaN": (
        replace("y", lambda y: np.where(np.arange(40) < 3, np.nan, y)),
        ("'y'", "3 of 40 missing", "leave them out"),
    ),
    "labels as text": (replace("y", lambda y: y.astype(str)), ("'y'", "numbers")),
    "a label like an identifier": (
        replace("y", lambda y: np.where(np.arange(40) == 0, 2**40, y)),
        ("'y'", str(2**40), "number the classes from 0"),
    ),
    "names too few": (
        lambda arrays: arrays.update(class_names=np.array(["a", "b"])),
        ("'class_names'", "3", "2", "add"),
    ),
    "a class of one node": (
        replace("y", relabel(1)),
        ("class '3'", "at least 2 training nodes", "1", "min_class_size"),
    ),
    "a class with one training node": (
        replace("y", relabel(2)),
        ("class '3'", "at least 2 training nodes", "1", "min_class_size"),
    ),
}


@pytest.mark.parametrize(("change", "mentions"), GRAPHS.values(), ids=GRAPHS)
def test_run_refuses_wrong_graph(
    work: Path,
    command: Command,
    make_graph: Callable[..., Graph],
    change: Callable[[Arrays], Any],
    mentions: Sequence[str],
):
    arrays = good_arrays(make_graph)
    change(arrays)
    np.savez(work / "wrong.npz", **arrays)
    before = snapshot(work)
    answer = command("run", "--dataset", "wrong.npz", *QUICK, "--output", "out")
    check_refused(answer, "wrong", *mentions)
    assert snapshot(work) == before


FILES = {
    "empty": lambda good: b"",
    "truncated at the end": lambda good: good[:-30],
    "truncated early": lambda good: good[:100],
    "text": lambda good: b"id,label\n1,2\n",
    "a lone array": lambda good: b"\x93NUMPY\x01\x00v\x00" + b" " * 118,
    "bytes flipped": lambda good: good[:60] + bytes(b ^ 0xFF for b in good[60:120]) + good[120:],
}


@pytest.mark.parametrize("make", FILES.values(), ids=FILES)
def test_run_refuses_damaged_file(work: Path, command: Command, make: Callable[[bytes], bytes]):
    (work / "bad.npz").write_bytes(make((work / "graph.npz").read_bytes()))
    before = snapshot(work)
    answer = command("run", "--dataset", "bad.npz", *QUICK, "--output", "out")
    check_refused(answer, "'bad.npz'", "make or download it again")
    assert snapshot(work) == before


def test_run_refuses_missing_file_and_folder(work: Path, command: Command):
    (work / "folder.npz").mkdir()
    before = snapshot(work)
    for name in ("nowhere.npz", "folder.npz"):
        answer = command("run", "--dataset", name, *QUICK, "--output", "out")
        check_refused(answer, f"'{name}'", "check the path")
    assert snapshot(work) == before


def test_run_refuses_pickled_arrays(work: Path, command: Command, make_graph: Callable[..., Graph]):
    arrays = good_arrays(make_graph)
    np.savez(work / "objects.npz", **{**arrays, "x": arrays["x"].astype(object)})
    before = snapshot(work)
    answer = command("run", "--dataset", "objects.npz", *QUICK, "--output", "out")
    check_refused(answer, "'x'", "'objects.npz'", "pickle", "plain array")
    assert snapshot(work) == before


def test_run_reads_a_path_with_at_sign(work: Path, command: Command):
    (work / "me@home").mkdir()
    (work / "graph.npz").rename(work / "me@home" / "graph.npz")
    words = ("--dataset", "me@home/graph.npz", "--method", "finetune", "--set", "epochs=1")
    assert command("run", *words, "--output", "out").code == 0


# --- output folders ------------------------------------------------------------------------


def finish(work: Path, command: Command, *words: str) -> None:
    base = ("run", "--dataset", "graph.npz", *QUICK, "--output", "out")
    answer = command(*base, *words)
    assert answer.code == 0, answer


def test_run_refuses_folder_of_another_run(work: Path, command: Command):
    finish(work, command)
    before = snapshot(work)
    answer = command("run", "--dataset", "graph.npz", "--seed", 1, *QUICK, "--output", "out")
    check_refused(answer, "'--output'", "'out'", "dslr on graph.npz, seed 0", "another folder")
    assert snapshot(work) == before


def test_run_refuses_folder_with_other_files(work: Path, command: Command):
    (work / "out").mkdir()
    (work / "out" / "thesis.tex").write_text("years of work")
    before = snapshot(work)
    answer = command("run", "--dataset", "graph.npz", *QUICK, "--output", "out")
    check_refused(answer, "'--output'", "'out'", "other files", "another folder")
    assert snapshot(work) == before


@pytest.mark.parametrize("name", ["run", "compare"])
def test_command_refuses_file_as_output(work: Path, command: Command, name: str):
    (work / "out").write_text("a file")
    before = snapshot(work)
    answer = command(name, "--dataset", "graph.npz", *QUICK, "--output", "out")
    check_refused(answer, "'out'", "another")
    assert snapshot(work) == before


def test_run_refuses_output_below_a_file(work: Path, command: Command):
    (work / "out").write_text("a file")
    before = snapshot(work)
    answer = command("run", "--dataset", "graph.npz", *QUICK, "--output", "out/run")
    check_refused(answer, "'out/run'", "choose another path")
    assert snapshot(work) == before


def test_run_refuses_changed_graph_in_unfinished_folder(
    work: Path, command: Command, make_graph: Callable[..., Graph]
):
    # Same path and same settings, but tasks learned on another graph: continuing would mix both.
    finish(work, command)
    (work / "out" / "results.json").unlink()
    write_plain(make_graph(seed=5), work / "graph.npz")
    before = snapshot(work)
    answer = command("run", "--dataset", "graph.npz", *QUICK, "--output", "out")
    check_refused(answer, "graph.npz", "out")
    assert snapshot(work) == before


# --- resume and damaged folders ------------------------------------------------------------


def test_resume_refuses_folder_without_run(work: Path, command: Command):
    (work / "empty").mkdir()
    before = snapshot(work)
    for name in ("empty", "nowhere", "graph.npz"):
        check_refused(command("resume", name), f"'{name}'", "config.yaml", "check the path")
    assert snapshot(work) == before


DAMAGED_CONFIGS = {
    "empty": (lambda text: "", ("config.yaml", "keys and values")),
    "cut": (lambda text: text[: text.index("settings:")] + "settings: {", ("config.yaml", "YAML")),
    "a key missing": (lambda text: text.replace("dataset: graph.npz\n", ""), ("'dataset'", "add")),
    "a key too many": (lambda text: text + "colour: red\n", ("'colour'",)),
    "another version": (
        lambda text: text.replace("schema_version: 1", "schema_version: 9"),
        ("'schema_version'", "9"),
    ),
    "unknown method": (
        lambda text: text.replace("method: dslr", "method: dlsr"),
        ("'dlsr'", "did you mean 'dslr'?"),
    ),
    "value out of range": (lambda text: text.replace("tau: 0.8", "tau: 8"), ("'tau'", "[0, 1]")),
    "nested value out of range": (
        lambda text: text.replace("epochs: 2\n  lr", "epochs: 0\n  lr"),
        ("'training.epochs'", "0"),
    ),
}


@pytest.mark.parametrize(("damage", "mentions"), DAMAGED_CONFIGS.values(), ids=DAMAGED_CONFIGS)
def test_resume_and_run_refuse_damaged_config(
    work: Path, command: Command, damage: Callable[[str], str], mentions: Sequence[str]
):
    finish(work, command)
    path = work / "out" / "config.yaml"
    good = path.read_text()
    path.write_text(damage(good))
    assert path.read_text() != good
    before = snapshot(work)
    check_refused(command("resume", "out"), *mentions)
    check_refused(command("run", "--dataset", "graph.npz", *QUICK, "--output", "out"), *mentions)
    assert snapshot(work) == before


def test_resume_refuses_binary_config(work: Path, command: Command):
    finish(work, command)
    (work / "out" / "config.yaml").write_bytes(b"\x80\xff\x00")
    check_refused(command("resume", "out"), "'out'", "config.yaml")


CHECKPOINTS = {
    "empty": lambda content: b"",
    "truncated": lambda content: content[: len(content) // 2],
    "other bytes": lambda content: b"not a checkpoint at all",
    "header changed": lambda content: content.replace(b'"next_task', b'"naxt_task').replace(
        b"next_task", b"naxt_task"
    ),
}


@pytest.mark.parametrize("damage", CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_resume_refuses_damaged_checkpoint(
    work: Path, command: Command, damage: Callable[[bytes], bytes]
):
    finish(work, command)
    (work / "out" / "results.json").unlink()
    path = work / "out" / "checkpoint" / "learner.safetensors"
    content = path.read_bytes()
    path.write_bytes(damage(content))
    assert path.read_bytes() != content
    before = snapshot(work / "out")
    answer = command("resume", "out")
    check_refused(answer, "learner.safetensors", "damaged", "remove the folder")
    after = snapshot(work / "out")
    assert after == before

    for part in path.parent.iterdir():  # the remedy works
        part.unlink()
    path.parent.rmdir()
    assert command("resume", "out").code == 0


def test_run_refuses_damaged_results(work: Path, command: Command):
    finish(work, command)
    path = work / "out" / "results.json"
    path.write_bytes(path.read_bytes()[:50])
    before = snapshot(work)
    check_refused(command("resume", "out"), "results.json", "JSON", "restore it or remove")
    assert snapshot(work) == before


# --- the real command ----------------------------------------------------------------------


def real(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evergraph", *map(str, words)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "mentions"),
    [
        (("--dataset", "bad.npz"), ("'bad.npz'", "make or download it again")),
        (("--set", "tau=1.7"), ("'tau'", "[0, 1]", "1.7", "change its value")),
    ],
    ids=["damaged file", "value out of range"],
)
def test_real_command_refuses(work: Path, words: Sequence[str], mentions: Sequence[str]):
    (work / "bad.npz").write_bytes(b"PK\x03\x04 not really")
    before = snapshot(work)
    done = real("run", *words, "--output", "out", cwd=work)
    check_refused(Answer(done.returncode, done.stdout, done.stderr), *mentions)
    assert snapshot(work) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", [("methods",), ("run", "--help")])
def test_real_command_says_that_its_output_is_lost(words: Sequence[str]):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "evergraph", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=TIMEOUT,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("evergraph: Expected to write the output (got: No space left")
    assert done.stderr.count("\n") == 1


def start(words: Sequence[str], cwd: Path) -> subprocess.Popen[str]:
    """Starts the real command in its own session, with Ctrl-C as a terminal has it."""
    # A handler, unlike "ignore", is not inherited: the child begins with the default.
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "evergraph", *words],
            cwd=cwd,
            env={**os.environ, "OMP_NUM_THREADS": "1"},  # a second thread costs more than it gives
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
    finally:
        signal.signal(signal.SIGINT, old)


def interrupt_after(process: subprocess.Popen[str], sign: str) -> Answer:
    """Sends Ctrl-C to the whole session, as a terminal does, once ``sign`` is on a line."""
    assert process.stderr is not None
    shown = ""
    try:
        for line in process.stderr:
            shown += line
            if sign in line:
                break
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Answer(process.returncode, out, shown + err)


def check_interrupted(answer: Answer) -> None:
    assert "Traceback" not in answer.err
    assert answer.code == 130, answer
    assert answer.out == ""
    assert answer.err.count("evergraph: ") == 1, answer.err
    last = answer.err.splitlines()[-1]
    assert last.startswith("evergraph: Interrupted")
    assert "same command continues" in last


def test_ctrl_c_while_libraries_load_has_its_sentence(work: Path):
    process = start(["run", "--dataset", "graph.npz", *LONG], work)
    maps, deadline = Path(f"/proc/{process.pid}/maps"), time.monotonic() + TIMEOUT
    while "libtorch" not in maps.read_text() and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    check_interrupted(Answer(process.returncode, out, err))
    assert not (work / "runs").exists()


def session_is_gone(session: int, seconds: float = 10) -> bool:
    """Polls until no process of a session runs any more."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(alive(path, session) for path in Path("/proc").glob("[0-9]*/stat")):
            return True
        time.sleep(0.1)
    return False


def alive(stat: Path, session: int) -> bool:
    """Tells from ``/proc/PID/stat`` whether a process of the session runs; zombies do not."""
    try:
        state, _, group, *_ = stat.read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    return int(group) == session and state != "Z"


LONG = ("--set", "epochs=200", "--set", "channels=4", "--set", "heads=2")


def test_run_interrupted_says_so_and_continues(work: Path, command: Command):
    words = ["run", "--dataset", "graph.npz", "--method", "finetune", *LONG]
    words += ["--classes-per-task", "1", "--output", "out"]
    answer = interrupt_after(start(words, work), "accuracy on tasks so far")
    check_interrupted(answer)
    assert not (work / "out" / "results.json").exists()
    assert not list((work / "out").rglob("*.new"))

    again = command(*words)
    assert again.code == 0, again
    assert "task 1/4" not in again.err
    assert "task 4/4" in again.err
    assert (work / "out" / "results.json").exists()


def test_compare_interrupted_says_so_and_continues(work: Path, command: Command):
    words = ["compare", "--dataset", "graph.npz", "--method", "finetune", *LONG]
    words += ["--seeds", "5", "--jobs", "2", "--output", "out"]
    process = start(words, work)
    answer = interrupt_after(process, "[1/5]")
    check_interrupted(answer)
    assert session_is_gone(process.pid)
    finished = {path: path.stat().st_mtime_ns for path in work.glob("out/runs/*/*/*/results.json")}
    assert 1 <= len(finished) < 5
    assert not (work / "out" / "summary.json").exists()

    again = command(*words)
    assert again.code == 0, again
    assert len(list(work.glob("out/runs/*/*/*/results.json"))) == 5
    assert all(path.stat().st_mtime_ns == at for path, at in finished.items())
    assert (work / "out" / "summary.json").exists()


def test_compare_interrupted_while_workers_start_says_so(work: Path):
    # The workers' first seconds are imports, before they can decide what Ctrl-C means.
    words = ["compare", "--dataset", "graph.npz", "--method", "finetune", *LONG]
    words += ["--seeds", "2", "--jobs", "2", "--output", "out"]
    process = start(words, work)
    deadline = time.monotonic() + TIMEOUT
    while len(list(work.glob("out/runs/*/*/*/config.yaml"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    check_interrupted(Answer(process.returncode, out, err))
    assert session_is_gone(process.pid)
