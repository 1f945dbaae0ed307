"""The script that leaves out edges between tasks: nothing else is left out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import torch

from evergraph.stream import Graph, Protocol, TaskStream

SCRIPT = Path(__file__).parents[2] / "scripts" / "task_islands.py"


def test_islands_have_every_edge_within_a_task_and_no_other(make_graph: Callable[..., Graph]):
    spec = importlib.util.spec_from_file_location("task_islands", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    stream = TaskStream(make_graph(60, 6), Protocol(), 0)
    whole, apart = module.islands(stream, "g")
    task = whole.y // 2  # labels are in order of arrival, two a task
    inside = (task[whole.edges[0]] == task[whole.edges[1]]).tolist()
    kept = [pair for pair, keeps in zip(whole.edges.T.tolist(), inside, strict=True) if keeps]
    assert apart.edges.T.tolist() == kept
    assert 0 < len(kept) < whole.num_edges == stream.edges.shape[1]
    assert torch.equal(whole.y, apart.y)
    again = TaskStream(apart, Protocol(), 0)
    assert [len(task.classes) for task in again.tasks] == [2, 2, 2]
    assert torch.equal(again.labels, stream.labels)
