"""Fused attention against the plain one: numba on the CPU, Triton on CUDA or interpreted."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from evergraph.errors import InputError
from evergraph.kernels import attention, cpu, has_kernels
from evergraph.kernels.attention import SLOPE, LayerWeights, attend, attend_plain
from evergraph.kernels.ops import Activation, relu_dropout
from evergraph.stream import Adjacency
from evergraph.stream import adjacency as pattern
from support import adjacency, seeded

CUDA = torch.cuda.is_available()


def randn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=dtype)


def random_pairs(n: int, count: int, seed: int = 0) -> list[tuple[int, int]]:
    return [tuple(pair) for pair in torch.randint(n, (count, 2), generator=seeded(seed)).tolist()]


GRAPHS = {
    "random": adjacency(20, random_pairs(20, 30)),
    "isolated": adjacency(20, random_pairs(10, 15, 1)),
    "hub": adjacency(50, [(0, i) for i in range(1, 50)] + random_pairs(50, 10, 2)),
    "no edges": adjacency(7, []),
    "one node": adjacency(1, []),
}


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch):
    """Lets small hubs be cut, so that the interpreter has little to do."""
    monkeypatch.setattr(pattern, "CHUNK", 20)


PATH = adjacency(5, [(0, 1), (1, 2), (1, 4)])  # node 3 hears nobody

graphs = st.integers(1, 7).flatmap(
    lambda n: st.builds(
        adjacency,
        st.just(n),
        st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=2 * n),
    )
)


def inputs(graph: Adjacency, channels: int = 3, seed: int = 0, dtype=torch.float64):
    """Projected rows, attention vectors and bias of a layer with two heads."""
    rows = randn(graph.num_nodes, 2, channels, seed=seed, dtype=dtype)
    return rows, *(randn(2, channels, seed=seed + k, dtype=dtype) for k in (1, 2, 3))


def plain(values, graph: Adjacency) -> torch.Tensor:
    """The layer by definition; an identity projects the rows."""
    wx, *others = values
    one = torch.eye(wx[0].numel(), dtype=wx.dtype)
    return attend_plain(wx.flatten(1), LayerWeights(one, *others), graph)[0].view_as(wx)


def by_definition(graph, weight, values):
    """Output and gradients of the plain path."""
    leaves = [value.clone().requires_grad_() for value in values]
    out = plain(leaves, graph)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)]


def by_kernels(kernels, graph, weight, values):
    """The same by a module of compiled passes."""
    wx, att_src, att_dst, bias = values
    out, positive, share, saved = kernels.attend_forward(graph.pattern, wx, values[1:], SLOPE)
    delta, grad_target, grad_bias = kernels.attend_backward_targets(
        graph.pattern, weight, (out, 1.0), (positive, share, bias), SLOPE
    )
    gradients = kernels.attend_backward_sources(
        graph.transpose, weight, (wx, att_src, att_dst), (*saved, delta, grad_target), SLOPE
    )
    return [out, *gradients, grad_bias]


@pytest.fixture(scope="module")
def cuda():
    pytest.importorskip("triton", reason="needs Triton")
    from evergraph.kernels import cuda

    return cuda


def test_attention_by_hand():
    # Scores are all zero, so that every neighbour weighs the same; the bias is one.
    x = torch.tensor([[10.0], [20.0], [30.0], [40.0], [60.0]])
    weights = LayerWeights(torch.ones(1, 1), torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1))
    for out in (attend(x, weights, PATH), attend_plain(x, weights, PATH)[0]):
        torch.testing.assert_close(out.flatten(), torch.tensor([21, 103 / 3, 21, 1, 21]))


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("kind", GRAPHS)
def test_numba_equals_plain_in_double_precision(kind, loops):
    graph = GRAPHS[kind].with_self_loops if loops else GRAPHS[kind]
    weight = randn(graph.num_nodes, 2, 3, seed=9)
    found = by_kernels(cpu, graph, weight, inputs(graph))
    for ours, theirs in zip(found, by_definition(graph, weight, inputs(graph)), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@given(graphs, st.integers(0, 99))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_numba_equals_plain_on_any_graph(graph, seed):
    weight = randn(graph.num_nodes, 2, 3, seed=seed + 9)
    values = inputs(graph, seed=seed)
    found = by_kernels(cpu, graph, weight, values)
    for ours, theirs in zip(found, by_definition(graph, weight, values), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("channels", [4, 6])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("kind", GRAPHS)
def test_triton_equals_plain(cuda, kind, loops, channels):
    graph = GRAPHS[kind].with_self_loops if loops else GRAPHS[kind]
    device = "cuda" if CUDA else "cpu"
    values = tuple(value.to(device) for value in inputs(graph, channels, dtype=torch.float32))
    weight = randn(graph.num_nodes, 2, channels, seed=9, dtype=torch.float32).to(device)
    expected = by_definition(graph, weight.double().cpu(), [v.double().cpu() for v in values])
    found = by_kernels(cuda, graph.to(device), weight, values)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double().cpu(), theirs, rtol=5e-5, atol=5e-5)


def layer_values(dtype=torch.float64):
    """Rows with four columns, their projection to two heads of three channels, the rest."""
    return (
        randn(5, 4, seed=1, dtype=dtype).requires_grad_(),
        randn(4, 6, seed=2, dtype=dtype).requires_grad_(),
        *(randn(2, 3, seed=k, dtype=dtype).requires_grad_() for k in (3, 4, 5)),
    )


def layer(x, *weights):
    return attend(x, LayerWeights(*weights), PATH)


@pytest.mark.parametrize("kept_bytes", [0, 10**9])
def test_attend_derivatives(monkeypatch, kept_bytes):
    """Whether projected rows are kept or computed anew."""
    monkeypatch.setattr(attention, "KEPT_BYTES", kept_bytes)
    values = layer_values()
    assert gradcheck(layer, values)
    assert gradcheck(lambda x, *w: attend_plain(x, LayerWeights(*w), PATH)[0], values)
    assert gradgradcheck(lambda x, *w: attend_plain(x, LayerWeights(*w), PATH)[0], values)


def test_attend_with_activation_equals_plain_then_activation():
    values = layer_values(torch.float32)
    activation = Activation.draw(0.4, seeded(1), torch.device("cpu"))
    fused = attend(values[0], LayerWeights(*values[1:]), PATH, activation)
    shown, _ = attend_plain(values[0], LayerWeights(*values[1:]), PATH)
    expected = relu_dropout(shown, 0.4, seeded(1), fused=False)
    assert (expected == 0).any()
    assert (expected > 0).any()
    torch.testing.assert_close(fused, expected)
    weight = randn(5, 6, seed=8, dtype=torch.float32)
    for ours, theirs in zip(
        torch.autograd.grad((fused * weight).sum(), values),
        torch.autograd.grad((expected * weight).sum(), values),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("power", [1, 2])
def test_attend_raises_when_asked_for_a_second_derivative(power):
    """Also of a linear loss, and also by ``autograd.grad``: silence would be a wrong number."""
    values = layer_values()

    def second() -> tuple[torch.Tensor, ...]:
        loss = (layer(*(2 * value for value in values)) ** power).sum()
        gradients = torch.autograd.grad(loss, values, create_graph=True)
        return torch.autograd.grad(sum((g**2).sum() for g in gradients), values)

    with pytest.raises(InputError, match="'double_backward'"):
        second()


def test_scores_far_apart_do_not_overflow():
    graph = GRAPHS["random"].with_self_loops
    wx, att_src, att_dst, bias = inputs(graph)
    values = (wx, 1e4 * att_src, 1e4 * att_dst, bias)
    weight = torch.ones_like(wx)
    found = by_kernels(cpu, graph, weight, values)
    for ours, theirs in zip(found, by_definition(graph, weight, values), strict=True):
        assert torch.isfinite(ours).all()
        torch.testing.assert_close(ours, theirs)


def test_threads_do_not_change_the_bits():
    graph = GRAPHS["hub"].with_self_loops
    weight = randn(graph.num_nodes, 2, 3, seed=9)
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(by_kernels(cpu, graph, weight, inputs(graph)))
    finally:
        torch.set_num_threads(threads)
    assert all(map(torch.equal, *found))


START = """
import torch
torch.set_num_threads(1)
from evergraph.kernels.ops import dense_dropout
dense_dropout(torch.ones(3, 3), 0.5, torch.Generator().manual_seed(0))
print(torch.get_num_threads())
"""


def test_kernels_leave_the_number_of_threads_alone():
    answer = subprocess.run(
        [sys.executable, "-c", START], capture_output=True, text=True, check=True, timeout=120
    )
    assert answer.stdout.split() == ["1"]


def test_two_callers_at_once_wait_for_each_other():
    values = layer_values()
    expected = layer(*values)
    found = []
    callers = [
        threading.Thread(target=lambda: found.extend(layer(*values) for _ in range(20)))
        for _ in range(2)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 40
    assert all(torch.equal(out, expected) for out in found)


def test_where_there_are_kernels():
    assert has_kernels(torch.device("cpu"))
    assert not has_kernels(torch.device("meta"))
