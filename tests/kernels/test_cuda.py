"""The CUDA kernels, interpreted where there is no GPU, against numba's; and compiled for one."""

from __future__ import annotations

import pytest
import torch

from evergraph.kernels import cpu
from evergraph.stream import adjacency as pattern
from evergraph.structure import pair_pattern
from support import run_compiler, seeded

pytest.importorskip("triton", reason="needs Triton")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MARGIN = 1e-6


@pytest.fixture(scope="module")
def cuda():
    from evergraph.kernels import cuda

    return cuda


@pytest.mark.parametrize("rectify", [False, True])
@pytest.mark.parametrize("size", [(3, 700), (1, 5), (0, 4)])
def test_triton_drops_what_numba_drops(cuda, size, rectify):
    """Both draw the same mask from the same seed."""
    rows = torch.randn(size, generator=seeded())
    seed = 7_234_567_890_123_456_789
    on_device = torch.tensor([seed], device=DEVICE)
    expected = cpu.drop(rows, seed, 77, rectify=rectify)
    found = cuda.drop(rows.to(DEVICE), on_device, 77, rectify=rectify)
    torch.testing.assert_close(found.cpu(), expected)
    again = cuda.drop(rows.to(DEVICE).clone(), on_device, 77, rectify=rectify, in_place=True)
    assert torch.equal(again, found)


def make_pairs(kind: str, n: int) -> torch.Tensor:
    if kind == "none":
        return torch.empty(2, 0, dtype=torch.int64)
    if kind == "hub":
        return torch.stack([torch.zeros(n - 1, dtype=torch.int64), torch.arange(1, n)])
    return torch.randint(n // 2, (2, 2 * n), generator=seeded())  # half the rows are empty


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("kind", ["random", "hub", "none"])
@pytest.mark.parametrize("width", [4, 6])
def test_triton_link_loss_equals_numba(monkeypatch, cuda, kind, positive, width):
    monkeypatch.setattr(pattern, "CHUNK", 20)
    n, generator = 50, seeded(1)
    z = torch.randn(n, width, generator=generator)
    z[1] = z[0]  # a score that is clamped
    unit = torch.nn.functional.normalize(z, dim=1)
    pairs = make_pairs(kind, n)
    valid = torch.rand(pairs.shape[1], generator=generator) < 0.8
    expected = cpu.pair_terms(pair_pattern(pairs, n, valid), unit, positive, MARGIN)
    found = cuda.pair_terms(
        pair_pattern(pairs.to(DEVICE), n, valid.to(DEVICE)), unit.to(DEVICE), positive, MARGIN
    )
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=2e-5, atol=2e-5)


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from evergraph.kernels import cuda, triton_kernels as kernels

def compiled(kernel, kinds, sizes, options):
    signature = {name: "constexpr" if name in sizes else kinds(name) for name in kernel.arg_names}
    constants = {name: size for name, size in sizes.items() if name in signature}
    source = ASTSource(kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]

INTEGERS = {"bounds", "owner", "place", "hubs", "parts", "seed"}
NUMBERS = {"slope": "fp32", "undo": "fp32", "scale": "fp32", "margin": "fp32", "num_rows": "i32",
           "size": "i32", "dropped": "i32", "columns": "*i32"}
ATTEND = {"heads": 4, "channels": 64, "block_channels": 64, "block_edges": 8, "block_rows": 16}
# Attention's ``share`` and ``positive`` are arrays, dropout's and the pairs' are sizes.
OTHERS = {"width": 256, "block_width": 256, "block_edges": 8, "positive": True, "rectify": True,
          "share": 1024}

def kind(name):
    return NUMBERS.get(name, "*i64" if name in INTEGERS else "*fp32")

for kernel in (kernels.attend_forward, kernels.attend_backward_targets,
               kernels.attend_backward_sources):
    assert compiled(kernel, kind, ATTEND, {})
for weighed in (False, True):
    assert compiled(kernels.join, kind, {**ATTEND, "weighed": weighed}, {})
for kernel in (kernels.pair_terms, kernels.drop):
    assert compiled(kernel, kind, OTHERS, {})

def distances(kernel, out, **each):
    sizes = {**each, "lanes": cuda.LANES, "unroll": cuda.UNROLL}
    kinds = {"a": "*fp32", "b": "*fp32", "radius": "*fp32", "out": out}
    return compiled(kernel, lambda name: kinds.get(name, "i32"), sizes, cuda.DISTANCES)

each = cuda.EACH
for ptx in (
    distances(kernels.write_distances, "*fp32", each_a=each, each_b=each),
    distances(kernels.write_distances, "*fp32", each_a=1, each_b=each),
    distances(kernels.reduce_distances, "*i32", each=each, counts=True),
    distances(kernels.reduce_distances, "*fp64", each=each, counts=False),
):
    # Roots are rounded correctly, and each pair is one difference and one fused step.
    assert "sqrt.rn.f32" in ptx and "sqrt.approx" not in ptx
    assert ptx.count("fma.rn.f32") == ptx.count("sub.f32") > 0, ptx
"""


def test_kernels_compile_for_a_gpu_that_is_not_there(tmp_path):
    # The interpreter accepts what the compiler refuses, so the compiler is asked as well.
    answer = run_compiler(COMPILE, tmp_path)
    assert answer.returncode == 0, answer.stderr
