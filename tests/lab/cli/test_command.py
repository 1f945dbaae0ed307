"""The command at work: what it prints where, what it writes, and that it says the same twice."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import evergraph
from evergraph.lab.api import parse_methods
from evergraph.lab.cli import COMMANDS
from evergraph.lab.cli.listings import defaults, descriptions
from evergraph.memory import SELECTORS
from evergraph.methods import METHODS, PROBES, TrainConfig
from evergraph.nn import ModelConfig
from evergraph.stream import protocol_for
from evergraph.stream.datasets import DATASETS
from support import QUICK, Command

ROOT = Path(__file__).parents[3]


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def without_seconds(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results.items() if key != "seconds"}


def run_words(*words: object, output: str = "out") -> tuple[object, ...]:
    return ("run", "--dataset", "graph.npz", *QUICK, *words, "--output", output)


def test_run_prints_matrix_and_scores_to_stdout_progress_to_stderr(work: Path, command: Command):
    answer = command(*run_words("--classes-per-task", 1))
    assert answer.code == 0
    results = read(work / "out" / "results.json")
    matrix = results["accuracy_matrix"]
    assert [len(row) for row in matrix] == [1, 2, 3, 4]
    for row in matrix:
        for value in row:
            assert f"{value:.2f}" in answer.out
    for title, key in (("PM", "pm"), ("FM", "fm"), ("Current", "current")):
        line = next(line for line in answer.out.splitlines() if f" {title} " in line)
        assert f"{results[key]:.2f}" in line
    for name in ("class-Z", "class-Y", "class-X", "class-W"):
        assert name in answer.out
    assert "dslr on graph.npz, seed 0" in answer.out

    mode, *lines = answer.err.splitlines()
    assert mode.startswith("full batch: the whole graph needs about 0.00 GB of ")
    lines = [line for line in lines if line.startswith(("task", "  accuracy"))]  # none by time
    assert len(lines) == 8
    for task in range(4):
        assert lines[2 * task].startswith(f"task {task + 1}/4: 1 new class, ")
        row = " ".join(f"{value:.2f}" for value in matrix[task])
        assert f"accuracy on tasks so far: {row} (mean" in lines[2 * task + 1]
    assert "\x1b" not in answer.out + answer.err  # no control codes in a pipe


def test_run_writes_the_run_folder(work: Path, command: Command):
    assert command(*run_words()).code == 0
    out = work / "out"
    assert {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()} == {
        "checkpoint/learner.safetensors",
        "config.yaml",
        "environment.json",
        "events.jsonl",
        "report.md",
        "results.json",
    }
    results = read(out / "results.json")
    report = (out / "report.md").read_text()
    assert f"{results['pm']:.2f}" in report
    assert "| after task |" in report
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    assert [event["row"] for event in events] == results["accuracy_matrix"]
    assert read(out / "environment.json")["device"] in {"cpu", "cuda"}
    config = yaml.safe_load((out / "config.yaml").read_text())
    assert config["training"]["epochs"] == 2
    assert config["settings"]["link_epochs"] == 2
    assert config["model"]["channels"] == 4


def test_run_json_is_all_of_stdout(work: Path, command: Command):
    answer = command(*run_words("--json"))
    assert answer.code == 0
    assert json.loads(answer.out) == read(work / "out" / "results.json")
    assert "task 1/2" in answer.err


def test_run_of_one_task_shows_a_dash_for_forgetting(work: Path, command: Command):
    answer = command(*run_words("--classes-per-task", 4))
    assert answer.code == 0
    assert read(work / "out" / "results.json")["fm"] is None
    assert "–" in next(line for line in answer.out.splitlines() if " FM " in line)


def test_run_again_returns_the_finished_results(work: Path, command: Command):
    first = command(*run_words("--json"))
    path = work / "out" / "results.json"
    at = path.stat().st_mtime_ns
    for words in (run_words("--json"), ("resume", "out", "--json")):
        again = command(*words)
        assert again.code == 0
        assert again.out == first.out
        assert again.err == ""  # nothing was run
        assert path.stat().st_mtime_ns == at


def test_run_config_can_be_run_elsewhere(work: Path, command: Command):
    first = command(*run_words("--method", "dslr:beta=0.2@x", "--seed", 3))
    assert first.code == 0
    (work / "copy").mkdir()
    (work / "copy" / "config.yaml").write_bytes((work / "out" / "config.yaml").read_bytes())
    assert command("resume", "copy").code == 0
    here, there = (read(work / name / "results.json") for name in ("out", "copy"))
    assert without_seconds(here) == without_seconds(there)


def test_run_same_seed_same_results_other_seed_others(work: Path, command: Command):
    results = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert command(*run_words("--seed", seed, output=name)).code == 0
        results.append(without_seconds(read(work / name / "results.json")))
    assert results[0] == results[1]
    assert results[0]["diagnostics"] != results[2]["diagnostics"]


def test_run_says_which_settings_change_nothing(work: Path, command: Command):
    words = ("run", "--dataset", "graph.npz", "--method", "analytic", "--output")
    answer = command(*words, "a", "--set", "epochs=3", "--set", "buffer_size=50")
    assert answer.code == 0
    first, *others = answer.err.splitlines()
    assert first.startswith("warning: Settings 'buffer_size' and 'epochs' have no effect on ana")
    assert "warning" not in " ".join(others)
    used = command(*words, "b", "--set", "rows=encoder", "--set", "epochs=3")
    assert (used.code, "warning" in used.err) == (0, False)


def test_run_without_output_chooses_a_folder(work: Path, command: Command):
    words = ("run", "--dataset", "graph.npz", *QUICK)
    assert command(*words).code == 0
    assert command(*words, "--set", "beta=0.7").code == 0
    folders = sorted(path.name for path in (work / "runs").iterdir())
    assert len(folders) == 2
    assert all(name.startswith("graph-dslr-seed-0-") for name in folders)


def test_run_label_and_method_options(work: Path, command: Command):
    answer = command(*run_words("--method", "dslr:beta=0.2,selector=mf@x"))
    assert answer.code == 0
    results = read(work / "out" / "results.json")
    assert results["label"] == "x"
    assert results["method"] == "dslr"
    assert results["settings"]["beta"] == 0.2
    assert results["settings"]["selector"] == "mf"
    assert results["overrides"]["beta"] == 0.2
    assert "x on graph.npz, seed 0" in answer.out


def test_run_set_reads_types(work: Path, command: Command):
    (work / "settings.yaml").write_text("lr: 0.5\nbeta: none\ndropout: 0\n")
    sets = {
        "lr": "1e-3",  # YAML 1.1 alone would take it for text
        "test_share": "[0.3, 0.3, 0.4, 0.5]",
        "pooled": "true",
        "max_classes": "null",
        "head_init": "default",
        "order": "random:7",
    }
    words = [word for key, value in sets.items() for word in ("--set", f"{key}={value}")]
    answer = command(*run_words("--config", "settings.yaml", *words))
    assert answer.code == 0, answer
    config = yaml.safe_load((work / "out" / "config.yaml").read_text())
    assert config["training"]["lr"] == 0.001  # --set wins over --config
    assert config["settings"]["beta"] == "none"
    assert config["model"]["dropout"] == 0.0
    assert config["model"]["head_init"] == "default"
    assert config["protocol"]["test_share"] == [0.3, 0.3, 0.4, 0.5]
    assert config["protocol"]["pooled"] is True
    assert config["protocol"]["max_classes"] is None
    assert config["protocol"]["order"] == "random:7"


def test_run_named_options_become_settings(work: Path, command: Command):
    words = ("--selector", "mf", "--split-seed", 4, "--order", "alphabetical")
    answer = command(*run_words(*words, "--evaluate", "validation", "--device", "cpu"))
    assert answer.code == 0
    assert "Accuracy on validation nodes" in answer.out
    config = yaml.safe_load((work / "out" / "config.yaml").read_text())
    assert config["settings"]["selector"] == "mf"
    assert config["protocol"]["split_seed"] == 4
    assert config["protocol"]["order"] == "alphabetical"
    assert config["protocol"]["evaluate"] == "validation"
    assert config["protocol"]["validation_fraction"] == 0.1
    results = read(work / "out" / "results.json")
    assert results["evaluated_on"] == "validation"
    assert results["class_names"] == ["class-W", "class-X", "class-Y", "class-Z"]


def test_run_on_a_generated_graph(work: Path, command: Command):
    words = ("run", "--dataset", "synthetic:nodes=80,classes=4,mean_degree=4", "--output", "out")
    assert command(*words, *QUICK).code == 0
    results = read(work / "out" / "results.json")
    assert results["dataset"] == "synthetic:classes=4,mean_degree=4,nodes=80"
    assert len(results["class_names"]) == 4


def test_run_defaults_are_dslr_on_embedded_cora(work: Path, command: Command):
    answer = command("run", *QUICK)
    assert answer.code == 0
    assert "dslr on cora, seed 0" in answer.out
    assert "81.59 ± 1.65" in answer.out  # beside the paper's numbers
    (folder,) = (work / "runs").iterdir()
    results = read(folder / "results.json")
    assert results["protocol_hash"] == protocol_for("cora").hash
    assert results["settings"]["buffer_size"] == 100
    assert [len(row) for row in results["accuracy_matrix"]] == [1, 2, 3]


def test_datasets_json_lists_every_dataset(command: Command):
    answer = command("datasets", "--json")
    assert answer.code == 0
    entries = {entry["name"]: entry for entry in json.loads(answer.out)}
    assert list(entries) == list(DATASETS)
    cora = entries["cora"]
    assert (cora["nodes"], cora["features"], cora["classes"]) == (2708, 1433, 7)
    assert cora["protocol"] == "dslr"
    assert cora["hash"] == protocol_for("cora").hash
    assert cora["obtained"] == "embedded"
    assert entries["synthetic"]["protocol"] == "default"


def test_datasets_prints_every_name(command: Command):
    answer = command("datasets")
    assert answer.code == 0
    assert all(name in answer.out for name in DATASETS)


def test_methods_json_lists_methods_and_selectors(command: Command):
    answer = command("methods", "--json")
    assert answer.code == 0
    content = json.loads(answer.out)
    entries = {entry["name"]: entry for entry in content["methods"]}
    assert list(entries) == list(METHODS)
    assert entries["dslr"]["year"] == 2024
    assert entries["dslr"]["settings"]["tau"] == 0.8
    assert entries["dslr"]["settings"]["selector"] == "cd"
    assert entries["joint"]["needs"] == ["old_labels"]
    assert entries["finetune"]["settings"] == {}
    assert all(entry["summary"] and entry["paper"] for entry in entries.values())
    assert [entry["name"] for entry in content["selectors"]] == list(SELECTORS)


def test_methods_prints_every_name(command: Command):
    answer = command("methods")
    assert answer.code == 0
    assert all(name in answer.out for name in [*METHODS, *SELECTORS])


def test_every_setting_of_every_method_is_described_where_it_is_defined(command: Command):
    for name, cls in (METHODS | PROBES).items():
        told = {**descriptions(TrainConfig), **descriptions(ModelConfig)}
        told |= descriptions(cls.Config)
        wanted = [*defaults(cls.Config), *defaults(TrainConfig), *defaults(ModelConfig)]
        assert [key for key in wanted if len(told.get(key, "")) < 5] == [], name
    assert descriptions(METHODS["dslr"].Config)["num_neighbors"] == (
        "N, edges added to each replayed node"
    )
    assert "decision" not in str([descriptions(cls.Config) for cls in METHODS.values()])


def test_methods_describes_the_settings_of_one(command: Command):
    answer = command("methods", "dslr")
    assert answer.code == 0
    for word in ("tau", "0.8", "edges added to each replayed node", "epochs", "channels", "2024"):
        assert word in answer.out
    assert "channels" not in command("methods", "analytic").out  # which has no network
    content = json.loads(command("methods", "dslr", "--json").out)
    assert content["settings"]["tau"]["default"] == 0.8
    assert "deleted" in content["settings"]["tau"]["meaning"]
    assert "did you mean 'dslr'?" in command("methods", "dlsr").err


def test_doctor_says_what_is_used_and_what_to_do(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("EVERGRAPH_DATA", str(tmp_path / "nowhere"))
    found = {line["what"]: line for line in json.loads(command("doctor", "--json").out)}
    assert found["evergraph"]["found"] == evergraph.__version__
    assert found["kernels"]["found"].split()[0] in {"numba", "Triton"}
    assert "EVERGRAPH_DATA" in found["data"]["remedy"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {f"extra {name}" for name in extras["optional-dependencies"]} - {"extra dev"}
    assert {what for what in found if what.startswith("extra ")} == named - {"extra docs"}
    monkeypatch.setattr("evergraph.lab.cli.listings.installed", lambda package: None)
    bare = {line["what"]: line for line in json.loads(command("doctor", "--json").out)}
    assert "evergraph[tables]" in bare["extra tables"]["remedy"]
    assert "what to do" in command("doctor").out


def test_help_of_a_command_lists_its_options(command: Command):
    answer = command("compare", "--help")
    assert answer.code == 0
    for option in ("--dataset", "--method", "--seeds", "--jobs", "--merge", "--output", "--json"):
        assert option in answer.out
    own, settings, where = re.split(r"\n(?:Settings|Where it runs):\n", f"{answer.out}")[:3]
    assert "--seeds N" in own
    assert "--jobs N" in f"{settings}{where}"
    assert "--fanout" not in own


def test_real_command_helps(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "evergraph", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""
    for name in ("run", "compare", "resume", "datasets", "methods"):
        assert name in done.stdout


def test_help_comes_without_loading_the_library():
    code = "import sys; sys.argv = ['evergraph', '--help']\n"
    code += "from evergraph.lab import cli\ntry: cli.main()\nexcept SystemExit: pass\n"
    code += "print(*(name for name in sys.modules if name.split('.')[0] in {'torch', 'numpy'}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    shown, *loaded = done.stdout.rsplit("\n", 2)
    assert loaded == ["", ""]
    for name, about in COMMANDS.items():
        assert name in shown
        assert about["help"] in shown  # not cut off


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_where_the_table_says(command: Command, name: str):
    answer = command(name, "-h")
    assert answer.code == 0
    assert f"{name} [OPTIONS]" in answer.out
    example = COMMANDS[name]["example"]
    assert f"\n    evergraph {example}\n" in answer.out  # in one line
    first, *words = example.split()
    assert first == name
    assert all(word in answer.out for word in words if word.startswith("-"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [("evergraph re", {"resume", "report", "reproduce"}), ("evergraph predict --o", {"--output"})],
)
def test_shell_completes_commands_and_options(line: str, expected: set[str]):
    done = subprocess.run(
        [sys.executable, "-m", "evergraph"],
        env={
            **os.environ,
            "_EVERGRAPH_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert set(done.stdout.split()) == expected


def test_version_is_told(command: Command):
    assert command("--version").out == f"evergraph {evergraph.__version__}\n"


def test_explain_tells_origins_and_runs_nothing(work: Path, command: Command):
    (work / "mine.yaml").write_text("lr: 0.5\nheads: 2\n")
    words = ("run", "--config", "mine.yaml", "--set", "heads=8", "--order", "label", "--explain")
    answer = command(*words, "--method", "dslr:tau=0.5")
    assert answer.code == 0
    lines = {line.split("│")[1].strip(): line for line in answer.out.splitlines() if "│" in line}
    for key, value, origin in (
        ("lr", "0.5", "mine.yaml"),
        ("heads", "8", "--set"),
        ("order", '"label"', "--set"),
        ("tau", "0.5", "--method"),
        ("epochs", "500", "default"),
        ("r", "0.2", "tuned"),
        ("buffer_size", "100", "printed"),
    ):
        cells = [part.strip() for part in lines[key].split("│")]
        assert cells[2:4] == [value, origin]
    content = json.loads(command("run", "--as-printed", "--explain", "--json").out)
    assert content["settings"]["r"] == {"value": 0.3, "origin": "printed"}
    assert content["model"]["dropout"] == {"value": 0.0, "origin": "printed"}
    assert not (work / "runs").exists()
    assert command(*run_words()).code == 0
    config = "out/config.yaml"
    again = json.loads(command("run", "--config", config, "--explain", "--json").out)
    assert again["training"]["epochs"] == {"value": 2, "origin": config}


def test_run_takes_a_run_folders_config(work: Path, command: Command):
    assert command(*run_words("--set", "beta=0.3")).code == 0
    again = command("run", "--config", "out/config.yaml", "--output", "again")
    assert again.code == 0
    first, second = (read(work / name / "results.json") for name in ("out", "again"))
    first.pop("seconds")
    second.pop("seconds")
    assert first == second
    refused = command("run", "--config", "out/config.yaml", "--set", "beta=0.4")
    assert refused.code == 2
    assert "beta=0.4" in refused.err


def test_run_trains_on_sampled_parts_when_asked(work: Path, command: Command):
    answer = command(*run_words("--batch-size", 6, "--fanout", 3))
    assert answer.code == 0
    assert answer.err.startswith("sampled, 6 nodes: as asked; the whole graph needs about ")
    config = yaml.safe_load((work / "out" / "config.yaml").read_text())
    assert (config["training"]["batch_size"], config["training"]["fanout"]) == (6, 3)


@pytest.mark.parametrize("value", ["0", "-3", "some"])
def test_run_refuses_a_batch_size_that_is_none(work: Path, command: Command, value: str):
    answer = command(*run_words(f"--batch-size={value}"))
    assert answer.code != 0
    assert "'batch_size'" in answer.err
    assert value in answer.err
    assert len(answer.err.splitlines()) == 1
    assert not (work / "out").exists()


def test_all_methods_are_compared_with_dslr_or_the_one_named_first():
    labels = [variant.label for variant in parse_methods(["all"])]
    assert labels[0] == "dslr"
    assert sorted(labels) == sorted(METHODS)
    named = [variant.label for variant in parse_methods(["analytic", "all", "dslr:r=0.3@wide"])]
    assert (named[0], named[1], named[-1]) == ("analytic", "dslr", "wide")
    assert sorted(named[:-1]) == sorted(METHODS)
