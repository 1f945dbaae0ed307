"""What every method must do: this suite runs on each entry of METHODS."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from evergraph.config import Variant
from evergraph.errors import InputError
from evergraph.events import TaskDone
from evergraph.lab.folder import Run
from evergraph.methods import METHODS, NEEDS, Method, TrainConfig, make_method, method_class
from evergraph.nn import ModelConfig
from evergraph.stream import Graph, Protocol, TaskStream
from evergraph.stream.datasets import SyntheticConfig, generate
from evergraph.train import Learner, train

MODEL = ModelConfig(channels=4, heads=2)
TRAINING = TrainConfig(epochs=2)
PROTOCOL = Protocol(validation_fraction=0.2)  # some methods need validation nodes
SMALL = {
    "buffer_size": 11,
    "link_epochs": 2,
    "num_candidates": 8,
    "num_neighbors": 2,
    "tau": 0.6,
    "condense_steps": 3,
}

#: Every method, the learners of joint training, a method that keeps nodes without labels, and what
#: trains on the first task alone.
NAMES = [
    *METHODS,
    "joint:learner=analytic",
    "joint:learner=appnp",
    "dslr+:distill_on=training",
    "al-gnn:encoder=first-task",
]

pytestmark = pytest.mark.parametrize("name", NAMES)


def run_in(folder: Path, model: ModelConfig = MODEL) -> Run:
    """A run of which nothing but its network matters."""
    return Run(folder, SimpleNamespace(model=model, hash=""))


def small(name: str, **settings) -> Method[Any]:
    """A method that is quick to train: it takes those of SMALL that it has."""
    variant = Variant.parse(name)
    fields = method_class(variant.name).Config.model_fields
    chosen = {k: v for k, v in (SMALL | settings).items() if k in fields}
    return make_method(variant.name, chosen | variant.options)


def closed_form(name: str) -> bool:
    """Whether neither the seed nor the network has a part in what is learned."""
    return name.endswith("analytic")


def stream_of(make_graph, num_classes=6, per_task=2, **kwargs) -> TaskStream:
    protocol = PROTOCOL.model_copy(update={"classes_per_task": per_task})
    return TaskStream(make_graph(num_nodes=60, num_classes=num_classes, **kwargs), protocol)


def tasks(
    learner: Learner,
    stream: TaskStream,
    seed: int = 0,
    training: TrainConfig = TRAINING,
    model: ModelConfig = MODEL,
):
    """Yields after each task."""
    for event in train(learner, stream, model, training, seed=seed):
        if isinstance(event, TaskDone):
            yield event


def logits(
    name: str,
    stream: TaskStream,
    seed: int = 0,
    training: TrainConfig = TRAINING,
    model: ModelConfig = MODEL,
) -> list[torch.Tensor]:
    learner = Learner(small(name))
    return [
        learner.method.predict_logits(learner.context).clone()
        for _ in tasks(learner, stream, seed, training, model)
    ]


def test_method_introduces_itself(name):
    cls = type(small(name))
    for text in (cls.summary, cls.paper):
        assert isinstance(text, str)
        assert text.strip() == text != ""
        assert "\n" not in text
    assert 1950 <= cls.year <= 2100
    assert cls.needs <= NEEDS
    assert cls.__doc__


def test_method_has_defaults_and_keeps_its_settings(name):
    registered = Variant.parse(name).name
    method = make_method(registered)
    assert isinstance(method, METHODS[registered])
    assert method.config == METHODS[registered].Config()
    with pytest.raises(ValueError, match="frozen"):
        method.config.anything = 1


def test_method_refuses_an_unknown_key_with_a_suggestion(name):
    registered = Variant.parse(name).name
    for field in sorted(method_class(registered).Config.model_fields):
        with pytest.raises(InputError, match=f"Unknown key '{field}x': did you mean '"):
            make_method(registered, {f"{field}x": 1})
    with pytest.raises(InputError, match="Unknown key 'zzzzzzzz'"):
        make_method(registered, {"zzzzzzzz": 1})


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("num_classes", "per_task"), [(6, 2), (4, 1), (5, 2), (3, 3)], ids=str)
def test_method_runs_within_its_budget(make_graph, name, sparse, num_classes, per_task):
    stream = stream_of(make_graph, num_classes, per_task, sparse=sparse)
    learner = Learner(small(name))
    count = 0
    for event in tasks(learner, stream):
        method, task = learner.method, stream.tasks[event.task]
        shown = method.predict_logits(learner.context)
        assert shown.shape == (task.num_nodes, task.classes[-1] + 1)
        assert shown.isfinite().all()
        assert not shown.requires_grad
        assert len(event.row) == event.task + 1
        assert isinstance(method.memory_bytes(), int)
        assert method.memory_bytes() >= 0
        if method.buffer is not None:
            check_buffer(method.buffer, stream, min(event.task, stream.num_tasks - 2))
        count += 1
    assert count == stream.num_tasks


def check_buffer(buffer, stream: TaskStream, newest: int) -> None:
    """The buffer holds training nodes of tasks up to ``newest``, rightly labelled."""
    nodes = buffer.nodes
    assert len(buffer) == nodes.numel() == buffer.labels.numel() <= buffer.size
    assert nodes.unique().numel() == nodes.numel()
    assert torch.equal(buffer.labels, stream.labels[nodes])
    learned = [task.train_nodes for task in stream.tasks[: newest + 1]]
    assert set(nodes.tolist()) <= set(torch.cat([nodes[:0], *learned]).tolist())
    assert all(buffer.picks[label].numel() for label in buffer.picks)


def test_method_respects_a_tight_buffer(make_graph, name):
    stream = stream_of(make_graph)
    learner = Learner(small(name, buffer_size=6))
    for event in tasks(learner, stream):
        if learner.method.buffer is not None:
            check_buffer(learner.method.buffer, stream, min(event.task, 1))
            assert learner.method.buffer.size == 6


@pytest.mark.parametrize("sparse", [False, True])
def test_method_is_deterministic_by_seed(make_graph, name, sparse):
    stream = stream_of(make_graph, sparse=sparse)
    first, second, other = (logits(name, stream, seed) for seed in (0, 0, 1))
    assert all(map(torch.equal, first, second))
    if closed_form(name):
        assert all(map(torch.equal, first, other))
    else:
        assert not any(map(torch.equal, first, other))


@pytest.mark.parametrize("sparse", [False, True])
def test_method_learns_from_sampled_neighbourhoods(make_graph, name, sparse):
    stream = stream_of(make_graph, sparse=sparse)
    sampled = TRAINING.model_copy(update={"batch_size": 4, "fanout": 2})
    first, again = (logits(name, stream, training=sampled) for _ in range(2))
    assert all(map(torch.equal, first, again))
    whole = logits(name, stream)
    assert [a.shape for a in first] == [a.shape for a in whole]
    unsampled = closed_form(name) or name == "al-gnn"  # which trains nothing by default
    assert torch.equal(first[-1], whole[-1]) == unsampled


@pytest.mark.parametrize("batch_size", ["full", 4])
@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_method_learns_on_every_backbone_or_says_why_not(
    make_graph, name, backbone, batch_size, tmp_path
):
    stream, cls = stream_of(make_graph, sparse=True), type(small(name))
    model = MODEL.model_copy(update={"backbone": backbone})
    training = TRAINING.model_copy(update={"batch_size": batch_size, "fanout": 2})
    if cls.needs & {"gat", "attention"}:
        with pytest.raises(InputError, match=f"Expected 'backbone'.*got '{backbone}'"):
            logits(name, stream, training=training, model=model)
        return
    whole = logits(name, stream, training=training, model=model)
    assert all(shown.isfinite().all() for shown in whole)
    usual = logits(name, stream, training=training)
    assert torch.equal(whole[-1], usual[-1]) == closed_form(name)
    first, second = Learner(small(name)), Learner(small(name))
    next(tasks(first, stream, training=training, model=model))
    run_in(tmp_path).save_checkpoint(first, [])
    run_in(tmp_path, model).load_checkpoint(second, "cpu")
    for event in tasks(second, stream, training=training, model=model):
        assert torch.equal(second.method.predict_logits(second.context), whole[event.task])


def test_method_does_not_draw_from_global_randomness(make_graph, name):
    stream = stream_of(make_graph)
    ends = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        ends.append(logits(name, stream)[-1])
    assert torch.equal(*ends)


def test_method_predicts_the_same_twice(make_graph, name):
    learner = Learner(small(name))
    for _ in tasks(learner, stream_of(make_graph)):
        first = learner.method.predict_logits(learner.context).clone()
        assert torch.equal(first, learner.method.predict_logits(learner.context))


def test_method_changes_nothing_that_it_is_shown(make_graph, name):
    stream = stream_of(make_graph)
    before = [t.clone() for t in (stream.features, stream.edges, stream.labels)]
    logits(name, stream)
    assert all(map(torch.equal, before, (stream.features, stream.edges, stream.labels)))


@pytest.mark.parametrize("stop", [0, 1])
def test_method_restored_from_its_state_continues_to_the_same_bits(make_graph, name, stop):
    stream = stream_of(make_graph, 8, 2)
    whole = logits(name, stream)
    first = Learner(small(name))
    for event in tasks(first, stream):
        if event.task == stop:
            break
    method = small(name)
    method.load_state_dict(copy.deepcopy(first.method.state_dict()))
    assert method.memory_bytes() == first.method.memory_bytes()
    second = Learner(method, copy.deepcopy(first.model), next_task=stop + 1)
    for event in tasks(second, stream):
        again = method.predict_logits(second.context)
        assert torch.equal(again, whole[event.task])


def test_method_restored_from_a_checkpoint_continues_to_the_same_bits(make_graph, name, tmp_path):
    stream = stream_of(make_graph, 8, 2)
    whole = logits(name, stream)
    first = Learner(small(name))
    for event in tasks(first, stream):
        if event.task == 1:
            run_in(tmp_path).save_checkpoint(first, [])
            break
    second = Learner(small(name))
    run_in(tmp_path, MODEL).load_checkpoint(second, "cpu")
    assert second.next_task == 2
    for event in tasks(second, stream):
        assert torch.equal(second.method.predict_logits(second.context), whole[event.task])


def test_method_state_is_tensors_and_plain_values(make_graph, name):
    def check(value):
        if isinstance(value, dict):
            assert all(isinstance(key, str) for key in value)
            value = list(value.values())
        if isinstance(value, list):
            for item in value:
                check(item)
        else:
            assert value is None or isinstance(value, torch.Tensor | bool | int | float | str)

    learner = Learner(small(name))
    check(learner.method.state_dict())
    for _ in tasks(learner, stream_of(make_graph)):
        check(learner.method.state_dict())


def test_method_survives_a_graph_without_edges(make_graph, name):
    stream = stream_of(make_graph, average_degree=0.0)
    assert all(shown.isfinite().all() for shown in logits(name, stream))


DATED = SyntheticConfig(nodes=120, classes=5, steps=4, feature_dim=8, mean_degree=4)


def check_stream(name, stream, training, tmp_path):
    """Learns a stream whose known classes come again, and continues it from a checkpoint."""
    learner, shown, done = Learner(small(name)), [], []
    for event in tasks(learner, stream, training=training):
        task = stream.tasks[event.task]
        shown.append(learner.method.predict_logits(learner.context).clone())
        done.append(event)
        assert shown[-1].shape == (task.num_nodes, task.num_classes)
        assert shown[-1].isfinite().all()
        assert (event.before is None) == (event.task == 0)
        if learner.method.buffer is not None:
            check_buffer(learner.method.buffer, stream, min(event.task, stream.num_tasks - 2))
        if event.task == 1:
            run_in(tmp_path).save_checkpoint(learner, [])
    second = Learner(small(name))
    run_in(tmp_path, MODEL).load_checkpoint(second, "cpu")
    for event in tasks(second, stream, training=training):
        assert torch.equal(second.method.predict_logits(second.context), shown[event.task])
        assert (event.row, event.before) == (done[event.task].row, done[event.task].before)


@pytest.mark.parametrize("batch_size", ["full", 8])
def test_method_learns_a_stream_in_time(name, batch_size, tmp_path):
    stream = TaskStream(generate(DATED), PROTOCOL.model_copy(update={"stream": "time"}))
    assert [len(task.classes) for task in stream.tasks] == [2, 1, 1, 1]
    training = TRAINING.model_copy(update={"batch_size": batch_size, "fanout": 2})
    check_stream(name, stream, training, tmp_path)


def test_method_learns_a_stream_in_time_without_new_classes(name):
    plain = generate(DATED.model_copy(update={"classes": 2, "steps": 1}))
    time = torch.arange(plain.num_nodes) % 3
    graph = Graph.build("old", plain.x, plain.edges, plain.y, time=time)
    stream = TaskStream(graph, PROTOCOL.model_copy(update={"stream": "time"}))
    assert stream.tasks[-1].classes == ()
    assert all(part.isfinite().all() for part in logits(name, stream))


@pytest.mark.parametrize("kind", ["blurry:0.3", "task-free:30", "domain:3"])
def test_method_learns_a_stream_in_which_classes_come_again(name, kind, tmp_path):
    graph = generate(DATED.model_copy(update={"steps": 1}))
    stream = TaskStream(graph, PROTOCOL.model_copy(update={"stream": kind}))
    check_stream(name, stream, TRAINING, tmp_path)


def sizes(value) -> tuple[int, int]:
    """Bytes of all tensors and the number of plain numbers in a state."""
    if isinstance(value, torch.Tensor):
        return value.nbytes, 0
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        parts = [sizes(item) for item in value]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)
    return 0, int(isinstance(value, int | float))


def test_method_counts_what_its_state_holds(make_graph, name):
    learner, labels = Learner(small(name)), 0
    for event in tasks(learner, stream_of(make_graph)):
        method, view = learner.method, learner.context.view
        state = method.state_dict()
        if "old_labels" in method.needs:  # kept by whoever grants them: a node and a label each
            state.pop("analytic", None)  # what predicts, as a network does
            labels += view.train_nodes.numel() if event.task < 2 else 0
        tensors, numbers = sizes(state)
        # Beside its tensors a state has numbers and their names; a buffer's labels are names.
        names = 16 * numbers + 8 * (len(method.buffer) if method.buffer is not None else 0)
        assert tensors <= event.memory_bytes - 16 * labels <= tensors + names
        assert event.memory_bytes == method.memory_bytes()
        reads = (method.buffer is not None or labels) and event.task < 2
        reads = reads and name != "pdgnn-tem"  # whose rows hold what was around them
        assert event.memory_bytes_without_graph >= event.memory_bytes
        assert (event.memory_bytes_without_graph > event.memory_bytes) == bool(reads)
