"""IM: both ways to solve against a Hessian by autograd, and the order they give."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.memory import SelectionPool, influence
from evergraph.memory.influence import full_hessian, hessian_product, influence_norms
from evergraph.memory.selectors import InfluenceMaximization
from evergraph.stream import Adjacency


def example(m: int = 12, d: int = 3, k: int = 4, seed: int = 0):
    """Embeddings, a head and labels in double precision."""
    generator = torch.Generator().manual_seed(seed)
    h = torch.randn(m, d, generator=generator, dtype=torch.float64) * 3
    head = torch.randn(k, d + 1, generator=generator, dtype=torch.float64)
    labels = torch.randint(k, (m,), generator=generator)
    return h, head, labels


def inputs(h: torch.Tensor) -> torch.Tensor:
    return torch.cat([h.relu(), torch.ones(h.shape[0], 1, dtype=h.dtype)], dim=1)


def autograd_norms(h, head, labels) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean Hessian without damping and ‖I(v)‖, by differentiating the loss."""
    a = inputs(h)

    def loss(theta, rows=slice(None)):
        return functional.cross_entropy(a[rows] @ theta.view_as(head).T, labels[rows])

    theta = head.flatten().clone().requires_grad_()
    hessian = torch.autograd.functional.hessian(loss, theta)
    damped = hessian + 0.01 * torch.eye(theta.numel(), dtype=hessian.dtype)
    norms = []
    for v in range(h.shape[0]):
        (gradient,) = torch.autograd.grad(loss(theta, slice(v, v + 1)), theta)
        norms.append(torch.linalg.solve(damped, gradient).norm())
    return damped, torch.stack(norms)


def test_full_hessian_is_that_of_autograd():
    h, head, labels = example()
    a = inputs(h)
    expected, _ = autograd_norms(h, head, labels)
    p = (a @ head.T).softmax(dim=1)
    torch.testing.assert_close(full_hessian(a, p), expected)
    x = torch.randn(5, *head.shape, dtype=torch.float64)
    product = (x.flatten(1) @ expected).view_as(x)
    torch.testing.assert_close(hessian_product(a, p, x), product)


@pytest.mark.parametrize("limit", [4096, 0], ids=["direct", "conjugate gradients"])
@pytest.mark.parametrize("shape", [(12, 3, 4), (1, 2, 2), (30, 5, 1), (7, 6, 5)], ids=str)
@pytest.mark.parametrize("entries", [1 << 24, 40], ids=["one block", "many blocks"])
def test_influence_norms_are_those_of_autograd(monkeypatch, limit, shape, entries):
    monkeypatch.setattr(influence, "DIRECT_LIMIT", limit)
    monkeypatch.setattr(influence, "BLOCK_ENTRIES", entries)
    h, head, labels = example(*shape)
    _, expected = autograd_norms(h, head, labels)
    found = influence_norms(h, inputs(h) @ head.T, labels)
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_influence_norm_by_hand():
    # One node, two classes, no input but the bias: logits 0, p = (½, ½), gradient (−½, ½), an
    # eigenvector of ¼ [[1, −1], [−1, 1]] with eigenvalue ½: ‖I‖ = (√2 / 2) / (½ + 0.01).
    h, logits = torch.tensor([[-1.0]]), torch.zeros(1, 2)
    found = influence_norms(h, logits, torch.tensor([0]))
    assert float(found) == pytest.approx(2**-0.5 / 0.51)


def make_pool(h, logits, labels) -> SelectionPool:
    n = h.shape[0]
    graph = Adjacency.from_edges(torch.empty(2, 0, dtype=torch.int64), n)
    nodes, generator = torch.arange(n), torch.Generator()
    return SelectionPool(nodes, labels, h, torch.zeros(n, 1), graph, generator, logits)


def test_influence_maximization_takes_the_largest_first():
    h, head, labels = example(m=20, k=3)
    _, norms = autograd_norms(h, head, labels)
    pool = make_pool(h.float(), (inputs(h) @ head.T).float(), labels)
    selector = InfluenceMaximization()
    for label in range(3):
        members = torch.nonzero(labels == label).flatten().tolist()
        expected = sorted(members, key=lambda node: -float(norms[node]))
        assert selector.rank(pool, label, len(members)).tolist() == expected


def test_influence_maximization_ties_go_to_the_lowest_id(monkeypatch):
    h, head, _ = example(m=1)
    for limit in (4096, 0):
        monkeypatch.setattr(influence, "DIRECT_LIMIT", limit)
        pool = make_pool(
            h.float().repeat(9, 1), (inputs(h) @ head.T).float().repeat(9, 1), torch.ones(9).long()
        )
        assert InfluenceMaximization().rank(pool, 1, 4).tolist() == [0, 1, 2, 3]


def test_influence_maximization_does_not_mix_pools_up():
    selector = InfluenceMaximization()
    for seed in (0, 1):
        h, head, labels = example(m=20, k=2, seed=seed)
        pool = make_pool(h, inputs(h) @ head.T, labels)
        assert torch.equal(selector.rank(pool, 0, 5), InfluenceMaximization().rank(pool, 0, 5))


def test_influence_maximization_refuses_a_pool_without_logits():
    pool = make_pool(torch.zeros(2, 1), None, torch.tensor([0, 0]))
    with pytest.raises(InputError, match="Expected 'logits'"):
        InfluenceMaximization().rank(pool, 0, 1)
