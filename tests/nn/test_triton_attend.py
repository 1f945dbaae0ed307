"""The CUDA kernels, run by Triton's interpreter where there is no GPU, against plain PyTorch."""

import os
import subprocess
import sys

import pytest
import torch

from evergraph.nn.attention import attend_plain
from evergraph.stream import Adjacency

pytest.importorskip("triton", reason="needs Triton")


@pytest.fixture(scope="module")
def kernels():
    from evergraph.nn.kernels import triton_attend

    return triton_attend


def graph_of(kind):
    generator = torch.Generator().manual_seed(0)
    if kind == "one node":
        return Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), 1)
    if kind == "no edges":
        return Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), 7)
    n = 100 if kind == "hub" else 40
    pairs = torch.randint(0, 20 if kind == "isolated" else n, (2, 60), generator=generator)
    if kind == "hub":
        pairs = torch.stack([torch.zeros(n - 1, dtype=torch.int64), torch.arange(1, n)])
    pairs = pairs[:, pairs[0] != pairs[1]]
    both = torch.unique(torch.cat([pairs, pairs.flip(0)], dim=1), dim=1)
    return Adjacency.from_edges(both, n)


@pytest.mark.parametrize("channels", [4, 6])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("kind", ["random", "hub", "isolated", "no edges", "one node"])
def test_kernels_equal_the_plain_sums_and_their_gradients(kernels, kind, loops, channels):
    graph = graph_of(kind)
    graph = graph.with_self_loops if loops else graph
    device = "cuda" if torch.cuda.is_available() else "cpu"
    graph = graph.to(device)
    generator = torch.Generator().manual_seed(1)
    alpha = torch.rand(graph.num_edges, 2, generator=generator).to(device).requires_grad_()
    wx = torch.randn(graph.num_nodes, 2, channels, generator=generator).to(device)
    wx.requires_grad_()
    weight = torch.randn(graph.num_nodes, 2, channels, generator=generator).to(device)
    expected = attend_plain(alpha, wx, graph)
    (expected * weight).sum().backward()
    with torch.no_grad():
        out = kernels.weighted_sums(graph.chunks, graph.csr[1], alpha, wx)
        by_source = alpha[graph.by_source]
        grad_wx = kernels.weighted_sums(
            graph.source_chunks, graph.csr_by_source[1], by_source, weight
        )
        grad_alpha = kernels.edge_products(graph, weight, wx)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grad_wx, wx.grad, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grad_alpha, alpha.grad, rtol=1e-5, atol=1e-5)


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from evergraph.nn.kernels import triton_attend as kernels

sizes = {"heads": 4, "channels": 64, "block_channels": 64, "block_edges": kernels.EDGES}
constants = dict.fromkeys(sizes, "constexpr")
rows = {"out": "*fp32"}
sums = {"chunks": "*i64", "columns": "*i32", "weights": "*fp32", "rows": "*fp32"}
products = {"targets": "*i64", "sources": "*i64", "left": "*fp32", "right": "*fp32"}
for kernel, signature in (
    (kernels._weighted_sums, {**sums, **rows, **constants}),
    (kernels._edge_products, {**products, **rows, "num_edges": "i32", **constants}),
):
    source = ASTSource(kernel, signature=signature, constexprs=sizes)
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
"""


def test_kernels_compile_for_a_gpu_that_is_not_there(tmp_path):
    # The interpreter accepts what the compiler refuses, so the compiler is asked as well.
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    answer = subprocess.run(
        [sys.executable, "-c", COMPILE],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
