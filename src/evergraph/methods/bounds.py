"""What methods are held against: fine-tuning, a frozen network, and training on all labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from evergraph.events import Epoch, Stage
from evergraph.memory.buffer import neighbourhood_bytes
from evergraph.methods.analytic import Analytic
from evergraph.methods.analytic_config import AnalyticConfig
from evergraph.methods.base import Descent, Method, MethodConfig, SearchSpace
from evergraph.methods.context import TaskContext, TrainConfig
from evergraph.nn import ModelConfig
from evergraph.nn.encoders import propagate
from evergraph.stream.adjacency import Adjacency
from evergraph.stream.tasks import LabelledNodes

#: The logit of a class that is not known.
UNKNOWN = -1e9


class Finetune(Method[MethodConfig]):
    """Trains on the current task alone: the lower bound."""

    Config = MethodConfig
    summary = "trains on the current task alone; the lower bound"
    paper = "McCloskey and Cohen, Catastrophic Interference in Connectionist Networks"
    year = 1989
    local = True
    parallel = "batches"


class Frozen(Method[MethodConfig]):
    """Trains on the first task and never again; classes that come later are never predicted.

    What it says of later nodes is what a deployed network would say, whose graph goes on growing.
    """

    Config = MethodConfig
    summary = "trains on the first task alone and stays as it is"
    paper = "a baseline without a paper: what doing nothing costs"
    year = 2026
    num_known = 0  # classes of the first task

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Descent]:
        """Trains once."""
        if not self.num_known:
            yield Descent()
            self.num_known = ctx.view.num_classes

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Returns the network's logits; the head grows with the classes, untrained and unheard."""
        logits = super().predict_logits(ctx).clone()
        logits[:, self.num_known :] = UNKNOWN
        return logits

    def state_dict(self) -> dict[str, Any]:
        """Returns how many classes are known."""
        return {"num_known": self.num_known}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.num_known = int(state["num_known"])


#: Settings of propagated logits alone.
OF_APPNP = frozenset({"teleport", "propagation_steps"})


class JointConfig(MethodConfig):
    """Settings of joint training."""

    warm_start: bool = False  # continue from the last task's weights instead of starting anew
    #: What is trained on all labels: the ``network``; ``appnp``, an MLP of the network's shape
    #: whose logits are propagated by personalised PageRank; or ``analytic``, the closed form with
    #: its statistics taken anew on the present graph.
    learner: Literal["network", "appnp", "analytic"] = "network"
    teleport: float = Field(default=0.1, gt=0, le=1)  # teleport probability α of appnp
    propagation_steps: int = Field(default=10, ge=1)  # steps of appnp

    def unused(self) -> frozenset[str]:
        """Names what other learners take: those of a network, and of propagated logits."""
        if self.learner == "analytic":
            network = {*TrainConfig.model_fields, *ModelConfig.model_fields}
            return frozenset(OF_APPNP | {"warm_start"} | network)
        return frozenset(OF_APPNP if self.learner == "network" else ())

    @classmethod
    def hashed_as(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Leaves out what changes nothing, so that runs of 0.1.0 are known by their hash."""
        learner = settings.get("learner", "network")
        unused = set() if learner == "appnp" else set(OF_APPNP)
        unused |= {"learner"} if learner == "network" else set()
        return {key: value for key, value in settings.items() if key not in unused}


class Joint(Method[JointConfig]):
    """Retrains on all training labels so far: the upper bound. It reads old labels.

    A bound is that of a learner: a method that predicts by a closed form or propagates its scores
    is to be held against joint training of the same kind.
    """

    Config = JointConfig
    summary = "retrains on all training labels so far (reads old labels); the upper bound"
    paper = "Caruana, Multitask Learning"
    year = 1997
    needs = frozenset({"old_labels"})
    search: ClassVar[SearchSpace] = {  # of which a learner's own are searched
        "lr": (0.001, 0.005, 0.01),
        "dropout": (0.2, 0.35, 0.5, 0.65, 0.8),
        "weight_decay": (0.0, 5e-4, 2e-3, 5e-3),
        "head_init": ("uniform", "default"),
        "label_smoothing": (0.0, 0.1, 0.2),
        "epochs": (100, 200, 500),
        "teleport": (0.05, 0.1, 0.2),
    }
    analytic: Analytic | None = None  # of the last task, where it is the learner
    num_labels = 0  # that the next task will ask for

    def __init__(self, config: JointConfig) -> None:
        super().__init__(config)
        self.parallel = "batches" if config.learner == "network" else None

    def begin_task(self, ctx: TaskContext) -> None:
        """Starts from fresh weights unless told to keep them."""
        if self.config.learner != "analytic":
            ctx.prepare_model(fresh=not self.config.warm_start)

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Stage | Descent]:
        """Descends on all labels, or gives them to a new closed form as if they were one task."""
        if self.config.learner != "analytic":
            yield Descent()
            return
        view = ctx.view
        everything = replace(
            view,
            train_nodes=torch.cat([view.granted_nodes, view.train_nodes]),
            train_labels=torch.cat([view.granted_labels, view.train_labels]),
            new_classes=tuple(range(view.num_classes)),
            num_old=0,
            grants={},
        )
        self.analytic = Analytic(AnalyticConfig())
        whole = replace(ctx, view=everything)
        yield from self.analytic.fit_task(whole)
        ctx.prepared = whole.prepared  # what the last task's closed form prepared has other columns

    def loss(self, ctx: TaskContext) -> Tensor:
        """Cross-entropy on the current and all earlier training nodes."""
        num_old, num_current = ctx.view.granted_nodes.numel(), ctx.view.train_nodes.numel()
        granted = LabelledNodes(ctx.view.granted_nodes, ctx.view.granted_labels)
        if self.config.learner == "appnp":
            nodes, old_labels = ctx.draw(granted.nodes, granted.labels)
            everyone = self._propagated(
                ctx, ctx.forward(adjacency=ctx.without_edges(ctx.view.num_nodes))
            )
            logits = everyone.index_select(0, ctx.batch.nodes)
            replayed = everyone.index_select(0, nodes)
        else:
            logits, replayed, old_labels = ctx.replay(granted)
        if ctx.batch_size is None or num_old == 0:
            labels = torch.cat([ctx.batch.labels, old_labels])
            return ctx.cross_entropy(torch.cat([logits, replayed]), labels)
        current = ctx.cross_entropy(logits, ctx.batch.labels)
        old = ctx.cross_entropy(replayed, old_labels)
        # A batch holds other shares of old and current nodes than the whole.
        return (num_current * current + num_old * old) / (num_current + num_old)

    def end_task(self, ctx: TaskContext) -> None:
        """Notes how many labels must be there for the next task, unless none follows."""
        if not ctx.final:
            self.num_labels = ctx.view.granted_nodes.numel() + ctx.view.train_nodes.numel()

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Asks what was trained."""
        if self.analytic is not None:
            return self.analytic.predict_logits(ctx)
        if self.config.learner == "appnp":
            return self._propagated(
                ctx, ctx.observe(adjacency=ctx.without_edges(ctx.view.num_nodes)).logits
            )
        return super().predict_logits(ctx)

    @property
    def closed_form(self) -> Analytic | None:
        """The last task's closed form, where it is the learner."""
        return self.analytic and self.analytic.closed_form

    def _propagated(self, ctx: TaskContext, logits: Tensor) -> Tensor:
        """Propagates logits with the settings' steps and teleport probability."""
        config = self.config
        return personalised_pagerank(
            logits, ctx.adjacency, config.teleport, config.propagation_steps
        )

    def memory_bytes(self) -> int:
        """Counts the node and the label of everything learned so far, wherever they are kept.

        The closed form does not count: it is made anew at every task, as the network is.
        """
        return 16 * self.num_labels

    def graph_bytes(self, ctx: TaskContext) -> int:
        """Counts the features and neighbourhoods of all training nodes, as deep as it reads."""
        depth = ctx.model_config.num_layers
        if self.config.learner == "appnp":
            depth = self.config.propagation_steps
        elif self.analytic is not None:
            kind = self.analytic.selection.kind
            depth = max(kind.powers) if kind is not None else depth
        nodes = torch.cat([ctx.view.granted_nodes, ctx.view.train_nodes])
        return neighbourhood_bytes(ctx.view.features, ctx.view.adjacency, nodes, depth)

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of labels, and the closed form where it is what predicts."""
        state: dict[str, Any] = {"num_labels": self.num_labels}
        return state if self.analytic is None else {**state, "analytic": self.analytic.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned; 0.1.0 wrote nothing."""
        self.num_labels = int(state.get("num_labels", 0))
        if self.num_labels < 0:
            raise ValueError("a negative number of labels")
        if self.config.learner == "analytic" and "analytic" in state:
            self.analytic = Analytic(AnalyticConfig())
            self.analytic.load_state_dict(state["analytic"])


def personalised_pagerank(logits: Tensor, graph: Adjacency, teleport: float, steps: int) -> Tensor:
    r"""Propagates logits ``[n, k]`` as APPNP does (Gasteiger et al., ICLR 2019).

    From :math:`Z^{(0)} = H`, so many steps of
    :math:`Z \leftarrow (1 - \alpha) D^{-1/2} (A + I) D^{-1/2} Z + \alpha H`.
    """
    looped, weights, propagated = graph.with_self_loops, graph.symmetric_weights, logits
    for _ in range(steps):
        neighbours = propagate(looped, weights, propagated)
        propagated = (1 - teleport) * neighbours + teleport * logits
    return propagated
