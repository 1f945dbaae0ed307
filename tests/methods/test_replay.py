"""Replay: the loss is the formula, the buffer is chosen once per class."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.events import TaskDone
from evergraph.memory import SELECTORS
from evergraph.methods import TaskContext, TrainConfig, make_method
from evergraph.methods.replay import selection_pool
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2)
TRAINING = TrainConfig(epochs=2)


def stream_of(make_graph, num_classes=6) -> TaskStream:
    return TaskStream(make_graph(num_nodes=70, num_classes=num_classes), Protocol())


def context(stream: TaskStream, task: int, training: TrainConfig = TRAINING) -> TaskContext:
    return TaskContext(
        stream.view(task),
        model=None,
        model_config=MODEL,
        training=training,
        seed=0,
        final=False,
    )


# Three kept nodes of class 0 and one of class 1, planted.
KEPT, KEPT_LABELS = torch.tensor([0, 2, 5, 7]), torch.tensor([0, 0, 0, 1])


def loss_and_logits(stream, training=TRAINING, **settings):
    """The loss at task 1 with a planted buffer and no dropout; logits of all nodes."""
    method = make_method("replay", {"buffer_size": 10, **settings})
    method.buffer.picks = {0: KEPT[:3], 1: KEPT[3:]}
    ctx = context(stream, 1, training)
    method.begin_task(ctx)
    ctx.model.eval()
    return method.loss(ctx), ctx.forward(), ctx.view


def cross_entropies(logits, view):
    current = functional.cross_entropy(
        logits[view.train_nodes], view.train_labels, reduction="none"
    )
    kept = functional.cross_entropy(logits[KEPT], KEPT_LABELS, reduction="none")
    return current, kept


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.75, 1.0])
def test_replay_loss_weighs_current_by_beta(make_graph, beta):
    loss, logits, view = loss_and_logits(stream_of(make_graph), beta=beta)
    current, kept = cross_entropies(logits, view)
    torch.testing.assert_close(loss, beta * current.mean() + (1 - beta) * kept.mean())


def test_replay_loss_share_weighs_current_by_the_buffers_share(make_graph):
    # ER-GNN: β = |B| / (|B| + |D|), with which public code often weighs the buffer instead.
    loss, logits, view = loss_and_logits(stream_of(make_graph), beta="share")
    current, kept = cross_entropies(logits, view)
    beta = 4 / (4 + view.train_nodes.numel())
    assert beta < 0.5
    torch.testing.assert_close(loss, beta * current.mean() + (1 - beta) * kept.mean())


def test_replay_loss_none_is_one_mean_over_both(make_graph):
    loss, logits, view = loss_and_logits(stream_of(make_graph), beta="none")
    torch.testing.assert_close(loss, torch.cat(cross_entropies(logits, view)).mean())


def test_replay_loss_balanced_gives_every_class_the_same_weight(make_graph):
    loss, logits, view = loss_and_logits(stream_of(make_graph), beta=0.2, replay_weights="balanced")
    current, kept = cross_entropies(logits, view)
    replayed = (kept[:3].mean() + kept[3:].mean()) / 2
    torch.testing.assert_close(loss, 0.2 * current.mean() + 0.8 * replayed)


def test_replay_loss_balanced_weights_follow_the_buffer(make_graph):
    stream = stream_of(make_graph)
    method = make_method("replay", {"buffer_size": 10, "replay_weights": "balanced"})
    for picks in ({0: KEPT[:3], 1: KEPT[3:]}, {0: KEPT[:1], 1: KEPT[3:]}):
        method.buffer.picks = picks
        ctx = context(stream, 1)
        method.begin_task(ctx)
        ctx.model.eval()
        logits = ctx.forward()
        losses = [
            functional.cross_entropy(logits[nodes], torch.full_like(nodes, label))
            for label, nodes in picks.items()
        ]
        current = functional.cross_entropy(logits[ctx.view.train_nodes], ctx.view.train_labels)
        expected = 0.1 * current + 0.9 * torch.stack(losses).mean()
        torch.testing.assert_close(method.loss(ctx), expected)


def test_replay_loss_smooths_labels_of_both_sets(make_graph):
    training = TrainConfig(epochs=1, label_smoothing=0.1)
    loss, logits, view = loss_and_logits(stream_of(make_graph), training, beta=0.3)
    current = functional.cross_entropy(
        logits[view.train_nodes], view.train_labels, label_smoothing=0.1
    )
    kept = functional.cross_entropy(logits[KEPT], KEPT_LABELS, label_smoothing=0.1)
    torch.testing.assert_close(loss, 0.3 * current + 0.7 * kept)


@pytest.mark.parametrize(
    ("beta", "weights"),
    [(0.1, "none"), ("share", "none"), ("none", "none"), (0.1, "balanced"), ("share", "balanced")],
)
def test_replay_loss_of_the_first_task_is_plain_cross_entropy(make_graph, beta, weights):
    stream = stream_of(make_graph)
    method = make_method("replay", {"beta": beta, "replay_weights": weights})
    ctx = context(stream, 0)
    method.begin_task(ctx)
    ctx.model.eval()
    view = ctx.view
    expected = functional.cross_entropy(ctx.forward()[view.train_nodes], view.train_labels)
    torch.testing.assert_close(method.loss(ctx), expected)


# The buffer.


def picks_after_tasks(stream, **settings):
    learner = Learner(make_method("replay", settings))
    picks = []
    for event in train(learner, stream, MODEL, TRAINING, seed=0):
        if isinstance(event, TaskDone):
            picks.append({c: n.tolist() for c, n in learner.method.buffer.picks.items()})
    return picks


@pytest.mark.parametrize("selector", SELECTORS)
def test_replay_keeps_a_prefix_of_old_classes(make_graph, selector):
    # The authors' code redraws old classes from all their labels.
    picks = picks_after_tasks(stream_of(make_graph, 8), buffer_size=16, selector=selector)
    assert [set(part) for part in picks[:3]] == [set(range(2 * t)) for t in (1, 2, 3)]
    for before, after in itertools.pairwise(picks):
        for label, nodes in before.items():
            assert 0 < len(after[label]) <= len(nodes)
            assert after[label] == nodes[: len(after[label])]
    assert len(picks[2][0]) < len(picks[0][0])


def test_replay_selects_nothing_after_the_last_task(make_graph):
    picks = picks_after_tasks(stream_of(make_graph), buffer_size=12)
    assert picks[-1] == picks[-2]
    assert set(picks[-1]) == {0, 1, 2, 3}


def test_replay_random_selector_draws_by_seed(make_graph):
    stream = stream_of(make_graph)
    drawn = []
    for seed in (0, 0, 1):
        learner = Learner(make_method("replay", {"buffer_size": 12}))
        for _ in train(learner, stream, MODEL, TRAINING, seed=seed):
            pass
        drawn.append(learner.method.buffer.nodes.tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_replay_memory_is_an_id_and_a_label_per_node(make_graph):
    learner = Learner(make_method("replay", {"buffer_size": 12}))
    for _ in train(learner, stream_of(make_graph), MODEL, TRAINING, seed=0):
        assert learner.method.memory_bytes() == 16 * len(learner.method.buffer)
    assert len(learner.method.buffer) > 0


def test_replay_re_selects_a_returning_class_from_kept_and_new_nodes(make_graph):
    # The estimator's case: class 0 comes again with other training nodes.
    stream = stream_of(make_graph)
    method = make_method("replay", {"buffer_size": 8, "selector": "mf"})
    first = stream.view(0)
    half = first.train_nodes[: first.train_nodes.numel() // 2]
    rest = first.train_nodes[first.train_nodes.numel() // 2 :]
    pools = []
    for nodes in (half, rest):
        ctx = context(stream, 0)
        ctx.view = type(first)(
            **{**vars(first), "train_nodes": nodes, "train_labels": stream.labels[nodes]}
        )
        method.begin_task(ctx)
        pools.append(selection_pool(ctx, method.buffer, partial(method.show, ctx)))
        kept = set(method.buffer.nodes.tolist())
        method.end_task(ctx)
    assert set(pools[1].nodes.tolist()) == set(rest.tolist()) | kept
    assert torch.equal(pools[1].labels, stream.labels[pools[1].nodes])
    assert pools[1].nodes.tolist() == sorted(pools[1].nodes.tolist())
    assert sum(method.buffer.train_counts.values()) == first.train_nodes.numel()
    assert len(method.buffer) <= 8


# Settings.


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"beta": 1.7}, r"Expected 'beta' in \[0, 1\].*got 1\.7"),
        ({"beta": "half"}, "Expected 'beta' .*'share' or 'none'.*got 'half'"),
        ({"selector": "randm"}, "Unknown selector 'randm': did you mean 'random'"),
        ({"buffer_size": 0}, "Expected 'buffer_size' as an integer of at least 1.*got 0"),
        ({"r": -0.1}, r"Expected 'r' of at least 0.*got -0\.1"),
        ({"replay_weights": "class"}, "Expected 'replay_weights' to be 'none' or 'balanced'"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_replay_refuses_bad_settings_in_one_sentence(settings, sentence):
    with pytest.raises(InputError, match=sentence):
        make_method("replay", settings)


def test_replay_refuses_a_buffer_smaller_than_the_classes(make_graph):
    with pytest.raises(InputError, match="Expected 'buffer_size' of at least the number of"):
        picks_after_tasks(stream_of(make_graph), buffer_size=3)


@pytest.mark.parametrize(
    ("name", "settings", "unused"),
    [
        ("replay", {}, {"r"}),
        ("er-gnn", {"selector": "cm"}, set()),
        ("dslr", {}, set()),
        ("dslr", {"structure": "homophily"}, {"tau", "lam", "link_epochs", "num_candidates"}),
        ("dslr", {"structure": "none", "selector": "mf"}, {"tau", "num_neighbors", "r"}),
        ("joint", {}, {"teleport", "propagation_steps"}),
        ("joint", {"learner": "appnp"}, set()),
        ("joint", {"learner": "analytic"}, {"teleport", "warm_start", "epochs", "dropout"}),
        ("homophily-probe", {"selector": "cd"}, {"selector", "r"}),
    ],
)
def test_method_names_the_settings_that_have_no_effect(name, settings, unused):
    found = make_method(name, settings).config.unused()
    assert found >= unused
    assert bool(found) == bool(unused)
    assert "num_neighbors" not in found or settings["structure"] == "none"
