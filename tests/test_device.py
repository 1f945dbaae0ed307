"""Which mode a run takes, and why."""

from __future__ import annotations

import pytest
import torch

from evergraph.device import make_plan, pick_device, total_memory
from evergraph.errors import InputError
from evergraph.nn import ModelConfig
from evergraph.nn.model import check_network, training_bytes


def test_plan_takes_the_whole_graph_where_it_fits():
    plan = make_plan("auto", needed=7 * 10**9, memory=10 * 10**9)
    assert plan.batch_size is None
    assert plan.mode == "full batch"
    assert plan.reason == "the whole graph needs about 7.00 GB of 10.00 GB"


def test_plan_samples_where_the_whole_graph_does_not_fit():
    plan = make_plan("auto", needed=9 * 10**9, memory=10 * 10**9)
    assert plan.batch_size == 1024
    assert plan.mode == "sampled, 1024 nodes"
    assert "9.00 GB of 10.00 GB" in plan.reason


@pytest.mark.parametrize(("asked", "batch_size"), [("full", None), (64, 64)])
def test_plan_does_as_asked(asked, batch_size):
    for needed in (1, 10**12):
        plan = make_plan(asked, needed, memory=10**9)
        assert plan.batch_size == batch_size
        assert plan.reason.startswith("as asked")


def test_training_bytes_grow_with_every_part():
    base = training_bytes(1000, 10_000, 50_000, ModelConfig())
    assert training_bytes(2000, 10_000, 50_000, ModelConfig()) > base
    assert training_bytes(1000, 20_000, 50_000, ModelConfig()) > base
    assert training_bytes(1000, 10_000, 90_000, ModelConfig()) > base
    assert training_bytes(1000, 10_000, 50_000, ModelConfig(num_layers=3)) > base


def test_training_bytes_count_grown_channels_and_the_plain_path():
    base = training_bytes(1000, 10_000, 0, ModelConfig())
    grown = training_bytes(1000, 10_000, 0, ModelConfig(), channels=128)
    assert grown == training_bytes(1000, 10_000, 0, ModelConfig(channels=128)) > base
    # Two layers, each with several rows of 256 numbers for every edge.
    plain = training_bytes(1000, 10_000, 0, ModelConfig(), plain=True)
    assert plain - base >= 2 * 4 * 10_000 * 256 * 4
    gcn = ModelConfig(backbone="gcn")  # whose paths hold nothing of edge size
    assert training_bytes(1000, 10_000, 0, gcn, plain=True) == base


def test_total_memory_of_this_machine():
    assert total_memory(torch.device("cpu")) > 10**8


def test_pick_device_refuses_a_number_that_is_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(
        InputError, match=r"got 'cuda:2', but PyTorch finds 2\); use --device cpu or"
    ):
        pick_device("cuda:2")


def test_check_network_refuses_what_cannot_be_allocated():
    check_network(ModelConfig(), 1433, 10**9)
    with pytest.raises(InputError, match=r"'channels', 'heads' and 'num_layers'.*fits in 1.00 GB"):
        check_network(ModelConfig(channels=10**6), 10, 10**9)
