"""Runs: a folder that is the unit of truth, and a kill that leaves no trace in the results."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from evergraph.config import RunConfig, Variant, resolve, settable_keys
from evergraph.device import pick_device
from evergraph.errors import InputError
from evergraph.events import Event, TaskDone, TaskStarted
from evergraph.lab.folder import Run
from evergraph.lab.runs import check_settings, execute
from evergraph.methods import METHODS
from evergraph.stream import Graph, Protocol, TaskStream

SHARED = {"epochs": 2, "link_epochs": 2, "channels": 4, "heads": 2, "buffer_size": 12}


class Killed(BaseException):
    """Stands for a kill, which no code may catch."""


@pytest.fixture
def graph(make_graph: Callable[..., Graph]) -> Graph:
    return make_graph(60, 6)


def make_config(method: str = "dslr", seed: int = 0, **shared: Any) -> RunConfig:
    variant = Variant.parse(method)
    if "condense_steps" in settable_keys(variant.name):
        shared = {"condense_steps": 3, **shared}
    return resolve(Variant.parse("tiny.npz"), variant, seed, {**SHARED, **shared})


def kill_at(kind: type[Event], task: int) -> Callable[[Event], None]:
    """Makes a listener that dies at the given event."""

    def listen(event: Event) -> None:
        if isinstance(event, kind) and event.task == task:
            raise Killed

    return listen


def without_seconds(results: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in results.items() if key != "seconds"}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


VARIANTS = [
    *METHODS,
    "dslr:structure=homophily",
    "dslr:candidates=entire",
    "dslr:sl_ratio=0.5,addition=threshold,deletion=lowest",
    "replay:selector=mf,replay_weights=balanced",
    "replay:selector=cd,beta=share",
    "joint:warm_start=true",
]


@pytest.mark.parametrize("method", VARIANTS)
def test_killed_run_continues_to_the_same_results(tmp_path: Path, graph: Graph, method: str):
    config = make_config(method)
    whole = execute(Run(tmp_path / "whole", config), graph=graph)
    assert whole["diagnostics"]
    for kind, task in ((TaskDone, 0), (TaskStarted, 2)):
        path = tmp_path / f"{kind.__name__}-{task}"
        with pytest.raises(Killed):
            execute(Run(path, config), graph=graph, on_event=kill_at(kind, task))
        assert not (path / "results.json").exists()
        events: list[Event] = []
        again = execute(Run(path, config), graph=graph, on_event=events.append)
        assert {event.task for event in events} == set(range(task + (kind is TaskDone), 3))
        assert without_seconds(again) == without_seconds(whole)
        assert without_seconds(read(path / "results.json")) == without_seconds(whole)
        assert len((path / "events.jsonl").read_text().splitlines()) == 3


def test_run_killed_twice_continues_to_the_same_results(tmp_path: Path, graph: Graph):
    config = make_config()
    whole = execute(Run(tmp_path / "whole", config), graph=graph)
    for kind, task in ((TaskStarted, 0), (TaskDone, 0), (TaskDone, 1)):
        with pytest.raises(Killed):
            execute(Run(tmp_path / "again", config), graph=graph, on_event=kill_at(kind, task))
    again = execute(Run(tmp_path / "again", config), graph=graph)
    assert without_seconds(again) == without_seconds(whole)
    assert set(again["seconds"]) == set(whole["seconds"])


def test_run_killed_after_the_last_task_continues(tmp_path: Path, graph: Graph):
    config = make_config()
    whole = execute(Run(tmp_path / "whole", config), graph=graph)
    with pytest.raises(Killed):
        execute(Run(tmp_path / "again", config), graph=graph, on_event=kill_at(TaskDone, 2))
    again = execute(Run(tmp_path / "again", config), graph=graph)
    assert without_seconds(again) == without_seconds(whole)


def test_finished_run_is_not_run_again(tmp_path: Path, graph: Graph):
    config = make_config()
    first = execute(Run(tmp_path / "run", config), graph=graph)
    at = (tmp_path / "run" / "results.json").stat().st_mtime_ns
    events: list[Event] = []
    assert execute(Run(tmp_path / "run", config), graph=graph, on_event=events.append) == first
    assert events == []
    assert (tmp_path / "run" / "results.json").stat().st_mtime_ns == at


def test_execute_leaves_the_callers_floats_alone(tmp_path: Path, graph: Graph):
    # Flushing denormals is a state of the processor: a library must not leave it changed.
    torch.set_flush_denormal(False)
    execute(Run(tmp_path / "run", make_config("finetune")), graph=graph)
    assert float(torch.tensor(2.0**-140) * 1) == 2.0**-140


def test_run_folder_holds_no_pickle(tmp_path: Path, graph: Graph):
    for method in METHODS:
        execute(Run(tmp_path / method, make_config(method)), graph=graph)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".yaml", ".json", ".jsonl", ".safetensors"}
    for path in files:
        content = path.read_bytes()
        assert not content.startswith(b"PK")  # torch's archive of pickles
        if path.suffix == ".safetensors":
            length = int.from_bytes(content[:8], "little")
            header = json.loads(content[8 : 8 + length])
            ends = [item["data_offsets"][1] for key, item in header.items() if key[:2] != "__"]
            assert len(content) == 8 + length + max(ends)  # tensors and nothing else
        else:
            content.decode()  # a pickle is no text: it begins with a byte that is none


def test_results_hold_what_the_design_promises(tmp_path: Path, graph: Graph):
    config = make_config("dslr:tau=0.5@mine", seed=4)
    results = execute(Run(tmp_path / "run", config), graph=graph)
    assert results["schema_version"] == 1
    assert (results["dataset"], results["method"], results["label"]) == ("tiny.npz", "dslr", "mine")
    assert results["overrides"] == {**SHARED, "tau": 0.5}
    assert results["protocol_hash"] == config.protocol.hash
    assert results["config_hash"] == config.hash
    assert results["seed"] == 4
    matrix = results["accuracy_matrix"]
    assert [len(row) for row in matrix] == [1, 2, 3]
    assert all(0 <= value <= 100 for row in matrix for value in row)
    assert results["pm"] == pytest.approx(sum(matrix[-1]) / 3)
    drops = [matrix[task][task] - matrix[-1][task] for task in range(2)]
    assert results["fm"] == pytest.approx(sum(drops) / 2)
    assert results["current"] == pytest.approx(sum(matrix[t][t] for t in range(3)) / 3)
    stages = {key: value for key, value in results["seconds"].items() if key != "total"}
    assert results["seconds"]["total"] == pytest.approx(sum(stages.values()))
    assert {"classify", "evaluate", "selection", "structure"} <= stages.keys()
    assert results["memory_bytes"] > 0
    assert results["tasks"] == [[0, 1], [2, 3], [4, 5]]
    assert results == read(tmp_path / "run" / "results.json")  # plain values, nothing lost


def test_results_of_one_task_have_no_forgetting(tmp_path: Path, graph: Graph):
    results = execute(Run(tmp_path / "run", make_config(classes_per_task=6)), graph=graph)
    assert results["fm"] is None
    assert results["by_class"]["fm"] is None
    assert len(results["accuracy_matrix"]) == 1


def test_claim_takes_an_empty_folder(tmp_path: Path):
    config = make_config()
    for path in (tmp_path, tmp_path / "new" / "deep"):
        assert Run(path, config).claim() is None
        assert Run(path).config == config
        assert Run(path, config).claim() is None


def test_claim_takes_the_same_run_under_another_label(tmp_path: Path):
    Run(tmp_path / "run", make_config("dslr@a")).claim()
    assert Run(tmp_path / "run", make_config("dslr@b")).claim() is None


@pytest.mark.parametrize("other", [{"seed": 1}, {"epochs": 3}, {"method": "replay"}, {"r": 0.5}])
def test_claim_refuses_another_run(tmp_path: Path, other: dict[str, Any]):
    Run(tmp_path, make_config()).claim()
    with pytest.raises(InputError, match=r"dslr on tiny\.npz, seed 0"):
        Run(tmp_path, make_config(**other)).claim()
    assert Run(tmp_path).config == make_config()


def test_claim_refuses_other_files(tmp_path: Path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="other files"):
        Run(tmp_path, make_config()).claim()
    assert [path.name for path in tmp_path.iterdir()] == ["note.txt"]


def test_claim_recovers_from_a_kill_before_the_config(tmp_path: Path, graph: Graph):
    # The folder was made and the process died while config.yaml was written beside.
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.yaml.4711.new").write_text("schema_ver")
    results = execute(Run(tmp_path / "run", make_config("finetune")), graph=graph)
    assert results["method"] == "finetune"


def test_check_settings_counts_classes(graph: Graph):
    stream = TaskStream(graph, Protocol(), seed=0)

    def check(config: RunConfig) -> None:
        check_settings(config, stream, config.make_method())

    check(make_config(buffer_size=6))
    check(make_config("finetune"))
    with pytest.raises(InputError, match=r"'buffer_size' .* 6 \(got 5\)"):
        check(make_config(buffer_size=5))


def test_pick_device_knows_cpu_and_auto():
    assert pick_device("cpu") == torch.device("cpu")
    assert pick_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("nonsense", "meta", ""):
        with pytest.raises(InputError, match=f"got '{name}'"):
            pick_device(name)


@pytest.mark.parametrize(
    ("changes", "mention"),
    [
        ({"model": {"backbone": "gcn"}}, "'backbone' to be 'gat' for RCLG"),
        ({"protocol": {"validation_fraction": 0.0}}, "'validation_fraction' above 0 for RCLG"),
    ],
    ids=["backbone", "validation"],
)
def test_execute_refuses_what_a_method_cannot_do_before_it_writes(
    tmp_path: Path, graph: Graph, changes: dict[str, Any], mention: str
):
    content = make_config("rclg").model_dump()
    for section, values in changes.items():
        content[section] |= values
    config = RunConfig.model_validate(content)
    with pytest.raises(InputError, match=mention):
        execute(Run(tmp_path / "run", config), graph=graph)
    assert not (tmp_path / "run").exists()
