"""The public leak test: poison what a method must not see, and check that nothing changes.

For a method of your own::

    assert find_leaks(lambda: MyMethod(MyConfig()), lambda: TaskStream(graph, protocol)) == []
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import torch
from torch import Tensor

from evergraph.device import make_generator
from evergraph.errors import InputError
from evergraph.events import Event, TaskDone
from evergraph.files import checksum
from evergraph.methods import Method, TrainConfig
from evergraph.nn import ModelConfig
from evergraph.stream import SparseRows, TaskStream
from evergraph.train import Learner, train


class Poison(StrEnum):
    """What is changed beneath a stream while a method learns from it."""

    FUTURE_FEATURES = "future_features"  #: Features of nodes of later tasks.
    FUTURE_EDGES = "future_edges"  #: All edges that come in later tasks.
    HELD_OUT_LABELS = "held_out_labels"  #: Validation and test labels, all labels of later tasks.
    OLD_LABELS = "old_labels"  #: Training labels of earlier tasks, outside the buffer.


def find_leaks(
    make_method: Callable[[], Method[Any]],
    make_stream: Callable[[], TaskStream],
    *,
    task: int = 1,
    model_config: ModelConfig | None = None,
    training: TrainConfig | None = None,
    seed: int = 0,
) -> list[str]:
    """Returns the poisons that change what a method does; [] if it sees only what it may.

    The method learns tasks 0 to ``task`` on a clean stream and on poisoned ones. After each
    task its logits for all nodes seen, its network, state and bytes of memory must be the same
    to the bit. What the method declares in ``needs`` is not poisoned.

    Args:
        make_method: Makes a new method.
        make_stream: Makes a new stream, the same each time; it is unusable afterwards.
        task: The last task to learn; at least one must come before and one after it.
        model_config: Shape of the network; small by default.
        training: Settings of gradient descent; a few epochs by default.
        seed: Seed of every run.
    """
    stream = make_stream()
    if not 1 <= task <= stream.num_tasks - 2:
        raise InputError(
            f"Expected 'task' in [1, {stream.num_tasks - 2}], with a task before and one after it "
            f"(got {task}); change it or make a stream of more tasks."
        )
    model_config = model_config or ModelConfig(channels=4, heads=2)
    training = training or TrainConfig(epochs=3)

    def run(poison: Poison | None, last: int) -> list[str]:
        fresh = make_stream()
        if fresh is stream:
            raise InputError(
                "Expected 'make_stream' to build a new stream at every call (got the same one "
                "twice); construct the TaskStream inside it."
            )
        learner = Learner(make_method())
        events = train(learner, fresh, model_config, training, seed=seed)
        return _watch(learner, events, fresh, poison, last)

    clean = run(None, task)
    if run(None, task) != clean:
        raise InputError(
            "Expected the method to give the same bits for the same seed (got others the second "
            "time), else a leak cannot be told from chance; draw from ctx.generator()."
        )
    needs = make_method().needs
    leaks: list[str] = []
    for poison in Poison:
        if poison is Poison.OLD_LABELS and "old_labels" in needs:
            continue
        # What lies ahead differs from task to task, so each has its turn to be the last.
        turns = [task] if poison is Poison.OLD_LABELS else range(task + 1)
        if any(run(poison, last) != clean[: last + 1] for last in turns):
            leaks.append(poison.value)
    return leaks


def _watch(
    learner: Learner,
    events: Iterator[Event],
    stream: TaskStream,
    poison: Poison | None,
    last: int,
) -> list[str]:
    """Poisons, lets tasks 0 to ``last`` be learned, returns a digest of everything after each."""
    generator = make_generator(0, "poison")
    method, truth = learner.method, stream.labels.clone()
    if poison is Poison.FUTURE_FEATURES:
        _spoil_features(stream, last, generator)
    elif poison is Poison.FUTURE_EDGES:
        _spoil_edges(stream, last, generator)
    elif poison is Poison.HELD_OUT_LABELS:
        _spoil_labels(stream, _held_out(stream, last, method.needs), generator)
    digests = []
    for event in events:
        if not isinstance(event, TaskDone):
            continue
        ctx, model = learner.context, learner.model
        assert ctx is not None
        outcome = {
            "logits": method.predict_logits(ctx),
            "model": model.state_dict() if model is not None else None,
            "method": method.state_dict(),
            "memory": method.memory_bytes(),
        }
        try:
            digests.append(checksum(outcome))
        except TypeError as error:
            raise InputError(
                "Expected 'state_dict()' of tensors, plain values, lists and dictionaries "
                f"(got another: {error}); convert it."
            ) from None
        if event.task == last:
            break
        if poison is Poison.OLD_LABELS:  # until now they were the method's to read
            old = torch.cat([earlier.train_nodes for earlier in stream.tasks[: event.task + 1]])
            kept = method.buffer.nodes.cpu() if method.buffer is not None else old[:0]
            spoilt = stream.labels[old] != truth[old]  # twice could be back to the truth
            _spoil_labels(stream, old[~torch.isin(old, kept) & ~spoilt], generator)
            # A view that a method holds on to is no way around.
            ctx.view.train_labels.copy_(stream.labels[ctx.view.train_nodes])
    return digests


def _spoil_features(stream: TaskStream, last: int, generator: torch.Generator) -> None:
    """Overwrites the features of all nodes after task ``last``; sparse ones keep their columns."""
    seen, features = stream.tasks[last].num_nodes, stream.features
    if isinstance(features, SparseRows):
        later = features.values[int(features.indptr[seen]) :]
    else:
        later = features[seen:]
    later.copy_(100 * torch.randn(later.shape, generator=generator))


def _spoil_edges(stream: TaskStream, last: int, generator: torch.Generator) -> None:
    """Redraws both ends of every edge that comes after task ``last``.

    Each still arrives with its task, so that prefixes mean what they meant; in a time stream
    both its ends may have been there before.
    """
    for before, now in zip(stream.tasks[last:], stream.tasks[last + 1 :], strict=False):
        count = now.num_edges - before.num_edges
        least = 1 if stream.protocol.kind == "time" else before.num_nodes
        second = torch.randint(least, now.num_nodes, (count,), generator=generator)
        first = (torch.rand(count, generator=generator, dtype=torch.float64) * second).long()
        order = torch.argsort(second * now.num_nodes + first)
        stream.edges[:, before.num_edges : now.num_edges] = torch.stack([first, second])[:, order]


def _held_out(stream: TaskStream, last: int, needs: frozenset[str]) -> Tensor:
    """Lists the nodes whose labels nobody may read up to task ``last``."""
    parts = [task.test_nodes for task in stream.tasks]
    parts += [task.train_nodes for task in stream.tasks[last + 1 :]]
    if "validation" not in needs:
        parts += [task.validation_nodes for task in stream.tasks]
    return torch.cat(parts)


def _spoil_labels(stream: TaskStream, nodes: Tensor, generator: torch.Generator) -> None:
    """Gives each node another class among those seen at its own task, so that code still runs."""
    ends = torch.tensor([task.num_nodes for task in stream.tasks])
    known = torch.tensor([task.num_classes for task in stream.tasks])
    seen = known[torch.searchsorted(ends, nodes, right=True)]
    others = (seen - 1).clamp(min=1)  # a first task of one class has no other to give
    shift = 1 + (torch.rand(nodes.shape, generator=generator, dtype=torch.float64) * others).long()
    stream.labels[nodes] = (stream.labels[nodes] + shift) % seen
