"""The leak test: every method passes, and every way to cheat is caught for what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from evergraph.errors import InputError
from evergraph.methods import (
    METHODS,
    Method,
    MethodConfig,
    TrainConfig,
    make_method,
    method_class,
)
from evergraph.methods.bounds import Finetune
from evergraph.methods.replay import Replay, ReplayConfig
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, SparseRows, TaskStream
from evergraph.stream.datasets import SyntheticConfig, generate
from evergraph.testing import Poison, find_leaks

MODEL = ModelConfig(channels=4, heads=2)
TRAINING = TrainConfig(epochs=3)
MIXED = ("blurry:0.4", "task-free:25", "domain:4")
PROTOCOL = Protocol(validation_fraction=0.2)
SMALL = {
    "buffer_size": 10,
    "link_epochs": 2,
    "num_candidates": 8,
    "num_neighbors": 2,
    "tau": 0.6,
    "condense_steps": 3,
}


def small(name: str) -> dict[str, Any]:
    """Settings that make any method quick: those of SMALL that it has."""
    return {k: v for k, v in SMALL.items() if k in method_class(name).Config.model_fields}


def streams(make_graph, protocol: Protocol = PROTOCOL, **kwargs) -> Callable[[], TaskStream]:
    graph = make_graph(**{"num_nodes": 60, "num_classes": 6, **kwargs})
    return lambda: TaskStream(graph, protocol)


def mixed_streams(make_graph, kind: str) -> Callable[[], TaskStream]:
    """Streams in which known classes come again."""
    protocol = PROTOCOL.model_copy(update={"stream": kind})
    return streams(make_graph, protocol, num_nodes=100, num_classes=6)


def leaks(make: Callable[[], Method[Any]], make_stream: Callable[[], TaskStream], task: int = 1):
    return find_leaks(make, make_stream, task=task, model_config=MODEL, training=TRAINING)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_find_leaks_clears_every_method(make_graph, name, sparse):
    assert leaks(lambda: make_method(name, small(name)), streams(make_graph, sparse=sparse)) == []


@pytest.mark.parametrize("name", METHODS)
def test_find_leaks_clears_every_method_on_sampled_neighbourhoods(make_graph, name):
    sampled = TRAINING.model_copy(update={"batch_size": 5, "fanout": 2})
    found = find_leaks(
        lambda: make_method(name, small(name)),
        streams(make_graph),
        model_config=MODEL,
        training=sampled,
    )
    assert found == []


@pytest.mark.parametrize("name", METHODS)
def test_find_leaks_clears_every_method_with_one_class_per_task(make_graph, name):
    make_stream = streams(make_graph, PROTOCOL.model_copy(update={"classes_per_task": 1}))
    assert leaks(lambda: make_method(name, small(name)), make_stream, task=2) == []


@pytest.mark.parametrize("batch_size", ["full", 5])
@pytest.mark.parametrize("learner", ["analytic", "appnp"])
def test_find_leaks_clears_every_learner_of_joint_training(make_graph, learner, batch_size):
    found = find_leaks(
        lambda: make_method("joint", {"learner": learner}),
        streams(make_graph),
        model_config=MODEL,
        training=TRAINING.model_copy(update={"batch_size": batch_size}),
    )
    assert found == []


@pytest.mark.parametrize("batch_size", ["full", 5])
@pytest.mark.parametrize("distill_on", ["training", "all"])
def test_find_leaks_clears_variants_of_dslr_plus(make_graph, distill_on, batch_size):
    found = find_leaks(
        lambda: make_method("dslr+", small("dslr+") | {"distill_on": distill_on}),
        streams(make_graph),
        model_config=MODEL,
        training=TRAINING.model_copy(update={"batch_size": batch_size}),
    )
    assert found == []


def dated_streams() -> TaskStream:
    graph = generate(SyntheticConfig(nodes=90, classes=4, steps=4, feature_dim=8, mean_degree=4))
    return TaskStream(graph, PROTOCOL.model_copy(update={"stream": "time"}))


@pytest.mark.parametrize("name", METHODS)
def test_find_leaks_clears_every_method_in_time(name):
    assert leaks(lambda: make_method(name, small(name)), dated_streams, task=2) == []


@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize("name", METHODS)
def test_find_leaks_clears_every_method_where_classes_come_again(make_graph, name, kind):
    make_stream = mixed_streams(make_graph, kind)
    assert leaks(lambda: make_method(name, small(name)), make_stream) == []


@pytest.mark.parametrize(
    "variant",
    [
        {"structure": "homophily"},
        {"structure": "none"},
        {"candidates": "entire"},
        {"addition": "threshold"},
        {"deletion": "lowest"},
        {"sl_ratio": 0.5},
        {"beta": "none"},
        {"selector": "mf-feature"},
    ],
    ids=lambda variant: "-".join(map(str, *variant.items())),
)
def test_find_leaks_clears_variants_of_dslr(make_graph, variant):
    make_stream = streams(make_graph)
    assert leaks(lambda: make_method("dslr", small("dslr") | variant), make_stream) == []


# Cheats: each holds a back door to the newest stream.


class Door:
    """Makes streams and remembers the newest, which is the one in use."""

    def __init__(self, make_stream: Callable[[], TaskStream]) -> None:
        self.make_stream = make_stream
        self.stream: TaskStream | None = None

    def __call__(self) -> TaskStream:
        self.stream = self.make_stream()
        return self.stream


def weighted(labels: torch.Tensor) -> torch.Tensor:
    """A number that hangs on every label."""
    return (labels * torch.arange(1, labels.numel() + 1)).sum() / 10


class Cheat(Replay):
    """Replay that scales its loss by something it must not know."""

    def __init__(self, door: Door) -> None:
        super().__init__(ReplayConfig(buffer_size=10))
        self.door = door

    def peek(self, ctx) -> torch.Tensor:
        return torch.zeros(())

    def loss(self, ctx):
        return super().loss(ctx) * (1 + torch.sigmoid(self.peek(ctx) / 10))


class PeeksAtNextNode(Cheat):
    def peek(self, ctx):
        features, later = self.door.stream.features, ctx.view.num_nodes
        if isinstance(features, SparseRows):
            return features.values[int(features.indptr[later])]
        return features[later].sum()


class PeeksAtNextNodeInFirstTask(PeeksAtNextNode):
    def peek(self, ctx):
        return super().peek(ctx) if ctx.view.task == 0 else torch.zeros(())


class PeeksBeneathTheView(Cheat):
    """Reads on past the end of its slice of the features."""

    def peek(self, ctx):
        mine = ctx.view.features
        mine = mine.values if isinstance(mine, SparseRows) else mine
        return torch.empty(0).set_(mine.untyped_storage())[mine.numel()]


class PeeksAtLaterEdges(Cheat):
    """Knows which nodes will be cited."""

    def peek(self, ctx):
        edges = self.door.stream.edges
        return torch.isin(edges, ctx.view.train_nodes).any(dim=0).sum()


class PeeksAtTestLabels(Cheat):
    def loss(self, ctx):
        stream = self.door.stream
        test = stream.tasks[ctx.view.task].test_nodes
        hidden = ctx.cross_entropy(ctx.forward(test), stream.labels[test])
        return super().loss(ctx) + hidden


class PeeksAtValidationLabels(Cheat):
    def peek(self, ctx):
        stream = self.door.stream
        return weighted(stream.labels[stream.tasks[ctx.view.task].validation_nodes])


class PeeksAtLaterLabels(Cheat):
    def peek(self, ctx):
        stream = self.door.stream
        return weighted(stream.labels[stream.tasks[ctx.view.task + 1].train_nodes])


class PeeksAtOldLabels(Cheat):
    """Replays every old training node, not just those that it paid for."""

    def loss(self, ctx):
        if ctx.view.task == 0:
            return super().loss(ctx)
        stream = self.door.stream
        old = torch.cat([task.train_nodes for task in stream.tasks[: ctx.view.task]])
        return super().loss(ctx) + ctx.cross_entropy(ctx.forward(old), stream.labels[old])


class HoldsOnToLabels(Cheat):
    """Keeps the labels that it was handed beyond their task."""

    kept = None

    def peek(self, ctx):
        return torch.zeros(()) if self.kept is None else weighted(self.kept)

    def end_task(self, ctx):
        super().end_task(ctx)
        self.kept = ctx.view.train_labels


CHEATS = {
    PeeksAtNextNode: Poison.FUTURE_FEATURES,
    PeeksAtNextNodeInFirstTask: Poison.FUTURE_FEATURES,
    PeeksBeneathTheView: Poison.FUTURE_FEATURES,
    PeeksAtLaterEdges: Poison.FUTURE_EDGES,
    PeeksAtTestLabels: Poison.HELD_OUT_LABELS,
    PeeksAtValidationLabels: Poison.HELD_OUT_LABELS,
    PeeksAtLaterLabels: Poison.HELD_OUT_LABELS,
    PeeksAtOldLabels: Poison.OLD_LABELS,
    HoldsOnToLabels: Poison.OLD_LABELS,
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_find_leaks_catches_a_cheat_for_exactly_what_it_does(make_graph, cheat, sparse):
    door = Door(streams(make_graph, sparse=sparse))
    assert leaks(lambda: cheat(door), door) == [CHEATS[cheat]]


@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.__name__)
def test_find_leaks_catches_a_cheat_where_classes_come_again(make_graph, cheat, kind):
    door = Door(mixed_streams(make_graph, kind))
    assert leaks(lambda: cheat(door), door) == [CHEATS[cheat]]


def test_find_leaks_catches_what_is_only_in_the_state(make_graph):
    class Notes(Finetune):
        """Learns honestly but notes a test label for later."""

        def state_dict(self):
            test = door.stream.tasks[0].test_nodes
            return {"notes": [{"label": door.stream.labels[test[:1]]}]}

    door = Door(streams(make_graph))
    assert leaks(lambda: Notes(MethodConfig()), door) == ["held_out_labels"]


def test_find_leaks_catches_what_is_only_in_predictions(make_graph):
    class Answers(Finetune):
        """Trains honestly but looks the answers up."""

        def predict_logits(self, ctx):
            logits = super().predict_logits(ctx)
            test = door.stream.tasks[0].test_nodes
            logits[test, door.stream.labels[test]] += 1e-6
            return logits

    door = Door(streams(make_graph))
    assert leaks(lambda: Answers(MethodConfig()), door) == ["held_out_labels"]


def test_find_leaks_catches_an_old_label_two_tasks_later(make_graph):
    # Task 0 has two classes: a label changed after both tasks would be right again at task 2.
    class Late(Finetune):
        """Has no buffer, so that nothing is ever exempt."""

        def loss(self, ctx):
            labels = door.stream.labels[door.stream.tasks[0].train_nodes]
            scale = torch.sigmoid(weighted(labels) / 10) if ctx.view.task == 2 else 0
            return super().loss(ctx) * (1 + scale)

    graph = make_graph(num_nodes=64, num_classes=8)
    door = Door(lambda: TaskStream(graph, Protocol()))
    assert leaks(lambda: Late(MethodConfig()), door, task=2) == ["old_labels"]


# What is declared is granted.


def test_find_leaks_spares_declared_old_labels(make_graph):
    class Undeclared(Finetune):
        needs = frozenset()

        def loss(self, ctx):
            old = torch.cat([t.train_nodes for t in door.stream.tasks[: ctx.view.task + 1]])
            return ctx.cross_entropy(ctx.forward(old), door.stream.labels[old])

    class Declared(Undeclared):
        needs = frozenset({"old_labels"})

    door = Door(streams(make_graph))
    assert leaks(lambda: Undeclared(MethodConfig()), door) == ["old_labels"]
    assert leaks(lambda: Declared(MethodConfig()), door) == []


def test_find_leaks_spares_declared_validation_but_not_test_labels(make_graph):
    class Validates(Finetune):
        needs = frozenset({"validation"})

        def loss(self, ctx):
            held = ctx.view.validation
            extra = ctx.cross_entropy(ctx.forward(held.nodes), held.labels)
            return super().loss(ctx) + extra

    class AlsoTests(Validates):
        def loss(self, ctx):
            test = door.stream.tasks[ctx.view.task].test_nodes
            return super().loss(ctx) * (1 + door.stream.labels[test].float().mean())

    door = Door(streams(make_graph))
    assert leaks(lambda: Validates(MethodConfig()), door) == []
    assert leaks(lambda: AlsoTests(MethodConfig()), door) == ["held_out_labels"]


class SeesEdges(Cheat):
    """Reads edges among nodes that are there already, before those edges come."""

    def peek(self, ctx):
        stream, task = self.door.stream, self.door.stream.tasks[ctx.view.task]
        later = stream.edges[:, task.num_edges :]
        return later[:, (later < task.num_nodes).all(dim=0)].float().sum() / 1e3


class SeesFeatures(Cheat):
    """Reads features of nodes that have not come."""

    def peek(self, ctx):
        return self.door.stream.features[ctx.view.num_nodes :].abs().mean()


class SeesTests(Cheat):
    """Reads labels of nodes that it is judged on."""

    def peek(self, ctx):
        return weighted(self.door.stream.evaluation(ctx.view.task).labels)


class SeesTheNextStep(Cheat):
    """Reads labels that will be learned only later."""

    def peek(self, ctx):
        return weighted(self.door.stream.labels[self.door.stream.tasks[-1].train_nodes])


class Hoards(Cheat):
    """Reads old training labels that it has not kept."""

    def peek(self, ctx):
        tasks = self.door.stream.tasks[: ctx.view.task]
        return sum(
            (weighted(self.door.stream.labels[t.train_nodes]) for t in tasks), start=torch.zeros(())
        )


@pytest.mark.parametrize(
    ("cheat", "caught"),
    [
        (SeesEdges, "future_edges"),
        (SeesFeatures, "future_features"),
        (SeesTests, "held_out_labels"),
        (SeesTheNextStep, "held_out_labels"),
        (Hoards, "old_labels"),
    ],
)
def test_find_leaks_catches_every_cheat_in_time(cheat, caught):
    door = Door(dated_streams)
    assert leaks(lambda: cheat(door), door, task=2) == [caught]


# What it cannot judge, it refuses.


@pytest.mark.parametrize("task", [0, 2])
def test_find_leaks_refuses_a_task_without_past_or_future(make_graph, task):
    with pytest.raises(InputError, match=r"Expected 'task' in \[1, 1\].*got " + str(task)):
        leaks(lambda: make_method("finetune"), streams(make_graph), task=task)


def test_find_leaks_refuses_a_stream_used_twice(make_graph):
    stream = streams(make_graph)()
    with pytest.raises(InputError, match="Expected 'make_stream' to build a new stream"):
        leaks(lambda: make_method("finetune"), lambda: stream)


def test_find_leaks_refuses_chance(make_graph):
    class Gambler(Finetune):
        def loss(self, ctx):
            return super().loss(ctx) * torch.rand(())

    with pytest.raises(InputError, match="same bits for the same seed"):
        leaks(lambda: Gambler(MethodConfig()), streams(make_graph))


def test_find_leaks_refuses_a_state_that_it_cannot_compare(make_graph):
    class Opaque(Finetune):
        def state_dict(self):
            return {"thing": object()}

    with pytest.raises(InputError, match=r"Expected 'state_dict\(\)' of tensors.*of type object"):
        leaks(lambda: Opaque(MethodConfig()), streams(make_graph))


def test_find_leaks_has_small_defaults(make_graph):
    assert find_leaks(lambda: make_method("finetune"), streams(make_graph)) == []
