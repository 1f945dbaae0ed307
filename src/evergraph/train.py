"""The one training loop: task by task, it yields what happens and keeps evaluation apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.events import Epoch, Event, TaskDone, TaskStarted
from evergraph.methods import NEEDS, Method, TaskContext, TrainConfig
from evergraph.nn import ENCODERS, ModelConfig, NodeClassifier, build_model
from evergraph.nn.cuda_graphs import Repeated
from evergraph.nn.device import Plan, make_plan, total_memory, training_bytes
from evergraph.rng import make_generator
from evergraph.stream import Features, GraphView, TaskStream


@dataclass
class Learner:
    """What lives from task to task: the method, its network, and the next task."""

    method: Method[Any]
    model: NodeClassifier | None = None
    next_task: int = 0
    context: TaskContext | None = field(default=None, repr=False)  # of the task just done


def train(
    learner: Learner,
    stream: TaskStream,
    model_config: ModelConfig,
    training: TrainConfig,
    *,
    seed: int,
    device: torch.device | str = "cpu",
) -> Iterator[Event]:
    """Learns the tasks from ``learner.next_task`` on, yielding events.

    After a :class:`TaskDone` the learner is complete: what was saved then and restored
    continues to the same bits.
    """
    needs = check_needs(learner.method)
    check_backbone(type(learner.method), model_config)
    plain = bool(needs & {"attention", "double_backward"})
    channels = learner.method.most_channels(model_config.channels, stream.num_tasks)
    plan = plan_for(
        stream, model_config, training, torch.device(device), channels=channels, plain=plain
    )
    for task in range(learner.next_task, stream.num_tasks):
        view = stream.view(task, needs, device)
        yield TaskStarted(
            task,
            stream.num_tasks,
            view.num_nodes,
            view.adjacency.num_edges // 2,
            view.new_classes,
            plan.mode,
            plan.reason,
        )
        final = task == stream.num_tasks - 1
        ctx = make_context(learner, view, model_config, training, plan, seed=seed, final=final)
        yield from learn_task(learner, ctx)
        method = learner.method
        with ctx.stage("evaluate"):
            logits = method.predict_logits(ctx)
            rows = evaluate(logits, stream, task)
        yield TaskDone(task, *rows, dict(ctx.seconds), method.memory_bytes(), method.report())


def make_context(
    learner: Learner,
    view: GraphView,
    model_config: ModelConfig,
    training: TrainConfig,
    plan: Plan,
    *,
    seed: int,
    final: bool = False,
) -> TaskContext:
    """Puts a learner before a view."""
    return TaskContext(
        view,
        model=learner.model,
        model_config=model_config,
        training=training,
        seed=seed,
        final=final,
        plain=bool(learner.method.needs & {"attention", "double_backward"}),
        batch_size=plan.batch_size,
        descend=descend,
    )


def learn_task(learner: Learner, ctx: TaskContext) -> Iterator[Epoch]:
    """Lets a method learn what a context shows; afterwards the learner is complete."""
    method = learner.method
    method.begin_task(ctx)
    yield from method.fit_task(ctx)
    method.end_task(ctx)
    learner.model, learner.next_task, learner.context = ctx.model, ctx.view.task + 1, ctx


def descend(method: Method[Any], ctx: TaskContext) -> Iterator[Epoch]:
    """Gradient descent on a method's loss: the loop that all but closed forms go through."""
    model, optimizer = ctx.model, ctx.optimizer
    assert model is not None
    assert optimizer is not None

    def differentiate() -> Tensor:
        loss = method.loss(ctx)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        return loss.detach()

    def update() -> None:
        method.after_backward(ctx)
        optimizer.step()

    def step() -> Tensor:
        loss = differentiate()
        update()
        return loss

    apart = method.static_loss and not method.static_step  # what follows the gradient may wait
    record = (method.static_step or method.static_loss) and ctx.batch_size is None
    repeated = Repeated(
        differentiate if apart else step, ctx.device, ctx.device_generators, record=record
    )
    with ctx.stage("classify"):
        for epoch in range(ctx.training.epochs):
            model.train()
            for batch in ctx.batches():
                ctx.batch = batch
                loss = repeated()
                if apart:
                    update()
            yield Epoch(ctx.view.task, "classify", epoch, ctx.training.epochs, loss)


def plan_for(
    stream: TaskStream,
    model: ModelConfig,
    training: TrainConfig,
    device: torch.device,
    *,
    channels: int,
    plain: bool,
) -> Plan:
    """Decides by the last task, the largest, whether whole graphs fit."""
    last = stream.tasks[-1]
    sizes = (last.num_nodes, 2 * last.num_edges, stream.features)
    return plan_size(
        *sizes, model=model, training=training, device=device, channels=channels, plain=plain
    )


def plan_size(
    num_nodes: int,
    num_edges: int,
    features: Features,
    *,
    model: ModelConfig,
    training: TrainConfig,
    device: torch.device,
    channels: int,
    plain: bool,
) -> Plan:
    """Decides whether a graph of this size fits as a whole; ``num_edges`` are directed."""
    stored = features.numel() if isinstance(features, Tensor) else 2 * features.values.numel()
    plain = plain or model.attention == "plain"
    needed = training_bytes(num_nodes, num_edges, stored, model, channels=channels, plain=plain)
    return make_plan(training.batch_size, needed, total_memory(device))


def evaluate(
    logits: Tensor, stream: TaskStream, task: int
) -> tuple[list[float], list[float], list[float]]:
    """Measures accuracy on every task seen, in percent.

    Returns the row of the accuracy matrix, the same with the task known (argmax within its
    classes), and the accuracy per class seen. A task without nodes to judge counts as 0.
    """
    row, row_task_incremental, class_row = [], [], []
    for seen in range(task + 1):
        judged = stream.evaluation(seen)
        classes = stream.tasks[seen].classes
        shown = logits[judged.nodes.to(logits.device)].cpu()
        right = shown.argmax(dim=1) == judged.labels
        within = shown[:, classes[0] : classes[-1] + 1].argmax(dim=1) + classes[0]
        row.append(_percent(right))
        row_task_incremental.append(_percent(within == judged.labels))
        class_row += [_percent(right[judged.labels == label]) for label in classes]
    return row, row_task_incremental, class_row


def check_needs(method: Method[Any]) -> frozenset[str]:
    """Returns what the method declares to need, refusing what nobody can grant."""
    unknown = sorted(method.needs - NEEDS)
    if unknown:
        raise InputError(
            f"Expected 'needs' among {', '.join(sorted(NEEDS))} (got '{unknown[0]}'); "
            f"correct the declaration of {type(method).__name__}."
        )
    return method.needs


def check_backbone(method: type[Method[Any]], config: ModelConfig) -> None:
    """Refuses a backbone that a method cannot work with."""
    if method.backbones is not None and config.backbone not in method.backbones:
        able = " or ".join(f"'{name}'" for name in sorted(method.backbones))
        raise InputError(
            f"Expected 'backbone' to be {able} for {method.__name__} (got "
            f"'{config.backbone}'); change it or the method."
        )
    needed = "attention" in method.needs and not method.attention_optional
    if needed and not ENCODERS[config.backbone].has_attention:
        able = " or ".join(f"'{name}'" for name, cls in ENCODERS.items() if cls.has_attention)
        raise InputError(
            f"Expected 'backbone' to be {able} for {method.__name__}, which needs attention "
            f"(got '{config.backbone}'); change it or the method."
        )


def _percent(right: Tensor) -> float:
    return 100.0 * int(right.sum()) / max(right.numel(), 1)


def learner_state(learner: Learner) -> dict[str, Any]:
    """Returns nested tensors and plain values that :func:`restore_learner` takes back."""
    model = learner.model
    return {
        "next_task": learner.next_task,
        "method": learner.method.state_dict(),
        "model": dict(model.state_dict()) if model is not None else None,
        "channels": model.resized_channels if model is not None else None,
    }


def restore_learner(
    learner: Learner,
    state: Mapping[str, Any],
    model_config: ModelConfig,
    device: torch.device | str,
) -> None:
    """Takes back what :func:`learner_state` returned; a wrong state raises anything."""
    learner.next_task = int(state["next_task"])
    learner.method.load_state_dict(state["method"])
    if state["model"] is not None:
        learner.model = _restore_model(state, model_config).to(device)
    learner.method.check_fit(learner.model)


def _restore_model(state: Mapping[str, Any], model_config: ModelConfig) -> NodeClassifier:
    weights: dict[str, Tensor] = state["model"]
    channels = state.get("channels")  # only where surgery has changed them
    in_dim, num_classes = weights["encoder.layers.0.weight"].shape[0], weights["head.bias"].numel()
    _check_size(model_config, in_dim, channels, weights)
    generator = make_generator(0, "restored")
    model = build_model(model_config, in_dim, num_classes, generator, channels)
    model.load_state_dict(weights)
    return model


def _check_size(
    config: ModelConfig, in_dim: int, channels: list[int] | None, weights: Mapping[str, Tensor]
) -> None:
    """Refuses a configuration of a larger network than is stored, before it is allocated."""
    stored = sum(weight.numel() for weight in weights.values())
    if channels is None:
        if config.num_layers > stored:
            raise ValueError("more layers than weights")
        channels = [config.channels] * config.num_layers
    declared = 0
    for width in (heads * config.heads for heads in channels):
        declared += in_dim * width
        in_dim = width
    if declared > stored or any(width < 1 for width in channels):
        raise ValueError("more weights declared than stored")
