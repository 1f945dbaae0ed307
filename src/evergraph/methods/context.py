"""TaskContext: a method's hands during one task — the view, the network, the randomness."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, overload

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from evergraph.events import Epoch
from evergraph.nn.model import ModelConfig, NodeClassifier, Output, build_model
from evergraph.nn.receptive_field import Fields, Graphs
from evergraph.nn.sampling import Block, sample_block
from evergraph.rng import make_generator
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.graph import take_rows
from evergraph.stream.tasks import GraphView, LabelledNodes
from evergraph.validation import Config

if TYPE_CHECKING:
    from evergraph.methods.base import Method

ResultT = TypeVar("ResultT")
BatchSize = Annotated[int, Field(ge=1)]


class TrainConfig(Config):
    """Gradient descent, the same for every method.

    Attributes:
        epochs: Epochs per task.
        lr: Learning rate of Adam.
        weight_decay: Adam's L2 penalty.
        label_smoothing: Share of the target spread over all classes seen.
        batch_size: Nodes per step: ``full`` trains on whole graphs, a number on neighbourhoods
            sampled around that many nodes, ``auto`` on whole graphs wherever they fit.
        fanout: Neighbours drawn per node and layer when sampling.
    """

    epochs: int = Field(default=500, ge=1)
    lr: float = Field(default=0.005, gt=0)
    weight_decay: float = Field(default=5e-4, ge=0)
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    batch_size: BatchSize | Literal["auto", "full"] = "auto"
    fanout: int = Field(default=10, ge=1)


class TaskContext:
    """What a method works with during one task.

    Attributes:
        view: All that may be seen.
        adjacency: The graph to train and predict on; the view's own unless a method edits it.
        model: The network, None until :meth:`prepare_model`.
        optimizer: Adam over the model, made anew for every task.
        batch: The training nodes of the current step; all of them in full-batch mode.
        final: Whether no task follows, so that nothing needs to be kept.
        plain: Whether the network takes the path that can be differentiated twice.
        batch_size: Training nodes per step; None trains on the whole graph.
        seconds: Time spent by stage.
    """

    def __init__(
        self,
        view: GraphView,
        *,
        model: NodeClassifier | None,
        model_config: ModelConfig,
        training: TrainConfig,
        seed: int,
        final: bool,
        plain: bool = False,
        batch_size: int | None = None,
        descend: Callable[[Method[Any], TaskContext], Iterator[Epoch]],
    ) -> None:
        self.view = view
        self.adjacency: Adjacency = view.adjacency
        self.model = model
        self.model_config = model_config
        self.training = training
        self.seed = seed
        self.final = final
        self.plain = plain
        self.batch_size = batch_size
        self.optimizer: torch.optim.Optimizer | None = None
        self.batch = LabelledNodes(view.train_nodes, view.train_labels)
        self.seconds: dict[str, float] = {}
        self._descend = descend
        self._fields = Fields(view.features, model_config.num_layers)
        self._together: tuple[Tensor, Tensor, Tensor] | None = None
        self._generators: dict[tuple[str, str], torch.Generator] = {}

    @property
    def device(self) -> torch.device:
        """Where the view lives."""
        return self.view.adjacency.device

    def generator(self, purpose: str, device: torch.device | str | None = None) -> torch.Generator:
        """Returns this task's generator for one purpose, on the view's device by default."""
        place = torch.device(device) if device is not None else self.device
        key = (purpose, str(place))
        if key not in self._generators:
            self._generators[key] = make_generator(self.seed, purpose, self.view.task, device=place)
        return self._generators[key]

    def device_generators(self) -> list[torch.Generator]:
        """Lists the generators made so far on the view's device."""
        return [g for g in self._generators.values() if g.device.type == self.device.type]

    def prepare_model(self, *, fresh: bool = False) -> NodeClassifier:
        """Warm-starts θ from the last task (or makes it anew), grows the head, resets Adam."""
        generator = self.generator("init", "cpu")
        if self.model is None or fresh:
            model = build_model(
                self.model_config, self.view.num_features, self.view.num_classes, generator
            )
        else:
            model = self.model
            model.head.grow(self.view.num_classes, generator)
        return self.adopt_model(model)

    def adopt_model(self, model: NodeClassifier) -> NodeClassifier:
        """Takes a network, whose shape may have changed, and resets Adam."""
        self.model = model.to(self.device)
        self.optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=self.training.lr,
            weight_decay=self.training.weight_decay,
            fused=True,
            capturable=self.device.type == "cuda",
        )
        return self.model

    def descend(self, method: Method[Any]) -> Iterator[Epoch]:
        """Runs the training loop of ``train.py`` on a method's loss."""
        return self._descend(method, self)

    def narrate(
        self, losses: Generator[Tensor, None, ResultT], stage: str, num_epochs: int
    ) -> Generator[Epoch, None, ResultT]:
        """Turns the losses of a stage into events and hands its result on."""
        epoch = 0
        while True:
            try:
                loss = next(losses)
            except StopIteration as stop:
                result: ResultT = stop.value
                return result
            yield Epoch(self.view.task, stage, epoch, num_epochs, loss)
            epoch += 1

    def run(self, nodes: Tensor | None = None, adjacency: Adjacency | None = None) -> Output:
        """Runs the network; dropout is on while the model is in training mode."""
        if self.model is None:
            raise RuntimeError("the model is not prepared: call ctx.prepare_model() first")
        graph = self.adjacency if adjacency is None else adjacency
        features, rows = self.view.features, nodes
        generator = self.generator("dropout") if self.model.training else None
        graphs: Graphs = graph
        if self.model.training and nodes is not None:
            if self.batch_size is not None:
                block = self.sample(nodes, graph)
                features, rows = take_rows(features, block.nodes), block.rows
                graphs = block.adjacency
            elif not self.plain and (field := self._fields.of(nodes, graph)) is not None:
                features, graphs, rows = field.features, field.graphs, field.rows
        output: Output = self.model(features, graphs, rows, generator, self.plain)
        return output

    def together(self, others: Tensor) -> Tensor:
        """Returns the batch's nodes and others, the same tensor as long as both are the same.

        What comes again at every step is worth preparing for (:class:`Fields`).
        """
        mine, known = self.batch.nodes, self._together
        if known is None or known[0] is not mine or known[1] is not others:
            self._together = known = (mine, others, torch.cat([mine, others]))
        return known[2]

    def sample(self, nodes: Tensor, graph: Adjacency) -> Block:
        """Draws the part of a graph that the network needs for some nodes."""
        depth = self.model_config.num_layers
        return sample_block(graph, nodes, self.training.fanout, depth, self.generator("sampling"))

    def subset(self, count: int) -> Tensor | None:
        """Draws which of ``count`` replayed nodes a step uses; None means all of them."""
        if self.batch_size is None or count <= self.batch_size:
            return None
        order = torch.randperm(count, generator=self.generator("replay"), device=self.device)
        return order[: self.batch_size]

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
            yield everyone.take(rows)

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

    def embed(self, nodes: Tensor | None = None, adjacency: Adjacency | None = None) -> Tensor:
        """Returns embeddings ``h`` ``[m, d]`` without gradient or dropout."""
        return self.observe(nodes, adjacency).h

    def observe(self, nodes: Tensor | None = None, adjacency: Adjacency | None = None) -> Output:
        """Runs the network without gradient or dropout."""
        assert self.model is not None
        self.model.eval()
        with torch.no_grad():
            return self.run(nodes, adjacency)

    def cross_entropy(self, logits: Tensor, labels: Tensor, weight: Tensor | None = None) -> Tensor:
        """Averages cross-entropy over nodes (Eq. 1), smoothed as configured.

        Args:
            logits: ``[m, k]``.
            labels: ``[m]``.
            weight: Weight of each node, ``[m]``; the mean is the weighted one.
        """
        losses = functional.cross_entropy(
            logits, labels, reduction="none", label_smoothing=self.training.label_smoothing
        )
        if weight is None:
            return losses.mean()
        return (losses * weight).sum() / weight.sum()

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
