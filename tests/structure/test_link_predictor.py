"""The link predictor: scores, non-edges, loss and training."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.methods import TaskContext, TrainConfig
from evergraph.methods.dslr import train_link_predictor
from evergraph.nn import ModelConfig, NodeClassifier
from evergraph.stream import GraphView, LabelledNodes, Protocol, TaskStream
from evergraph.structure import (
    StructureConfig,
    link_loss,
    link_scores,
    pair_pattern,
    sample_non_edges,
)
from support import adjacency, seeded

MODEL = ModelConfig(channels=4, heads=2, dropout=0.0)


def loss_of(z, edges, negatives, valid=None) -> torch.Tensor:
    """The loss on both paths, which must agree."""
    z = torch.as_tensor(z, dtype=torch.float32)
    tables = [torch.tensor(p, dtype=torch.int64).reshape(-1, 2).T for p in (edges, negatives)]
    keep = None if valid is None else torch.tensor(valid)
    lists = pair_pattern(tables[0], z.shape[0]), pair_pattern(tables[1], z.shape[0], keep)
    loss = link_loss(z, *lists)
    torch.testing.assert_close(loss, link_loss(z, *lists, plain=True), rtol=1e-4, atol=1e-6)
    return loss


# Scores


@pytest.mark.parametrize(
    ("a", "b", "score"),
    [
        ([1, 0], [0, 1], 0.5),
        ([1, 0], [3, 4], 0.8),  # cosine 0.6
        ([1, 0], [-3, 4], 0.2),
        ([2, 0], [5, 0], 1 - 1e-6),  # clamped
        ([2, 0], [-5, 0], 1e-6),
        ([0, 0], [1, 0], 0.5),  # no direction: a cosine of zero
    ],
)
def test_link_scores_by_hand(a, b, score):
    z_i, z_j = torch.tensor([a], dtype=torch.float32), torch.tensor([b], dtype=torch.float32)
    assert link_scores(z_i, z_j).tolist() == pytest.approx([score], abs=1e-7)


@given(st.integers(1, 8), st.floats(-6, 6), st.integers(0, 99))
def test_link_scores_stay_inside_zero_one(d, exponent, seed):
    z = torch.randn(6, d, generator=seeded(seed)) * 10**exponent
    z[0] = 0
    scores = link_scores(z[:, None], z[None, :])
    assert scores.shape == (6, 6)
    assert scores.min() >= 1e-6 * (1 - 1e-6)
    assert scores.max() < 1
    torch.testing.assert_close(scores, scores.T)
    assert torch.isfinite(torch.log(scores)).all()
    assert torch.isfinite(torch.log1p(-scores)).all()


def test_link_scores_ignore_length():
    z = torch.randn(5, 3, generator=seeded(1))
    other = torch.randn(5, 3, generator=seeded(2))
    torch.testing.assert_close(link_scores(100 * z, 0.01 * other), link_scores(z, other))


# Loss

Z = [[1, 0], [2, 0], [0, 1], [-1, 0], [3, 4]]


def test_link_loss_by_hand():
    # Scores: edges 0-2 0.5 and 0-4 0.8; non-edges 1-2 0.5 and 3-4 0.2.
    expected = -(math.log(0.5) + math.log(0.8) + math.log(0.5) + math.log(0.8)) / 4
    assert float(loss_of(Z, [(0, 2), (0, 4)], [(1, 2), (3, 4)])) == pytest.approx(expected)


def test_link_loss_takes_scores_as_probabilities_not_as_logits():
    # A perfect edge costs nothing; through another sigmoid it would cost −log σ(1) = 0.31.
    assert float(loss_of(Z, [(0, 1)], [])) == pytest.approx(0, abs=1e-5)
    assert float(loss_of(Z, [(0, 4)], [])) == pytest.approx(-math.log(0.8))
    # A perfect non-edge costs nothing either; through a sigmoid log 2.
    assert float(loss_of(Z, [], [(0, 3)])) == pytest.approx(0, abs=1e-5)


def test_link_loss_is_bounded_by_the_clamp():
    assert float(loss_of(Z, [(0, 3)], [])) == pytest.approx(-math.log(1e-6), rel=1e-3)
    # 1 − 1e-6 is rounded in float32, which moves its logarithm a little.
    assert float(loss_of(Z, [], [(0, 1)])) == pytest.approx(-math.log(1e-6), rel=0.01)


def test_link_loss_leaves_invalid_non_edges_out():
    edges = [(0, 2)]
    expected = -(math.log(0.5) + math.log(0.8)) / 2
    loss = loss_of(Z, edges, [(3, 4), (0, 1)], [True, False])
    assert float(loss) == pytest.approx(expected)
    assert float(loss_of(Z, edges, [(0, 1)], [False])) == pytest.approx(math.log(2))


def test_link_loss_is_a_mean_not_a_sum():
    edges, negatives = [(0, 2), (0, 4)], [(1, 2), (3, 4)]
    once = float(loss_of(Z, edges, negatives))
    assert float(loss_of(Z, edges * 5, negatives * 5)) == pytest.approx(once)
    # Both directions of an edge say the same.
    there_and_back = edges + [(b, a) for a, b in edges]
    assert float(loss_of(Z, there_and_back, negatives * 2)) == pytest.approx(once)


@pytest.mark.parametrize("plain", [False, True])
def test_link_loss_sums_every_pair_once(plain):
    # As printed: edges 0-2 0.5 and 0-4 0.8; non-edges 1-2 0.5 and 3-4 0.2.
    lists = [pair_pattern(torch.tensor(p).T, 5) for p in ([(0, 2), (0, 4)], [(1, 2), (3, 4)])]
    z = torch.tensor(Z, dtype=torch.float32, requires_grad=True)
    total = link_loss(z, *lists, plain=plain, reduction="sum")
    assert total.item() == pytest.approx(-2 * (math.log(0.5) + math.log(0.8)))
    (gradient,) = torch.autograd.grad(total, z)
    (mean,) = torch.autograd.grad(link_loss(z, *lists, plain=plain), z)
    torch.testing.assert_close(gradient, 4 * mean)


def test_link_loss_of_logits_is_the_authors():
    # A perfect edge still costs −log σ(1), a perfect non-edge −log σ(0).
    pair = [
        pair_pattern(torch.tensor(p, dtype=torch.int64).reshape(-1, 2).T, 5)
        for p in ([(0, 1)], [(0, 3)])
    ]
    loss = link_loss(torch.tensor(Z, dtype=torch.float32), *pair, reduction="logits")
    assert loss.item() == pytest.approx((math.log(1 + math.exp(-1)) + math.log(2)) / 2, abs=1e-5)


def test_link_loss_of_nothing_is_zero():
    assert float(loss_of(Z, [], [])) == 0
    assert float(loss_of(Z, [], [(0, 1)], [False])) == 0


@pytest.mark.parametrize("plain", [False, True])
@given(st.integers(2, 8), st.integers(0, 12), st.integers(0, 12), st.integers(0, 99))
def test_link_loss_equals_loop_with_gradient(plain, n, num_edges, num_negatives, seed):
    generator = seeded(seed)
    edges = torch.randint(n, (num_edges, 2), generator=generator).tolist()
    negatives = torch.randint(n, (num_negatives, 2), generator=generator).tolist()
    valid = torch.rand(num_negatives, generator=generator) < 0.7
    z = torch.randn(n, 3, generator=generator, dtype=torch.float64).requires_grad_()
    tables = [torch.tensor(p, dtype=torch.int64).reshape(-1, 2).T for p in (edges, negatives)]
    loss = link_loss(z, pair_pattern(tables[0], n), pair_pattern(tables[1], n, valid), plain)
    (gradient,) = torch.autograd.grad(loss, z)
    terms = [-torch.log(score(z, i, j)) for i, j in edges]
    kept = [pair for pair, keep in zip(negatives, valid.tolist(), strict=True) if keep]
    terms += [-torch.log(1 - score(z, i, j)) for i, j in kept]
    if not terms:
        assert float(loss.detach()) == 0
        return
    expected = torch.stack(terms).mean()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, z)[0])


def test_link_loss_raises_when_asked_for_a_second_derivative():
    z = torch.randn(4, 3, generator=seeded()).requires_grad_()
    pairs = pair_pattern(torch.tensor([[0, 1], [2, 3]]), 4)
    (gradient,) = torch.autograd.grad(link_loss(z, pairs, pairs, plain=True), z, create_graph=True)
    assert torch.autograd.grad((gradient**2).sum(), z)[0].abs().sum() > 0
    with pytest.raises(InputError, match="'double_backward'"):
        torch.autograd.grad(link_loss(z, pairs, pairs), z, create_graph=True)


def test_pair_pattern_lists_pairs_from_both_ends():
    pairs = torch.tensor([[3, 0, 1], [1, 2, 1]])
    pattern = pair_pattern(pairs, 5, torch.tensor([True, False, True]))
    assert pattern.indptr.tolist() == [0, 1, 4, 5, 6, 6]
    rows = [pattern.columns[a:b].tolist() for a, b in pairwise(pattern.indptr.tolist())]
    assert [sorted(row) for row in rows] == [[-1], [1, 1, 3], [-1], [1], []]


def score(z: torch.Tensor, i: int, j: int) -> torch.Tensor:
    return ((functional.cosine_similarity(z[i], z[j], dim=0) + 1) / 2).clamp(1e-6, 1 - 1e-6)


# Non-edges


@given(st.integers(1, 12), st.integers(0, 30), st.integers(0, 60), st.integers(0, 99))
def test_sample_non_edges_marks_exactly_edges_and_loops(n, num_edges, count, seed):
    pairs = torch.randint(n, (num_edges, 2), generator=seeded(seed)).tolist()
    graph = adjacency(n, pairs)
    edges = set(zip(graph.src.tolist(), graph.dst.tolist(), strict=True))
    drawn, valid = sample_non_edges(graph, count, seeded(seed + 1))
    assert drawn.shape == (2, count)
    assert valid.shape == (count,)
    for i, j, keep in zip(*drawn.tolist(), valid.tolist(), strict=True):
        assert 0 <= i < n
        assert 0 <= j < n
        assert keep == (i != j and (i, j) not in edges)


def test_sample_non_edges_are_all_valid_on_a_sparse_graph():
    graph = adjacency(1000, [(i, i + 1) for i in range(999)])
    drawn, valid = sample_non_edges(graph, 2000, seeded(1))
    assert valid.all()
    assert not graph.has_edges(drawn[0], drawn[1]).any()
    assert (drawn[0] != drawn[1]).all()


def test_sample_non_edges_are_all_invalid_on_a_complete_graph():
    complete = adjacency(6, [(i, j) for i in range(6) for j in range(i)])
    assert not sample_non_edges(complete, 50, seeded(1))[1].any()
    assert not sample_non_edges(adjacency(1, []), 5, seeded(1))[1].any()


def test_sample_non_edges_is_uniform():
    graph = adjacency(5, [(0, 1), (1, 2), (1, 3)])
    drawn, valid = sample_non_edges(graph, 40_000, seeded(2))
    counts = Counter(zip(*drawn[:, valid].tolist(), strict=True))
    assert len(counts) == 5 * 4 - 6
    mean = int(valid.sum()) / 14
    assert all(abs(count - mean) < 6 * math.sqrt(mean) for count in counts.values())


def test_sample_non_edges_is_deterministic_and_fresh():
    graph = adjacency(50, [(i, i + 1) for i in range(49)])
    assert torch.equal(*(sample_non_edges(graph, 30, seeded(3))[0] for _ in range(2)))
    generator = seeded(3)
    first, second = (sample_non_edges(graph, 30, generator)[0] for _ in range(2))
    assert not torch.equal(first, second)


# Training


@pytest.fixture(scope="module")
def task(make_graph) -> tuple[GraphView, LabelledNodes]:
    """The second task of a small stream, with six nodes of the first as buffer."""
    stream = TaskStream(make_graph(40), Protocol())
    nodes = stream.tasks[0].train_nodes[:6]
    return stream.view(1), LabelledNodes(nodes, stream.labels[nodes])


def train(
    view: GraphView,
    buffer: LabelledNodes,
    *,
    beta: float = 0.3,
    model: ModelConfig = MODEL,
    seeds: tuple[int, int, int] = (1, 2, 3),
    **settings,
) -> tuple[list[float], torch.Tensor]:
    config = StructureConfig(**{"link_epochs": 5, **settings})
    ctx = TaskContext(
        view, model=None, model_config=model, training=TrainConfig(), seed=0, final=False
    )
    purposes = ("link init", "link dropout", "link negatives")
    drawn = dict(zip(purposes, map(seeded, seeds), strict=True))
    ctx.generator = lambda purpose, device=None: drawn[purpose]
    epochs = train_link_predictor(ctx, buffer, config, beta)
    losses = []
    while True:
        try:
            losses.append(float(next(epochs).loss))
        except StopIteration as stop:
            return losses, stop.value


def permuted(nodes: LabelledNodes) -> LabelledNodes:
    return LabelledNodes(nodes.nodes, nodes.labels.roll(1))


def permuted_view(view: GraphView) -> GraphView:
    flipped = view.num_classes - 1 - view.train_labels
    return dataclasses.replace(view, train_labels=flipped)


def test_training_follows_the_equations_step_by_step(task):
    """Eq. 6 to 8 with Adam, written over dense cosines and every directed edge."""
    view, buffer = task
    lam, beta, epochs = 0.6, 0.3, 4
    model = NodeClassifier(MODEL, view.num_features, view.num_classes, seeded(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=0)
    negatives, expected = seeded(3), []
    for _ in range(epochs):
        output = model(view.features, view.adjacency)
        pairs, valid = sample_non_edges(view.adjacency, view.adjacency.num_edges // 2, negatives)
        unit = functional.normalize(output.h, dim=1)
        s = ((unit @ unit.T + 1) / 2).clamp(1e-6, 1 - 1e-6)
        positive = -torch.log(s[view.adjacency.src, view.adjacency.dst]).mean()
        negative = -torch.log(1 - s[pairs[0], pairs[1]])[valid]
        half = view.adjacency.num_edges // 2
        link = (half * positive + negative.sum()) / (half + negative.numel())
        current = functional.cross_entropy(output.logits[view.train_nodes], view.train_labels)
        replayed = functional.cross_entropy(output.logits[buffer.nodes], buffer.labels)
        loss = lam * link + (1 - lam) * (beta * current + (1 - beta) * replayed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        expected.append(float(loss.detach()))
    losses, z = train(view, buffer, lam=lam, beta=beta, link_epochs=epochs)
    assert losses == pytest.approx(expected, rel=1e-4)
    torch.testing.assert_close(z, model(view.features, view.adjacency).h, atol=1e-3, rtol=1e-3)


def test_training_with_lam_one_ignores_labels(task):
    view, buffer = task
    losses, z = train(view, buffer, lam=1)
    others, other_z = train(permuted_view(view), permuted(buffer), lam=1)
    assert losses == others
    assert torch.equal(z, other_z)
    assert not torch.equal(z, train(permuted_view(view), buffer, lam=0.5)[1])


def test_training_with_lam_zero_ignores_links(task):
    view, buffer = task
    losses, z = train(view, buffer, lam=0, seeds=(1, 2, 3))
    others, other_z = train(view, buffer, lam=0, seeds=(1, 2, 99))
    assert losses == others
    assert torch.equal(z, other_z)
    assert not torch.equal(z, train(view, buffer, lam=0.5, seeds=(1, 2, 3))[1])


def test_training_beta_weighs_current_against_buffer(task):
    view, buffer = task
    only_current = train(view, buffer, lam=0, beta=1)[1]
    assert torch.equal(only_current, train(view, permuted(buffer), lam=0, beta=1)[1])
    only_buffer = train(view, buffer, lam=0, beta=0)[1]
    assert torch.equal(only_buffer, train(permuted_view(view), buffer, lam=0, beta=0)[1])
    assert not torch.equal(only_current, only_buffer)


def test_training_starts_afresh_and_is_deterministic(task):
    view, buffer = task
    model = ModelConfig(channels=4, heads=2, dropout=0.5)
    torch.manual_seed(1)
    losses, z = train(view, buffer, model=model)
    torch.manual_seed(2)
    again, same = train(view, buffer, model=model)
    assert losses == again
    assert torch.equal(z, same)
    for seeds in ((9, 2, 3), (1, 9, 3), (1, 2, 9)):  # each generator has its part
        assert not torch.equal(z, train(view, buffer, model=model, seeds=seeds)[1])


def test_training_without_epochs_returns_the_initial_embedding(task):
    view, buffer = task
    losses, z = train(view, buffer, link_epochs=0)
    fresh = NodeClassifier(MODEL, view.num_features, view.num_classes, seeded(1))
    assert losses == []
    assert torch.equal(z, fresh(view.features, view.adjacency).h)
    assert not z.requires_grad


def test_training_applies_dropout_but_not_to_the_result(task):
    view, buffer = task
    dropping = ModelConfig(channels=4, heads=2, dropout=0.5)
    assert train(view, buffer, model=dropping)[0] != train(view, buffer)[0]
    # Without a step the weights are the initial ones, and no mask is on the result.
    assert torch.equal(
        train(view, buffer, model=dropping, link_epochs=0)[1],
        train(view, buffer, link_epochs=0)[1],
    )


@pytest.mark.parametrize("lam", [0.0, 0.5, 1.0])
def test_training_lowers_the_loss(task, lam):
    view, buffer = task
    losses, z = train(view, buffer, lam=lam, link_epochs=20)
    assert len(losses) == 20
    assert sum(losses[-5:]) / 5 < sum(losses[:5]) / 5
    assert z.shape == (view.num_nodes, 8)
    assert torch.isfinite(z).all()


def test_training_learns_links(task):
    """Edges score above non-edges after link-only training."""
    view, buffer = task
    _, z = train(view, buffer, lam=1, link_epochs=30)
    graph = view.adjacency
    pairs, valid = sample_non_edges(graph, 500, seeded(9))
    edges = link_scores(z[graph.src], z[graph.dst]).mean()
    others = link_scores(z[pairs[0, valid]], z[pairs[1, valid]]).mean()
    assert edges > others + 0.1


def test_training_on_a_graph_without_edges(task):
    view, buffer = task
    bare = dataclasses.replace(view, adjacency=adjacency(view.num_nodes, []))
    losses, z = train(bare, buffer, lam=0.5)
    assert all(math.isfinite(loss) for loss in losses)
    assert torch.isfinite(z).all()


def test_training_leaves_the_view_untouched(task):
    view, buffer = task
    watched = (view.adjacency.src, view.features, view.train_labels, buffer.nodes, buffer.labels)
    before = [tensor.clone() for tensor in watched]
    train(view, buffer)
    assert all(torch.equal(a, b) for a, b in zip(before, watched, strict=True))
