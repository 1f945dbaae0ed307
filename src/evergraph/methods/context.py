"""TaskContext: what a method works with during one task — the view, the network, randomness."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, Literal, TypeVar, overload

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from evergraph.closed_form.selection import Metric
from evergraph.device import make_generator
from evergraph.errors import InputError
from evergraph.kernels.attention import AttentionPath
from evergraph.nn.cuda_graphs import RecordedStep
from evergraph.nn.model import Adam, ModelConfig, NodeClassifier, Output
from evergraph.nn.receptive_field import (
    ReceptiveField,
    StepFields,
    receptive_field,
    sample_field,
)
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features
from evergraph.stream.shard import Shard, SharedRows
from evergraph.stream.tasks import GraphView, LabelledNodes
from evergraph.team import ALONE, Team
from evergraph.validation import Config

T = TypeVar("T")
BatchSize = Annotated[int, Field(ge=1)]
ClassWeight = Annotated[float, Field(gt=0, allow_inf_nan=False)]
#: What is drawn for a worker's own share of a step: each has a generator of its own for it.
OWN = frozenset({"dropout", "sampling", "link dropout", "link negatives"})


class TrainConfig(Config):
    """Gradient descent, the same for every method."""

    epochs: int = Field(default=500, ge=1)  # epochs per task
    lr: float = Field(default=0.005, gt=0)  # learning rate of Adam
    weight_decay: float = Field(default=5e-4, ge=0)  # Adam's L2 penalty
    #: Share of the target spread over all classes seen.
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    #: Nodes per step: ``full`` trains on whole graphs, a number on neighbourhoods sampled around
    #: that many nodes, ``auto`` on whole graphs wherever they fit.
    batch_size: BatchSize | Literal["auto", "full"] = "auto"
    fanout: int = Field(default=10, ge=1)  # neighbours drawn per node and layer when sampling
    #: ``natural`` lets every node weigh the same in the cross-entropy, ``balanced`` every class
    #: among the nodes of a term; ``auto`` is what the metric asks for. Or weights by the names of
    #: classes, 1 for others.
    class_weight: Literal["natural", "balanced", "auto"] | dict[str, ClassWeight] = "auto"
    metric: Metric = "accuracy"  # what ``auto`` class weights are to raise

    @property
    def weighing(self) -> Literal["natural", "balanced"] | dict[str, ClassWeight]:
        """The class weights, ``auto`` resolved: each is the loss of its metric."""
        if self.class_weight != "auto":
            return self.class_weight
        return "natural" if self.metric == "accuracy" else "balanced"

    @property
    def unhashed(self) -> set[str]:
        """Fields that 0.1.0 had not, where they do what it did: its runs keep their hashes."""
        return {"class_weight", "metric"} if self.weighing == "natural" else set()

    @property
    def unused(self) -> frozenset[str]:
        """Names what has no effect beside the other settings."""
        return frozenset() if self.class_weight == "auto" else frozenset({"metric"})


@dataclass(eq=False, repr=False)
class TaskContext:
    """What a method works with during one task.

    Attributes:
        view: Everything that the method may see.
        model: The network, None until :meth:`prepare_model`.
        optimizer: Adam over the model, made anew for every task.
        batch: The training nodes of the current step; all of them in full-batch mode.
        task_classes: The classes of the task, ascending, ``[c]``: new ones and those of training
            nodes. If there is only one, nothing could be told apart, so it is all classes seen.
        final: Whether this is the last task, so that nothing needs to be kept.
        plain: Whether the network takes the path that can be differentiated twice.
        batch_size: Training nodes per step; None trains on the whole graph.
        seconds: Time spent by stage.
        report: What the method reports about this task; it goes into the results unchanged.
        prepared: What a method has computed from the graph, by name; emptied when the graph
            changes.
        class_names: Names of the classes seen, where class weights need them.
    """

    view: GraphView
    _: KW_ONLY
    model: NodeClassifier | None
    model_config: ModelConfig
    training: TrainConfig
    seed: int
    final: bool
    plain: bool = False
    batch_size: int | None = None
    optimizer: Adam | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    class_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.batch = LabelledNodes(self.view.train_nodes, self.view.train_labels)
        labels = self.batch.labels
        new = labels.new_tensor(self.view.new_classes)
        self.task_classes: Tensor = torch.unique(torch.cat([labels, new]))
        if self.task_classes.numel() < 2:
            self.task_classes = torch.arange(self.view.num_classes, device=labels.device)
        self._generators: dict[tuple[str, str], torch.Generator] = {}
        self.adjacency = self.view.adjacency

    @property
    def adjacency(self) -> Adjacency:
        """The graph to train and predict on; the view's own unless a method edits it."""
        return self._adjacency

    @adjacency.setter
    def adjacency(self, graph: Adjacency) -> None:
        self._adjacency = graph
        self._fields = StepFields(self.view.features, graph, self.model_config.num_layers)
        self.prepared: dict[str, Any] = {}

    @property
    def graph(self) -> Adjacency | Shard:
        """What a closed form computes on: the whole graph, or this worker's shard of it."""
        return self.adjacency if self.view.shard is None else self.view.shard

    @property
    def team(self) -> Team:
        """The workers that learn the task together."""
        return ALONE if self.view.shard is None else self.view.shard.team

    @property
    def device(self) -> torch.device:
        """Where the view lives."""
        return self.view.adjacency.device

    def generator(self, purpose: str, device: torch.device | str | None = None) -> torch.Generator:
        """Returns this task's generator for one purpose, on the view's device by default."""
        place = torch.device(device) if device is not None else self.device
        key = (purpose, str(place))
        if key not in self._generators:
            own = f" {self.team.rank}" if purpose in OWN and self.team.size > 1 else ""
            made = make_generator(self.seed, purpose + own, self.view.task, device=place)
            self._generators[key] = made
        return self._generators[key]

    def snapshot(self) -> dict[str, Any]:
        """Returns what changes during descent: network, optimiser, and randomness by purpose."""
        assert self.optimizer is not None
        drawn = {"\n".join(key): g.get_state() for key, g in self._generators.items()}
        kept = {"model": dict(self.network.state_dict()), "optimizer": self.optimizer.state_dict()}
        return {**kept, "generators": drawn}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Takes back what :meth:`snapshot` returned."""
        assert self.optimizer is not None
        self.network.load_state_dict(snapshot["model"])
        self.optimizer.load_state_dict(snapshot["optimizer"])
        for key, state in snapshot["generators"].items():
            purpose, device = key.split("\n")
            self.generator(purpose, device).set_state(state)

    def objective(
        self, model: NodeClassifier, loss: Callable[[], Tensor], *, whole: bool = True
    ) -> Callable[[], Tensor]:
        """Returns a loss whose gradients are averaged over the workers.

        Unless it is ``whole`` some of the model's parameters have no part in it.
        """
        if self.team.size == 1:
            return loss
        from torch.nn.parallel import DistributedDataParallel  # noqa: PLC0415 - large, seldom used

        return DistributedDataParallel(_Objective(model, loss), find_unused_parameters=not whole)

    def recorded(self, step: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Lets CUDA replay a step that always launches the same work and never reads a value back.

        On the CPU, and where neighbourhoods are sampled, the step is called as it is.
        """
        if self.device.type != "cuda" or self.batch_size is not None:
            return step

        def generators() -> list[torch.Generator]:
            return [g for g in self._generators.values() if g.device.type == "cuda"]

        return RecordedStep(step, self.device, generators)

    def prepare_model(self, *, fresh: bool = False) -> NodeClassifier:
        """Warm-starts θ from the last task (or makes it anew), grows the head, resets Adam."""
        generator = self.generator("init", "cpu")
        if self.model is None or fresh:
            model = NodeClassifier(
                self.model_config, self.view.num_features, self.view.num_classes, generator
            )
        else:
            model = self.model
            model.head.grow(self.view.num_classes, generator)
        return self.adopt_model(model)

    def adopt_model(self, model: NodeClassifier) -> NodeClassifier:
        """Takes a network, whose shape may have changed, and resets Adam."""
        self.model, training = model.to(self.device), self.training
        self.optimizer = Adam(model.parameters(), training.lr, weight_decay=training.weight_decay)
        return self.model

    def batches(self) -> Iterator[LabelledNodes]:
        """Yields one epoch's batches of the training nodes, shuffled when there are several."""
        everyone = LabelledNodes(self.view.train_nodes, self.view.train_labels)
        if self.batch_size is None:
            yield everyone
            return
        order = torch.randperm(
            everyone.nodes.numel(), generator=self.generator("batches"), device=self.device
        )
        for rows in torch.split(order, self.batch_size):
            yield everyone.take(self._share(rows))

    def _share(self, rows: Tensor) -> Tensor:
        """Returns what of a step's rows is this worker's; all where there are too few to share."""
        return rows if rows.numel() < self.team.size else self.team.share(rows)

    @property
    def own_batch_size(self) -> int | None:
        """Nodes per step that are this worker's; None trains on the whole graph."""
        return None if self.batch_size is None else -(-self.batch_size // self.team.size)

    def begin_step(self, batch: LabelledNodes) -> None:
        """Takes the next batch, and starts over with the node lists that a step asks for."""
        self.batch = batch
        self._fields.rewind()

    @property
    def network(self) -> NodeClassifier:
        """The model; raises if it has not been prepared."""
        if self.model is None:
            raise InputError(
                "Expected a network to run (got none prepared); call ctx.prepare_model() in "
                "'begin_task'."
            )
        return self.model

    def run(
        self,
        nodes: Tensor | None = None,
        adjacency: Adjacency | None = None,
        features: Features | None = None,
    ) -> Output:
        """Runs the network; dropout is on while the model is in training mode.

        In training it reads no more than the nodes' neighbourhoods where these are known.
        """
        graph = self.adjacency if adjacency is None else adjacency
        seen = self.view.features if features is None else features
        part = ReceptiveField(seen, graph, nodes)
        if not self.network.training:
            if nodes is not None and graph.whole_degree is not None and not self.plain:
                part = receptive_field(seen, graph, nodes, self.model_config.num_layers)
            return self._run(part)
        if nodes is not None and self.batch_size is not None:
            part = self.sample(nodes, graph)
        elif nodes is not None and adjacency is None and not self.plain:
            part = self._fields.next(nodes) or part
        return self._run(part, self.generator("dropout"))

    def _run(
        self, part: ReceptiveField, dropout: torch.Generator | None = None, plain: bool = False
    ) -> Output:
        features, graphs, rows = part.features, part.graphs, part.rows
        output: Output = self.network(features, graphs, rows, dropout, plain or self.plain)
        return output

    def parts(
        self, nodes: Tensor, attention: bool = False
    ) -> Iterator[tuple[Tensor, Output, ReceptiveField]]:
        """Runs the network on nodes without dropout, recording for gradients.

        Yields all at once on the whole graph, or batches on sampled neighbourhoods where training
        samples them: gradients on the whole graph would not fit there either. Each time it tells
        which of the nodes these are, what the network says of them, and what it read.
        """
        self.network.eval()
        everyone = torch.arange(nodes.numel(), device=nodes.device)
        for rows in torch.split(everyone, self.batch_size or max(nodes.numel(), 1)):
            part = ReceptiveField(self.view.features, self.adjacency, nodes)
            if self.batch_size is not None:
                part = self.sample(nodes[rows], self.adjacency)
            yield rows, self._run(part, plain=attention), part

    def sample(self, nodes: Tensor, graph: Adjacency) -> ReceptiveField:
        """Draws the part of a graph that the network needs for some nodes."""
        return sample_field(
            self.view.features,
            graph,
            nodes,
            self.model_config.num_layers,
            fanout=self.training.fanout,
            generator=self.generator("sampling"),
        )

    def draw(self, *columns: Tensor) -> list[Tensor]:
        """Takes from columns of equal length what a step replays: all rows, or a batch of them."""
        count = columns[0].shape[0]
        if self.batch_size is None or (count <= self.batch_size and self.team.size == 1):
            return list(columns)
        order = torch.randperm(count, generator=self.generator("replay"), device=self.device)
        rows = self._share(order[: self.batch_size])
        return [column[rows] for column in columns]

    def replay(self, kept: LabelledNodes, *beside: Tensor) -> tuple[Tensor, ...]:
        """Returns logits of the batch ``[m, k]`` and of kept nodes ``[b, k]``, in one pass.

        After them come the kept nodes' labels and their rows of what stands beside, for a step
        on sampled neighbourhoods replays no more than a batch.
        """
        nodes, *rest = self.draw(kept.nodes, kept.labels, *beside)
        logits = self.forward(torch.cat([self.batch.nodes, nodes]))
        current, replayed = logits.tensor_split([self.batch.nodes.numel()])
        return current, replayed, *rest

    def without_edges(self, count: int) -> Adjacency:
        """Returns so many nodes without edges: a backbone of any kind is an MLP on them."""
        none = self.adjacency.src.new_empty(2, 0)
        return self.once(f"{count} without edges", lambda: Adjacency.from_edges(none, count))

    def once(self, name: str, make: Callable[[], T]) -> T:
        """Returns what is prepared under a name, and makes it when it is first asked for."""
        if name not in self.prepared:
            self.prepared[name] = make()
        found: T = self.prepared[name]
        return found

    def forward_rows(self, rows: Tensor) -> Tensor:
        """Returns logits ``[m, k]`` of rows ``[m, d]`` that stand for nodes without edges."""
        part = ReceptiveField(rows, self.without_edges(rows.shape[0]), None)
        return self._run(part, self.generator("dropout") if self.network.training else None).logits

    @overload
    def forward(
        self,
        nodes: Tensor | None = None,
        adjacency: Adjacency | None = None,
        attention: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        nodes: Tensor | None = None,
        adjacency: Adjacency | None = None,
        *,
        attention: Literal[True],
    ) -> tuple[Tensor, list[Tensor]]: ...

    def forward(
        self,
        nodes: Tensor | None = None,
        adjacency: Adjacency | None = None,
        attention: bool = False,
    ) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Returns logits ``[m, k]`` of the given nodes, all by default, with attention if asked."""
        output = self.run(nodes, adjacency)
        return (output.logits, output.attention) if attention else output.logits

    def embed(self, nodes: Tensor | None = None) -> Tensor:
        """Returns embeddings ``h`` ``[m, d]`` without gradient or dropout."""
        return self.observe(nodes).h

    def observe(
        self,
        nodes: Tensor | None = None,
        adjacency: Adjacency | None = None,
        features: Features | None = None,
    ) -> Output:
        """Runs the network without gradient or dropout, on another graph and features if given."""
        if self.view.shard is not None and adjacency is None and features is None:
            logits, h = map(self.team.gather, self.observe_own(self.network))
            return Output(logits, h, []) if nodes is None else Output(logits[nodes], h[nodes], [])
        self.network.eval()
        with torch.no_grad():
            return self.run(nodes, adjacency, features)

    def observe_own(self, model: NodeClassifier) -> tuple[Tensor, Tensor]:
        """Runs a network on the nodes of this worker's shard, layer by layer.

        Returns logits and embeddings. Every layer fetches the rows of other workers that it reads.
        """
        assert self.view.shard is not None
        shard, features = self.view.shard, self.view.features
        if self.adjacency.num_edges:  # the graph may have been edited
            shard = self.once("shard", lambda: Shard.of(self.adjacency, self.team))
        if isinstance(features, SharedRows):
            features = features.own
        elif features.shape[0] > shard.last - shard.first:
            features = features[torch.arange(shard.first, shard.last, device=self.device)]
        path: AttentionPath = "plain" if self.plain else model.config.attention
        found = []
        with torch.no_grad():
            how = (shard.blocks, path, shard.extend)
            for _, h in model.eval().encoder.by_blocks(features, *how):
                found.append((model.classify(h, plain=self.plain), h))
        logits, h = (torch.cat(part) for part in zip(*found, strict=True))
        return logits, h

    def cross_entropy(
        self,
        logits: Tensor,
        labels: Tensor,
        weight: Tensor | None = None,
        *,
        balanced: bool = False,
    ) -> Tensor:
        """Averages cross-entropy over nodes (Eq. 1), by weight if given, smoothed as configured.

        ``balanced`` lets every class among the nodes weigh the same, whatever is configured.
        """
        losses = functional.cross_entropy(
            logits, labels, reduction="none", label_smoothing=self.training.label_smoothing
        )
        if balanced and self.training.weighing != "balanced":
            evenly = _balanced(logits.shape[1], labels)[labels]
            weight = evenly if weight is None else weight * evenly
        if self.training.weighing != "natural":
            by_class = self._weights_of_classes(logits.shape[1], labels)[labels]
            weight = by_class if weight is None else weight * by_class
        if weight is None:
            return losses.mean()
        return (losses * weight).sum() / weight.sum()

    def _weights_of_classes(self, count: int, labels: Tensor) -> Tensor:
        """Returns what nodes of each class weigh, ``[count]``."""
        given = self.training.weighing
        if isinstance(given, str):
            return _balanced(count, labels)
        found = self.once("class weights", lambda: self.named_weights(given).to(labels.device))
        return found if count == found.numel() else found[self.task_classes]

    def named_weights(self, given: Mapping[str, float], dtype: torch.dtype | None = None) -> Tensor:
        """Returns the weights given by the names of classes, 1 for others, ``[k]``."""
        return torch.tensor([given.get(str(name), 1.0) for name in self.class_names], dtype=dtype)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Adds the time spent inside to a stage; waits for the device at both ends."""
        begin = self._clock()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + self._clock() - begin

    def _clock(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


class _Objective(nn.Module):
    """A loss as a module, as PyTorch wants it to average gradients."""

    def __init__(self, model: NodeClassifier, loss: Callable[[], Tensor]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self) -> Tensor:
        """Computes the loss."""
        return self.loss()


def _balanced(count: int, labels: Tensor) -> Tensor:
    """Returns one over the number of nodes of each class, ``[count]``."""
    ones = torch.ones(labels.numel(), device=labels.device)
    return ones.new_zeros(count).index_add_(0, labels, ones).clamp_(min=1).reciprocal()
