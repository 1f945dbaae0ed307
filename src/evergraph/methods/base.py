"""The contract of a continual learner. ``train.py`` calls it in the order written here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from evergraph.events import Epoch, Stage
from evergraph.memory.buffer import ReplayBuffer, neighbourhood_bytes
from evergraph.methods.context import TaskContext
from evergraph.nn.receptive_field import ReceptiveField
from evergraph.validation import Config

if TYPE_CHECKING:
    from evergraph.methods.analytic import Analytic

#: What a method may declare that it learns from beyond current labels and its buffer: labels of
#: earlier tasks, validation nodes, nodes that are neither learned nor judged, nodes without a
#: label, and that a node which arrived before a task is of none of its new classes. The first three
#: are granted; the others are there for all to see, and using them is what is declared. Tables show
#: it.
SOURCES = frozenset({"old_labels", "validation", "unjudged", "unlabelled", "arrival"})
#: What a method may declare that it needs: also attention scores, second derivatives, GAT as its
#: backbone.
NEEDS = SOURCES | {"attention", "double_backward", "gat"}


class MethodConfig(Config):
    """Base class of a method's settings.

    ``former`` holds the behaviour of runs recorded before a setting existed: a run without the
    setting has that value.
    """

    former: ClassVar[Mapping[str, Any]] = {}

    def unused(self) -> frozenset[str]:
        """Names the settings, also of training and network, that have no effect with these."""
        return frozenset()

    @classmethod
    def hashed_as(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the settings under the names and values that identify a run permanently."""
        new = cls.former.keys()
        return {k: v for k, v in settings.items() if k not in new or v != cls.former[k]}


@dataclass(frozen=True)
class Descent:
    """Asks for gradient descent on the method's loss; several may make up one stage."""

    epochs: int | None = None  # None takes the configured number
    stage: str = "classify"  # the name under which its epochs are reported
    first: int = 0  # number of its first epoch
    total: int | None = None  # epochs of the whole stage; None for those of this descent


class Reads(NamedTuple):
    """What learning a task reads of a large graph.

    That is what is within ``depth`` steps of the training nodes and of ``nodes``, and what is
    ``beside`` with few of its direct neighbours. A method that learns or edits ``links`` reads one
    step further around ``nodes``, so that their neighbours are embedded nearly as on the whole
    graph, and sees every edge from both ends; others see those that lead away from the rim.
    """

    nodes: Tensor
    depth: int
    beside: Tensor | None = None
    links: bool = False


def nested_sample(count: int, most: int) -> Tensor:
    """Returns at most so many of ``count`` places, evenly spaced, on the CPU.

    Of more places they are the same and some behind them, until every second one goes.
    """
    step = 1
    while count > most * step:
        step *= 2
    return torch.arange(0, count, step)


ConfigT = TypeVar("ConfigT", bound=MethodConfig)
#: Settings with the values that tuning may give them; numbers ascend.
SearchSpace = Mapping[str, tuple[Any, ...]]


class Method(Generic[ConfigT]):
    """A way to learn task after task.

    One task is ``begin_task``, ``fit_task``, ``end_task``; then ``predict_logits`` predicts every
    node seen. ``fit_task`` asks for gradient descent, whose steps call ``loss`` and
    ``after_backward``. Put anything worth reporting about a task into ``ctx.report``.

    Attributes:
        Config: The class of its settings.
        summary: One line about it.
        paper: The paper it comes from.
        year: The year of that paper.
        needs: What it must be granted beyond the view; see :data:`NEEDS`.
        search: The grid that ``evergraph tune`` searches: settings with the values to try.
        buffer: What it keeps of earlier tasks, or None.
        local: Whether the neighbourhood of training and kept nodes, within :meth:`reach`, is enough
            to learn a task, so that only that part of a large graph is shown.
        parallel: What several workers share: the ``nodes`` of the graph, each with the rows of its
            own, or the ``batches`` of every step; None: it learns on one worker alone.
        takes_back: Whether its buffer holds everything it was taught and it starts over from that
            at every task, so that nothing remains of what leaves the buffer.
        leaves_out: Whether it chooses its settings by training nodes that it leaves out.
    """

    Config: ClassVar[type[MethodConfig]]
    summary: ClassVar[str]
    paper: ClassVar[str]
    year: ClassVar[int]
    needs: frozenset[str] = frozenset()
    search: ClassVar[SearchSpace] = {}
    buffer: ReplayBuffer | None = None
    local: ClassVar[bool] = False
    parallel: Literal["nodes", "batches"] | None = None
    takes_back: bool = False
    leaves_out: ClassVar[bool] = False

    @property
    def temperature(self) -> float | None:
        """The temperature that calibrates its logits, if the method knows it."""
        return None

    @property
    def closed_form(self) -> Analytic | None:
        """The closed form on propagated features that predicts; None: something else does."""
        return None

    def __init__(self, config: ConfigT) -> None:
        self.config: ConfigT = config

    def begin_task(self, ctx: TaskContext) -> None:
        """Prepares for a task: by default, warm-starts θ and grows the head."""
        ctx.prepare_model()

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Stage | Descent]:
        """Learns the task: yields epochs of its own, and :class:`Descent` to ask for descent."""
        yield Descent()

    def loss(self, ctx: TaskContext) -> Tensor:
        """Returns the loss of one step: cross-entropy on ``ctx.batch`` (Eq. 1) by default."""
        return ctx.cross_entropy(ctx.forward(ctx.batch.nodes), ctx.batch.labels)

    def after_backward(self, ctx: TaskContext) -> None:
        """Changes gradients before the optimiser steps."""

    def end_task(self, ctx: TaskContext) -> None:
        """Keeps what later tasks need."""

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Returns logits of every node seen over every class seen, ``[n, k]``."""
        return ctx.observe().logits

    @property
    def predicts_by_network(self) -> bool:
        """Whether its logits are those of the network."""
        return type(self).predict_logits is Method.predict_logits

    def reach(self, num_layers: int) -> int | None:
        """Returns how many hops around a node its logits depend on; None: on the whole graph."""
        return num_layers if self.predicts_by_network else None

    def predict_field(self, field: ReceptiveField, num_classes: int, *, seed: int) -> Tensor:
        """Returns logits of the nodes of a receptive field, ``[m, k]``.

        Called for a method that has a reach and does not predict by the network.
        """
        raise NotImplementedError(f"{type(self).__name__} has a reach and predicts no field")

    def reads(self, num_old: int, num_nodes: int, num_layers: int) -> Reads | None:
        """Returns which part of a large graph learning a task reads; None: all of it.

        The graph has ``num_nodes`` now and had ``num_old`` at the previous task.
        """
        depth = self.reach(num_layers)
        if not self.local or depth is None:
            return None
        kept = torch.empty(0, dtype=torch.int64) if self.buffer is None else self.buffer.nodes
        return Reads(kept.cpu(), depth)

    def memory_bytes(self) -> int:
        """Counts the bytes kept in order to learn the next task while the graph is available.

        The network that predicts does not count; everything else that is kept does.
        """
        return self.buffer.memory_bytes() if self.buffer is not None else 0

    def graph_bytes(self, ctx: TaskContext) -> int:
        """Counts the further bytes that replay needs if the graph is not available.

        These are the features and neighbourhoods of replayed nodes, as deep as the network reads.
        """
        if self.buffer is None:
            return 0
        kept, depth = self.buffer, ctx.model_config.num_layers
        joined = [near.flatten() for near in kept.neighbours.values()]
        nodes = kept.nodes.to(ctx.device)
        return neighbourhood_bytes(ctx.view.features, ctx.view.adjacency, nodes, depth, joined)

    def state_dict(self) -> dict[str, Any]:
        """Returns nested dictionaries of tensors and plain values that restore the method."""
        return {"buffer": self.buffer.state_dict()} if self.buffer is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        if self.buffer is not None:
            self.buffer.load_state_dict(state["buffer"])
