"""GEM: the dual by hand and by its KKT conditions, and what a step makes of the gradient."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from evergraph.errors import InputError
from evergraph.methods import TaskContext, TrainConfig, make_method
from evergraph.methods.gem import RIDGE, solve_dual, turn_gradient
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, TaskStream
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2, dropout=0.0)
TRAINING = TrainConfig(epochs=2)

# The projection.


def test_turn_gradient_by_hand():
    # One old task: g = (−3, 1), G = (2, 0), Gg = −6, GGᵀ = 4: v = 6 / 4.001, above the margin.
    turned = turn_gradient(torch.tensor([-3.0, 1.0]), torch.tensor([[2.0, 0.0]]), 0.5)
    assert turned.tolist() == pytest.approx([-3 + 2 * 6 / 4.001, 1.0])
    # A weaker conflict: Gg = −1 wants v = 1/4.001, below the margin, so that v = ½.
    turned = turn_gradient(torch.tensor([-0.5, 1.0]), torch.tensor([[2.0, 0.0]]), 0.5)
    assert turned.tolist() == pytest.approx([0.5, 1.0])


def test_turn_gradient_gives_every_old_task_its_margin():
    # The second task agrees with g, and yet weighs ½ once the first one conflicts.
    g, memory = torch.tensor([-3.0, 1.0]), torch.tensor([[2.0, 0.0], [0.0, 4.0]])
    assert turn_gradient(g, memory, 0.5).tolist() == pytest.approx([-3 + 2 * 6 / 4.001, 3.0])
    assert turn_gradient(g, memory, 0.0).tolist() == pytest.approx([-3 + 2 * 6 / 4.001, 1.0])


@pytest.mark.parametrize("dot", [0.0, 2.0])
def test_turn_gradient_leaves_one_without_conflict_untouched(dot):
    g = torch.tensor([dot, 1.0])
    assert turn_gradient(g, torch.tensor([[2.0, 0.0], [0.0, 1.0]]), 0.5) is g


def random_case(seed: int, tasks: int, scale: float):
    """More parameters than tasks or fewer, sometimes with equal rows."""
    generator = torch.Generator().manual_seed(seed)
    size = int(torch.randint(1, 12, (), generator=generator))
    memory = torch.randn(tasks, size, generator=generator, dtype=torch.float64) * scale
    if seed % 3 == 0:
        memory[-1] = memory[0]
    return torch.randn(size, generator=generator, dtype=torch.float64) * scale, memory


cases = given(
    st.integers(0, 10_000),
    st.integers(1, 8),
    st.sampled_from([0.01, 1.0, 30.0]),
    st.sampled_from([0.0, 0.5]),
)


@cases
def test_solve_dual_meets_the_kkt_conditions(seed, tasks, scale, margin):
    g, memory = random_case(seed, tasks, scale)
    gram, products = memory @ memory.T, memory @ g
    v = solve_dual(gram, products, margin)
    slope = (gram + RIDGE * torch.eye(tasks, dtype=gram.dtype)) @ v + products
    tolerance = 1e-8 * max(1.0, float(gram.abs().max()), float(products.abs().max()))
    assert (v >= margin).all()
    assert (slope >= -tolerance).all()
    assert ((slope * (v - margin)).abs() <= tolerance * (1 + v)).all()


@cases
def test_turn_gradient_ends_conflicts(seed, tasks, scale, margin):
    g, memory = random_case(seed, tasks, scale)
    turned = turn_gradient(g, memory, margin)
    if bool((memory @ g >= 0).all()):
        assert turned is g
        return
    # ⟨g̃, g_s⟩ = u_s − ε v_s with u ≥ 0: what is left of a conflict is the regularisation's.
    v = solve_dual(memory @ memory.T, memory @ g, margin)
    tolerance = 1e-8 * max(1.0, float(memory.norm()) ** 2)
    assert (memory @ turned >= -RIDGE * v - tolerance).all()
    torch.testing.assert_close(turned, g + memory.T @ v)


# The method.


def context(stream: TaskStream, task: int, batch_size: int | None = None) -> TaskContext:
    return TaskContext(
        stream.view(task),
        model=None,
        model_config=MODEL,
        training=TRAINING,
        seed=0,
        final=False,
        batch_size=batch_size,
    )


def step(stream, picks, task_of, margin=0.5):
    """Gradients of task 2's loss before and after GEM, and those on each old task's nodes."""
    method = make_method("gem", {"buffer_size": 12, "margin": margin})
    method.buffer.picks = {label: torch.tensor(nodes) for label, nodes in picks.items()}
    method.task_of = task_of
    ctx = context(stream, 2)
    method.begin_task(ctx)
    ctx.model.train()
    method.loss(ctx).backward()
    parameters = list(ctx.model.parameters())
    before = torch.cat([p.grad.flatten().clone() for p in parameters])
    method.after_backward(ctx)
    after = torch.cat([p.grad.flatten() for p in parameters])
    rows = []
    for task in sorted(set(task_of.values())):
        mine = [label for label in picks if task_of[label] == task]
        nodes = torch.tensor([node for label in mine for node in picks[label]])
        labels = torch.tensor([label for label in mine for _ in picks[label]])
        loss = functional.cross_entropy(ctx.forward()[nodes], labels)
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]))
    return before, after, torch.stack(rows)


def picks_of(stream: TaskStream, labels: range) -> dict[int, list[int]]:
    train_nodes = torch.cat([task.train_nodes for task in stream.tasks])
    return {c: train_nodes[stream.labels[train_nodes] == c][:2].tolist() for c in labels}


@pytest.mark.parametrize("tasks", [1, 2])
def test_gem_turns_a_conflicting_gradient(make_graph, tasks):
    # A fresh head: learning new classes alone lowers the logits of old ones, hence conflicts.
    stream = TaskStream(make_graph(num_nodes=70, num_classes=6), Protocol())
    task_of = {label: label // 2 for label in range(2 * tasks)}
    before, after, memory = step(stream, picks_of(stream, range(2 * tasks)), task_of)
    assert memory.shape[0] == tasks
    assert bool((memory @ before < 0).any())
    torch.testing.assert_close(after, turn_gradient(before, memory, 0.5))
    assert not torch.equal(before, after)
    assert (memory @ after >= -RIDGE * 100).all()


def test_gem_leaves_a_gradient_without_conflict_to_the_bit(make_graph):
    # The kept nodes are the current task's own: their gradient agrees with the current one.
    stream = TaskStream(make_graph(num_nodes=70, num_classes=6), Protocol())
    nodes = stream.tasks[2].train_nodes
    picks = {c: nodes[stream.labels[nodes] == c].tolist() for c in (4, 5)}
    before, after, memory = step(stream, picks, {4: 0, 5: 0})
    assert (memory @ before > 0).all()
    assert torch.equal(before, after)


def test_gem_groups_the_buffer_by_the_task_that_brought_a_class(make_graph):
    stream = TaskStream(make_graph(num_nodes=70, num_classes=6), Protocol())
    learner = Learner(make_method("gem", {"buffer_size": 12}))
    for _ in train(learner, stream, MODEL, TRAINING, seed=0):
        pass
    method = learner.method
    assert method.task_of == {0: 0, 1: 0, 2: 1, 3: 1}  # nothing is kept of the last task
    assert [sorted(set(old.labels.tolist())) for old in method._old] == [[0, 1], [2, 3]]
    for old in method._old:
        assert torch.equal(stream.labels[old.nodes], old.labels)
    assert method.memory_bytes() == 16 * len(method.buffer) + 16 * 4


def test_gem_of_the_first_task_is_finetuning(make_graph):
    stream = TaskStream(make_graph(num_nodes=70, num_classes=6), Protocol())
    shown = []
    for name in ("gem", "finetune"):
        learner = Learner(make_method(name))
        ends = [
            learner.method.predict_logits(learner.context).clone()
            for event in train(learner, stream, MODEL, TRAINING, seed=0)
            if type(event).__name__ == "TaskDone"
        ]
        shown.append(ends)
    assert torch.equal(shown[0][0], shown[1][0])
    assert not torch.equal(shown[0][1], shown[1][1])


def test_gem_draws_a_batch_of_kept_nodes_when_sampling(make_graph):
    stream = TaskStream(make_graph(num_nodes=70, num_classes=6), Protocol())
    method = make_method("gem", {"buffer_size": 12})
    method.buffer.picks = {
        label: torch.tensor(nodes) for label, nodes in picks_of(stream, range(4)).items()
    }
    method.task_of = {0: 0, 1: 0, 2: 1, 3: 1}
    ctx = context(stream, 2, batch_size=3)
    method.begin_task(ctx)
    ctx.model.train()
    asked: list[int] = []
    forward = ctx.forward
    ctx.forward = lambda nodes: asked.append(nodes.numel()) or forward(nodes)
    method.loss(ctx).backward()
    method.after_backward(ctx)
    assert asked[1:] == [3, 3]  # of four kept nodes each


def test_gem_refuses_a_negative_margin():
    with pytest.raises(InputError, match=r"Expected 'margin' of at least 0.*got -0\.5"):
        make_method("gem", {"margin": -0.5})
