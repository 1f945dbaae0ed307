"""The contract of a continual learner. ``train.py`` calls it in the order written here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from evergraph.events import Epoch
from evergraph.memory.buffer import ReplayBuffer
from evergraph.methods.context import TaskContext
from evergraph.nn.model import NodeClassifier
from evergraph.validation import Config

#: What a method may declare that it needs beyond a :class:`~evergraph.stream.GraphView`.
NEEDS = frozenset({"old_labels", "validation", "attention", "double_backward"})


class MethodConfig(Config):
    """Base of a method's settings; ``old_names`` maps names of earlier versions to today's."""

    old_names: ClassVar[Mapping[str, str]] = {}


ConfigT = TypeVar("ConfigT", bound=MethodConfig)
#: Settings with the values that tuning may give them; numbers ascend.
SearchSpace = Mapping[str, tuple[Any, ...]]


class Method(ABC, Generic[ConfigT]):
    """A way to learn task after task.

    One task is ``begin_task``, ``fit_task``, ``end_task``; then ``predict_logits`` is asked
    for every node seen. ``fit_task`` runs the loop of ``train.py``, which calls ``loss`` and
    ``after_backward`` at every step, unless a method overrides it.

    Attributes:
        Config: The class of its settings.
        summary: One line about it.
        paper: Where it comes from.
        year: When.
        needs: What it must be granted beyond the view; see :data:`NEEDS`.
        buffer: What it keeps of earlier tasks, or None.
        backbones: The encoders it can work with, None for all.
        static_step: Whether ``loss`` and ``after_backward`` launch the same work at every step
            of a task and never read a value back, so that CUDA may record them once.
        static_loss: The same of ``loss`` alone: what ``after_backward`` does is not recorded.
        attention_optional: Whether it can do without attention, if it needs it, on a backbone
            that has none; ``ctx.forward(attention=True)`` then returns an empty list.
        closed_form: Whether it solves for the whole graph without a network, so that neither the
            backbone nor the batch size nor, by default, the seed changes anything.
        own_keys: Settings that a dataset's preset leaves alone: they make the method what it
            is, or mean something else than in the methods that the preset was searched for.
        search: The grid that ``evergraph tune`` searches: settings with the values to try.
    """

    Config: ClassVar[type[MethodConfig]]
    summary: ClassVar[str]
    paper: ClassVar[str]
    year: ClassVar[int]
    needs: ClassVar[frozenset[str]] = frozenset()
    static_step: ClassVar[bool] = False
    static_loss: ClassVar[bool] = False
    backbones: ClassVar[frozenset[str] | None] = None
    attention_optional: ClassVar[bool] = False
    closed_form: ClassVar[bool] = False
    own_keys: ClassVar[frozenset[str]] = frozenset()
    search: ClassVar[SearchSpace] = {}
    buffer: ReplayBuffer | None = None

    def __init__(self, config: ConfigT) -> None:
        self.config: ConfigT = config

    def begin_task(self, ctx: TaskContext) -> None:
        """Prepares for a task: by default θ is warm-started and the head grows."""
        ctx.prepare_model()

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch]:
        """Learns the task, yielding an event per epoch."""
        return ctx.descend(self)

    @abstractmethod
    def loss(self, ctx: TaskContext) -> Tensor:
        """Returns the loss of one step on ``ctx.batch``."""

    def after_backward(self, ctx: TaskContext) -> None:
        """Changes gradients before the optimiser steps."""

    def end_task(self, ctx: TaskContext) -> None:
        """Keeps what later tasks need."""

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Returns logits of every node seen over every class seen, ``[n, k]``."""
        assert ctx.model is not None
        ctx.model.eval()
        with torch.no_grad():
            return ctx.forward()

    def report(self) -> dict[str, Any]:
        """Tells what happened in the last task; goes into the results as it is."""
        return {}

    def most_channels(self, channels: int, num_tasks: int) -> int:
        """Returns the most channels that a head may come to have; it begins with ``channels``."""
        return channels

    def memory_bytes(self) -> int:
        """Counts the bytes kept from task to task beyond the network itself."""
        return self.buffer.memory_bytes() if self.buffer is not None else 0

    def trim(self, stay: Tensor) -> None:
        """Lets go of some kept nodes: those that were removed, or whose label changed.

        Args:
            stay: Which of the buffer's nodes stay, in the order of ``buffer.nodes``, ``[b]``.
        """
        if self.buffer is not None:
            self.buffer.trim(stay)

    def renumber(self, new_rows: Tensor) -> None:
        """Follows nodes to new rows after others were removed.

        Args:
            new_rows: The new row of every old one, ``[n]``; −1 for those that are gone, of
                which :meth:`trim` has left none in the buffer.
        """
        if self.buffer is not None:
            self.buffer.renumber(new_rows)

    def state_dict(self) -> dict[str, Any]:
        """Returns nested dictionaries of tensors and plain values that restore the method."""
        return {"buffer": self.buffer.state_dict()} if self.buffer is not None else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        if self.buffer is not None:
            self.buffer.load_state_dict(state["buffer"])

    def check_fit(self, model: NodeClassifier | None) -> None:
        """Raises if what was restored does not belong to the network that was restored with it."""
