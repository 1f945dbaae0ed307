"""The one training loop: task by task, it yields what happens and keeps evaluation apart."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evergraph.device import (
    Plan,
    denormals_flushed,
    make_plan,
    total_memory,
    warn_of_memory,
)
from evergraph.errors import InputError
from evergraph.events import Epoch, Event, Stage, TaskDone, TaskStarted
from evergraph.files import pack, read_regular, unpack, write_atomic
from evergraph.methods import NEEDS, Descent, Method, TaskContext, TrainConfig
from evergraph.metrics import Array, calibrate, evened, probability_scores, shift_weights, softmax
from evergraph.nn import ENCODERS, ModelConfig, NodeClassifier
from evergraph.nn.model import check_network, restore_model, training_bytes
from evergraph.stream import Features, GraphView, LabelledNodes, TaskStream
from evergraph.stream.shard import Shard
from evergraph.team import ALONE, Team


@dataclass
class Learner:
    """What lives from task to task: the method, its network, and the next task."""

    method: Method[Any]
    model: NodeClassifier | None = None
    next_task: int = 0
    num_seen: int = 0  # nodes at the last task
    context: TaskContext | None = field(default=None, repr=False)  # of the task just done


def train(
    learner: Learner,
    stream: TaskStream,
    model_config: ModelConfig,
    training: TrainConfig,
    *,
    seed: int,
    device: torch.device | str = "cpu",
    team: Team = ALONE,
    keeper: Keeper | None = None,
) -> Generator[Event, None, None]:
    """Learns the tasks from ``learner.next_task`` on, yielding events.

    After a :class:`TaskDone` the learner is complete: what was saved then and restored
    continues to the same bits. Several workers each run this with the same arguments, and learn
    together.
    """
    needs = check_needs(learner.method)
    check_backbone(type(learner.method), model_config)
    check_team(learner.method, training, team)
    device, last = torch.device(device), stream.tasks[-1]  # the largest: what fits it fits all
    sizes = (last.num_nodes, 2 * last.num_edges)
    with denormals_flushed():
        for task in range(learner.next_task, stream.num_tasks):
            view = stream.view(task, needs, device)
            plan = plan_for(learner, sizes, stream.features, model_config, training, device=device)
            yield started(view, stream.num_tasks, plan)
            final = task == stream.num_tasks - 1
            how = (model_config, training, plan)
            ctx = make_context(learner, view, *how, seed=seed, final=final, team=team)
            ctx.class_names = stream.class_names[: view.num_classes]
            before = None
            if stream.protocol.kind != "class" and task:
                blank = view.unlabelled(stream.tasks[task - 1].num_classes)
                ahead = make_context(learner, blank, *how, seed=seed, team=team)
                with ctx.stage("evaluate"):
                    judged = stream.evaluation(task)
                    before = _percent(hits(predict(learner, ahead), judged))
                ctx.prepared = ahead.prepared  # of the same graph
            yield from learn_task(learner, ctx, keeper)
            with ctx.stage("evaluate"):
                logits = predict(learner, ctx)
                found = evaluate(logits, stream, task)
                own = learner.method.temperature
                probability = judge_probabilities(logits, stream, own) if final else {}
            row, within, by_class, seen = found
            kept, seconds = learner.method.memory_bytes(), dict(ctx.seconds)
            alone = kept + (0 if final else learner.method.graph_bytes(ctx))
            told = (row, within, by_class, seconds, kept, ctx.report, seen, before, alone)
            yield TaskDone(task, *told, probability)


def learn_task(
    learner: Learner, ctx: TaskContext, keeper: Keeper | None = None
) -> Iterator[Epoch | Stage]:
    """Lets a method learn what a context shows; afterwards the learner is complete."""
    method = learner.method
    method.begin_task(ctx)
    for event in method.fit_task(ctx):
        if isinstance(event, Descent):
            yield from descend(method, ctx, event, keeper)
        else:
            yield event
    method.end_task(ctx)
    learner.model, learner.context = ctx.model, ctx
    learner.next_task, learner.num_seen = ctx.view.task + 1, ctx.view.num_nodes


@dataclass
class Keeper:
    """Keeps a descent in a file now and then, so that it goes on where it was interrupted."""

    path: Path
    interval: float = 30.0  # seconds
    last: float = field(default_factory=time.monotonic)

    def begin(self, ctx: TaskContext, asked: Descent) -> int:
        """Puts a context where this very descent was; returns the epochs that are done."""
        found: list[Any] = []
        if ctx.team.leads and self.path.exists():
            with suppress(Exception):  # what cannot be read is learned again
                kept = unpack(read_regular(self.path))
                if kept["which"] == [ctx.view.task, asked.stage, asked.first, ctx.team.size]:
                    found = kept["parts"]
        found = ctx.team.tell({"found": found})["found"]
        if not found:
            return 0
        ctx.restore(found[ctx.team.rank])
        return int(found[0]["epoch"])

    def note(self, ctx: TaskContext, asked: Descent, epoch: int) -> None:
        """Writes the descent down after so many epochs, if it is time."""
        team, now = ctx.team, time.monotonic()
        if not team.tell(now - self.last >= self.interval):
            return
        self.last = now
        mine = {**ctx.snapshot(), "epoch": epoch}
        parts = [team.tell(mine, worker) for worker in range(team.size)]
        if team.leads:
            which = [ctx.view.task, asked.stage, asked.first, team.size]
            write_atomic(self.path, pack({"which": which, "parts": parts}))


def descend(
    method: Method[Any], ctx: TaskContext, asked: Descent, keeper: Keeper | None = None
) -> Iterator[Epoch]:
    """Gradient descent on a method's loss: the loop that all but closed forms go through."""
    model, optimizer = ctx.model, ctx.optimizer
    assert model is not None
    assert optimizer is not None

    objective = ctx.objective(model, lambda: method.loss(ctx))

    def differentiate() -> Tensor:
        loss = objective()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        return loss.detach()

    def update() -> None:
        method.after_backward(ctx)
        optimizer.step()

    def step() -> Tensor:
        loss = gradient()
        update()
        return loss

    gradient, run = differentiate, step
    if records(method):
        if type(method).after_backward is Method.after_backward:
            run = ctx.recorded(step)
        else:  # what a method does to gradients may read them
            gradient = ctx.recorded(differentiate)
    epochs = asked.epochs or ctx.training.epochs
    done = 0 if keeper is None else keeper.begin(ctx, asked)
    with ctx.stage("classify"):
        for epoch in range(done, epochs):
            model.train()
            for batch in ctx.batches():
                ctx.begin_step(batch)
                loss = run()
            if keeper is not None:
                keeper.note(ctx, asked, epoch + 1)
            number = asked.first + epoch
            yield Epoch(ctx.view.task, asked.stage, number, asked.total or epochs, loss)


def records(method: Method[Any]) -> bool:
    """Tells whether CUDA may record a method's steps: ours are tested to be the same each time."""
    return type(method).__module__.startswith("evergraph.methods.")


def make_context(
    learner: Learner,
    view: GraphView,
    model_config: ModelConfig,
    training: TrainConfig,
    plan: Plan,
    *,
    seed: int,
    final: bool = False,
    team: Team = ALONE,
) -> TaskContext:
    """Puts a learner before a view, of which each worker of a team gets its shard."""
    if team.size > 1 and view.shard is None:
        shard = Shard.of(view.adjacency, team)
        features = view.features
        if learner.method.parallel == "nodes":
            features = features[torch.arange(shard.first, shard.last, device=shard.device)]
        view = replace(view, features=features, shard=shard)
    return TaskContext(
        view,
        model=learner.model,
        model_config=model_config,
        training=training,
        seed=seed,
        final=final,
        plain=takes_plain_path(learner.method),
        batch_size=plan.batch_size,
    )


def predict(learner: Learner, ctx: TaskContext) -> Tensor:
    """Returns logits of all nodes to every worker, ``[n, k]``."""
    logits, shard = learner.method.predict_logits(ctx), ctx.view.shard
    if shard is None or learner.method.parallel != "nodes":
        return logits
    return shard.team.gather(logits)


def takes_plain_path(method: Method[Any]) -> bool:
    """Tells whether a method asks for what only the plain network path has."""
    return bool(method.needs & {"attention", "double_backward"})


def started(view: GraphView, num_tasks: int, plan: Plan) -> TaskStarted:
    """Describes the task that begins."""
    edges = view.adjacency.num_edges // 2
    return TaskStarted(
        view.task, num_tasks, view.num_nodes, edges, view.new_classes, plan.mode, plan.reason
    )


def plan_for(
    learner: Learner,
    sizes: tuple[int, int],
    features: Features,
    model: ModelConfig,
    training: TrainConfig,
    *,
    device: torch.device,
) -> Plan:
    """Decides whether a graph of so many nodes and directed edges fits as a whole."""
    stored = features.numel() if isinstance(features, Tensor) else 2 * features.values.numel()
    plain = takes_plain_path(learner.method) or model.attention == "plain"
    channels = max(learner.model.encoder.channels) if learner.model is not None else None
    needed = training_bytes(*sizes, stored, model, channels=channels, plain=plain)
    memory = total_memory(device)
    plan = make_plan(training.batch_size, needed, memory)
    if "channels" not in learner.method.config.unused():
        check_network(model, features.shape[1], memory)
        if plan.batch_size is None:
            warn_of_memory("Training on the whole graph", needed, device)
    return plan


def evaluate(
    logits: Tensor, stream: TaskStream, task: int
) -> tuple[list[float], list[float], list[float], float]:
    """Measures accuracy on every task seen, in percent.

    Returns the row of the accuracy matrix, the same with the task known (argmax among the classes
    of its training nodes), the accuracy per class seen and that on all nodes seen. A task or class
    without nodes to judge counts as 0.
    """
    row, row_task_incremental, labels, right = [], [], [], []
    for seen in range(task + 1):
        judged = stream.evaluation(seen)
        labels.append(judged.labels)
        right.append(hits(logits, judged))
        row.append(_percent(right[-1]))
        classes = torch.unique(stream.labels[stream.tasks[seen].train_nodes])
        shown = logits[judged.nodes.to(logits.device)].cpu()
        within = classes[shown[:, classes].argmax(dim=1)]
        row_task_incremental.append(_percent(within == judged.labels))
    label_of, is_right = torch.cat(labels), torch.cat(right)
    known = range(stream.tasks[task].num_classes)
    class_row = [_percent(is_right[label_of == label]) for label in known]
    return row, row_task_incremental, class_row, _percent(is_right)


def judge_probabilities(
    logits: Tensor, stream: TaskStream, temperature: float | None
) -> dict[str, Any]:
    """Judges the probabilities of all nodes after the last task, see ``metrics.py``.

    Logits are calibrated on validation nodes that do not judge, where there are some, and divided
    by the method's own temperature elsewhere, if it has one.
    """
    k, parts = logits.shape[1], [stream.evaluation(task) for task in range(stream.num_tasks)]
    nodes = torch.cat([part.nodes for part in parts])
    held = torch.cat([task.validation_nodes for task in stream.tasks])
    held = held[: 0 if stream.protocol.evaluate == "validation" else None]

    def of(nodes: Tensor) -> tuple[Array, Array]:
        known = nodes[stream.labels[nodes] < k]
        shown = logits[known.to(logits.device)].double().cpu()
        return shown.numpy(), stream.labels[known].numpy()

    judged, labels = of(nodes)
    if not labels.size:
        return {}
    calibrated_on, exponent = None if temperature is None else "left-out nodes", 0.0
    if held.numel():
        sure, truth = of(held)
        weights = shift_weights(sure, truth, np.ones(truth.size), judged)
        temperature, exponent, _ = calibrate(sure, truth, weights)
        calibrated_on = "validation nodes"
    divisor = 1.0 if temperature is None else temperature
    found = {"temperature": divisor, "exponent": exponent, "calibrated_on": calibrated_on}
    proba = softmax(evened(judged, exponent) / divisor)
    return probability_scores(proba, labels) | found


def hits(logits: Tensor, judged: LabelledNodes) -> Tensor:
    """Tells which nodes are given their class, ``[m]``; a class without a column never is."""
    return logits[judged.nodes.to(logits.device)].argmax(dim=1).cpu() == judged.labels


def check_needs(method: Method[Any]) -> frozenset[str]:
    """Returns what the method declares to need, refusing what nobody can grant."""
    unknown = sorted(method.needs - NEEDS)
    if unknown:
        raise InputError(
            f"Expected 'needs' among {', '.join(sorted(NEEDS))} (got '{unknown[0]}'); "
            f"correct the declaration of {type(method).__name__}."
        )
    return method.needs


def check_team(method: Method[Any], training: TrainConfig, team: Team) -> None:
    """Refuses several workers where they could not share the work."""
    if team.size == 1:
        return
    name = type(method).__name__
    if method.parallel is None:
        raise InputError(
            f"Expected one worker for {name}, which cannot share its work (got {team.size}); leave "
            "'--workers' out."
        )
    if method.parallel == "batches" and not isinstance(training.batch_size, int):
        raise InputError(
            f"Expected a 'batch_size' that {team.size} workers can share (got "
            f"'{training.batch_size}'); set one, for example --set batch_size=512."
        )


def check_backbone(method: type[Method[Any]], config: ModelConfig) -> None:
    """Refuses a backbone that a method cannot work with."""
    if "gat" in method.needs and config.backbone != "gat":
        raise InputError(
            f"Expected 'backbone' to be 'gat' for {method.__name__} (got "
            f"'{config.backbone}'); change it or the method."
        )
    if "attention" in method.needs and not ENCODERS[config.backbone].has_attention:
        able = " or ".join(f"'{name}'" for name, cls in ENCODERS.items() if cls.has_attention)
        raise InputError(
            f"Expected 'backbone' to be {able} for {method.__name__}, which needs attention "
            f"(got '{config.backbone}'); change it or the method."
        )


def learner_state(learner: Learner) -> dict[str, Any]:
    """Returns nested tensors and plain values that :func:`restore_learner` takes back."""
    model = learner.model
    return {
        "next_task": learner.next_task,
        "num_seen": learner.num_seen,
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
    learner.next_task, learner.num_seen = int(state["next_task"]), int(state["num_seen"])
    if learner.num_seen < 0:
        raise ValueError("a negative number of nodes")
    learner.method.load_state_dict(state["method"])
    if state["model"] is not None:
        model = restore_model(model_config, state["model"], state.get("channels"))
        learner.model = model.to(device)


def _percent(right: Tensor) -> float:
    return 100.0 * int(right.sum()) / max(right.numel(), 1)
