"""Several workers together: see ``in_team.py``, which two processes run once for all tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch

from evergraph.errors import InputError
from evergraph.team import ALONE, Team

SCRIPT = Path(__file__).with_name("in_team.py")
CHECKS = re.findall(r"def (check_\w+)", SCRIPT.read_text("utf-8"))
LAUNCH = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What came of every check, in either worker."""
    place = tmp_path_factory.mktemp("team") / "answers"
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parents[1])}
    done = subprocess.run(
        [sys.executable, *LAUNCH, str(SCRIPT), str(place)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(Path(f"{place}-{rank}.json").read_text("utf-8")) for rank in (0, 1)]


@pytest.mark.parametrize("name", CHECKS)
def test_workers_together(answers: list[dict[str, str]], name: str):
    for answer in answers:
        assert answer.get(name, "not reached") == ""


def test_one_worker_answers_itself():
    rows = torch.arange(6.0).reshape(3, 2)
    assert Team.join({}) is ALONE
    assert ALONE.leads
    assert torch.equal(ALONE.pick(rows, torch.tensor([2, 0])), rows[[2, 0]])
    assert ALONE.gather(rows) is ALONE.sum(rows) is ALONE.tell(rows) is rows
    assert torch.equal(
        ALONE.ask(torch.zeros(1).long(), torch.tensor([1]), rows.__getitem__), rows[1:2]
    )
    assert torch.equal(ALONE.share(rows), rows)


def test_workers_that_nobody_started_are_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("evergraph.team.PATIENCE", timedelta(seconds=1))
    for name, value in {"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"Expected to meet 1 other workers at '127.0.0.1:9'"):
        Team.join()
