"""The page without a browser: its values by hand, its safety, the command."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
import torch

from evergraph.lab.diagnostics import project
from evergraph.lab.page import SCRIPTS, embed, render_page
from evergraph.lab.page.data import page_data
from made_runs import make_grid, make_run, planted_samples
from support import Command


def data_of(folder: Path) -> dict:
    return page_data(folder)


def test_page_data_by_hand(tmp_path: Path):
    for seed in range(2):  # PM 75 and 76, FM 20 and 19
        make_run(tmp_path / str(seed), seed=seed)
    data = data_of(tmp_path)
    assert (data["num_runs"], data["order"], len(data["quantiles"])) == (2, ["dslr"], 1)
    assert data["quantiles"][0] == pytest.approx(12.7062, abs=1e-4)
    (group,) = data["datasets"][0]["groups"]
    assert (group["seeds"], group["pm"], group["fm"]) == ([0, 1], [75.0, 76.0], [20.0, 19.0])
    assert group["estimates"]["pm"]["mean"] == 75.5
    assert group["estimates"]["pm"]["std"] == pytest.approx(0.5**0.5)
    assert group["claims"]["pm"]["mean"] == 81.59
    assert group["claims"]["pm"]["difference"] == pytest.approx(75.5 - 81.59)
    assert group["matrices"]["task"] == [[[90.0], [70.0, 80.0]], [[91.0], [72.0, 80.0]]]
    assert group["matrices"]["class"][0] == [[90.0, 90.0], [70.0, 70.0, 80.0, 80.0]]
    assert group["stages"] == {"classify": 3.0, "evaluate": 1.0}
    first, second = group["by_task"]
    assert first == {
        "seconds": {"classify": 1.5, "evaluate": 0.5},
        "memory_bytes": 0,
        "edits": None,
    }
    assert second["edits"] == {"added": 6.0, "removed": 2.0}
    assert group["config"]["training.epochs"] == 500
    (place,) = group["environments"]
    assert (place["seeds"], place["environment"]["device"]) == ([0, 1], "cpu")


def test_page_data_takes_samples_of_the_first_run_that_has_them(tmp_path: Path):
    make_run(tmp_path / "a", seed=0)
    make_run(tmp_path / "b", seed=1, diagnostics=planted_samples())
    (group,) = data_of(tmp_path)["datasets"][0]["groups"]
    assert group["embedding"]["seed"] == 1
    assert group["embedding"]["nodes"][:2] == [100, 101]
    assert len(group["embedding"]["components"]) == 2
    assert len(group["embedding"]["places"]) == 80
    assert group["edited"]["nodes"][0]["neighbours"] == [8, 9, 10, 11]
    assert group["buffer"] == {"diversity": 1.25}


def test_project_leaves_few_points_and_one_dimension_alone():
    assert project(torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])) == [[1.0, 2.0], [4.0, 5.0]]
    assert project(torch.ones(9, 1)) == [[1.0, 0.0]] * 9
    assert len(project(torch.eye(9))) == 9


def test_page_data_of_old_results_has_no_samples(tmp_path: Path):
    make_run(tmp_path / "a", diagnostics=None)
    (group,) = data_of(tmp_path)["datasets"][0]["groups"]
    assert "embedding" not in group
    assert group["buffer"] == {}


def test_page_data_orders_the_reference_first(tmp_path: Path):
    make_grid(tmp_path, ("ewc", "joint", "dslr"), 1)
    assert data_of(tmp_path)["order"] == ["dslr", "ewc", "joint"]
    (tmp_path / "comparisons.json").write_text('[{"reference": "joint"}]')
    assert data_of(tmp_path)["order"] == ["joint", "dslr", "ewc"]


def test_page_data_finds_series_of_buffer_sizes(tmp_path: Path):
    methods = ("dslr", "dslr:buffer_size=50@dslr-50", "dslr:buffer_size=50,r=0.9@wide", "joint")
    make_grid(tmp_path, methods, 1)
    (series,) = data_of(tmp_path)["datasets"][0]["sizes"]
    assert series == {"name": "dslr", "sizes": [(50, "dslr-50"), (100, "dslr")]}


HOSTILE = '</script><script>alert("x")</script><!-- ]]> & \u2028 $data'


def test_embed_cannot_leave_its_element():
    text = embed({HOSTILE: [HOSTILE]})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {HOSTILE: [HOSTILE]}


def test_render_page_escapes_names_and_reads_back(tmp_path: Path):
    make_run(tmp_path / "a", label=HOSTILE, class_names=[HOSTILE, "b", "c", "d"])
    data = data_of(tmp_path)
    data["title"] = HOSTILE
    page = render_page(data)
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    held = page.split('id="data">')[1].split("</script>")[0]
    assert json.loads(held) == json.loads(json.dumps(data))


def test_render_page_lets_only_its_own_program_run(tmp_path: Path):
    make_run(tmp_path / "a")
    page = render_page(data_of(tmp_path))
    for kind in ("script", "style"):
        content = page.split(f"<{kind}>")[1].split(f"</{kind}>")[0]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in page
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)", page)
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page


def test_page_is_the_same_for_the_same_folder(tmp_path: Path):
    make_grid(tmp_path, ("dslr", "joint"), 2)
    assert render_page(data_of(tmp_path)) == render_page(data_of(tmp_path))


def test_every_program_file_is_used():
    folder = Path(__file__).parents[3] / "src" / "evergraph" / "lab" / "page"
    used = {name for names in SCRIPTS.values() for name in names}
    assert sorted(path.name for path in folder.glob("*.js")) == sorted(used)


def test_report_writes_the_page_beside_the_runs(command: Command, tmp_path: Path):
    make_grid(tmp_path / "grid", ("dslr", "joint"), 2)
    answer = command("report", tmp_path / "grid")
    assert answer.code == 0
    assert "4 runs" in answer.out
    assert "<h1>grid</h1>" in (tmp_path / "grid" / "report.html").read_text()


def test_report_opens_the_page_when_asked(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
):
    make_run(tmp_path / "run")
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    assert command("report", tmp_path / "run").code == 0
    assert opened == []
    assert command("report", tmp_path / "run", "--open").code == 0
    assert opened == [(tmp_path / "run" / "report.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda url: False)
    assert "open the file yourself" in command("report", tmp_path / "run", "--open").out


def test_report_writes_where_it_is_told(command: Command, tmp_path: Path):
    make_run(tmp_path / "run")
    answer = command("report", tmp_path / "run", "-o", tmp_path / "new" / "page.html")
    assert answer.code == 0
    assert (tmp_path / "new" / "page.html").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("nowhere",), "Expected a folder with runs (got 'nowhere')"),
        (("empty",), "Expected 'empty' to hold a finished run"),
        (("run", "-o", "empty"), "Expected '--output' to be a file (got the folder 'empty')"),
        (("run", "--figures", "f", "--format", "gif"), "Expected '--format' pdf, png, svg (got"),
        (("run", "--format", "png"), "Expected '--figures' with '--format' (got 'png' alone)"),
        (("run", "--figures", "file"), "Expected '--figures' to be a folder (got the file"),
    ],
)
def test_report_refuses_in_one_sentence(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words, sentence: str
):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "run")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    answer = command("report", *words)
    assert answer.code == 2
    assert answer.err.startswith(f"evergraph: {sentence}")
    assert answer.err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before
