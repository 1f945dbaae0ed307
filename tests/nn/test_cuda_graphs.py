"""Recorded steps must be the written ones; the recording itself needs a GPU."""

import pytest
import torch

from evergraph.events import Epoch, TaskDone
from evergraph.methods import METHODS, Method, TrainConfig, make_method
from evergraph.nn import ModelConfig
from evergraph.nn import cuda_graphs as repeat
from evergraph.stream import Protocol, TaskStream
from evergraph.train import Learner, records, train

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def _run(graph, method):
    learner = Learner(make_method(method))
    stream = TaskStream(graph, Protocol(test_share=0.3, validation_fraction=0.1), 0)
    losses, rows = [], []
    events = train(
        learner,
        stream,
        ModelConfig(channels=8, heads=2, dropout=0.5),
        TrainConfig(epochs=20),
        seed=0,
        device="cuda",
    )
    for event in events:
        if isinstance(event, Epoch):
            losses.append(float(event.loss))
        elif isinstance(event, TaskDone):
            rows.append(event.row)
    weights = [p.detach().cpu() for p in learner.model.parameters()]
    return losses, rows, weights


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("method", [name for name in METHODS if name not in {"rclg", "analytic"}])
def test_recorded_steps_equal_written_ones(make_graph, method, sparse, monkeypatch):
    graph = make_graph(300, 6, num_features=32, sparse=sparse)
    recorded, again = (_run(graph, method) for _ in range(2))
    monkeypatch.setattr(repeat, "WARM_UP", 10**9)  # steps as written, to the end
    written = _run(graph, method)
    assert recorded[:2] == again[:2]
    assert all(torch.equal(a, b) for a, b in zip(recorded[2], again[2], strict=True))
    assert recorded[0] == pytest.approx(written[0], rel=1e-4)
    for a, b in zip(recorded[2], written[2], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@needs_gpu
def test_recorded_children_of_rclg_are_the_same_every_time(make_graph):
    # Rounding may let another child win, so that written steps are no reference.
    recorded, again = (_run(make_graph(300, 6), "rclg") for _ in range(2))
    assert recorded[:2] == again[:2]


def test_our_methods_are_recorded_and_gem_in_part():
    assert all(records(make_method(name)) for name in METHODS)
    whole = {n for n, cls in METHODS.items() if cls.after_backward is Method.after_backward}
    assert set(METHODS) - whole == {"gem"}  # its projection is solved on the host


def test_methods_of_others_are_not_recorded():
    class Mine(METHODS["finetune"]):
        pass

    assert not records(Mine(Mine.Config()))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("method", ["dslr", "joint"])
def test_cuda_follows_the_cpu(make_graph, method, sparse):
    # Without dropout both start alike; rounding drives them apart only slowly.
    graph = make_graph(300, 6, num_features=32, sparse=sparse)
    losses = {}
    for device in ("cpu", "cuda"):
        stream = TaskStream(graph, Protocol(test_share=0.3), 0)
        events = train(
            Learner(make_method(method, {"structure": "none"} if method == "dslr" else {})),
            stream,
            ModelConfig(channels=8, heads=2, dropout=0.0),
            TrainConfig(epochs=12),
            seed=0,
            device=device,
        )
        losses[device] = [float(e.loss) for e in events if isinstance(e, Epoch)]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=2e-2)
