r"""DSLR+: DSLR that holds on to what its last network says of nodes that are still in the graph.

.. math::
    L = \beta \cdot \mathrm{CE}(\text{current}) + (1 - \beta) \cdot \mathrm{CE}(\text{buffer})
    + \gamma \cdot \frac{1}{|D|} \sum_{v \in D} -\sum_{c} p_c(z^{old}_v / T) \log p_c(z_v / T)

The soft targets are of the network as it was after the last task, without dropout, on the current
graph before it is refined. Both softmaxes run over all classes, to the new ones of which the
last network gives no probability: a distilled node is taken for a node of an earlier class. Which
nodes :math:`D` are distilled is a setting (decision 0035); those that have a label now are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from evergraph.memory.buffer import neighbourhood_bytes
from evergraph.methods.base import Reads, SearchSpace, nested_sample
from evergraph.methods.context import TaskContext
from evergraph.methods.dslr import DSLR, DSLRConfig
from evergraph.methods.lwf import distillation_loss
from evergraph.methods.replay import Beta

#: Most training nodes that are kept to be distilled, and most nodes distilled of a large graph.
KEPT, SAMPLED = 8192, 512
DistillOn = Literal["older", "training", "all", "none"]
#: What is learned from, by the nodes that are distilled.
SOURCES_OF: Mapping[DistillOn, frozenset[str]] = {
    "older": frozenset({"arrival", "unlabelled"}),
    "training": frozenset(),
    "all": frozenset({"unlabelled"}),
    "none": frozenset(),
}


class DSLRPlusConfig(DSLRConfig):
    """Settings of DSLR+: those of DSLR and of the distillation."""

    beta: Beta = 0.5
    gamma: float = Field(default=0.5, ge=0)  # γ, weight of the distillation
    temperature: float = Field(default=1.0, gt=0)  # T, which flattens both distributions
    #: ``older`` distils all nodes that arrived before the task, ``training`` the training nodes of
    #: earlier tasks, whose ids are kept, ``all`` every node, over the columns of the last network
    #: alone, as nothing is said of when a node arrived; ``none`` switches it off.
    distill_on: DistillOn = "older"

    def unused(self) -> frozenset[str]:
        """Names what distillation would take, if there is none."""
        none = self.distill_on == "none"
        return super().unused() | (frozenset({"gamma", "temperature"}) if none else frozenset())


class DSLRPlus(DSLR):
    """DSLR whose last network teaches the next one about nodes that are still in the graph."""

    Config = DSLRPlusConfig
    config: DSLRPlusConfig
    summary = "DSLR that distils the last network's answers on nodes still in the graph"
    paper = "ours: DSLR with the distillation of Li and Hoiem, Learning without Forgetting"
    year = 2026
    needs = SOURCES_OF["older"]
    search: ClassVar[SearchSpace] = {
        **DSLR.search,
        "beta": (0.1, 0.3, 0.5, 0.7, 0.9),
        "gamma": (0.1, 0.25, 0.5, 1.0, 2.0),
        "temperature": (0.5, 1.0, 2.0),
        "selector": ("cd", "cd-core"),
        "addition": ("top", "nearest"),
    }

    def __init__(self, config: DSLRPlusConfig) -> None:
        super().__init__(config)
        self.needs = SOURCES_OF[config.distill_on]
        self._taught: tuple[Tensor, Tensor] | None = None  # nodes [m], logits [m, k], for a task

    def begin_task(self, ctx: TaskContext) -> None:
        """Asks the last network about the current graph before anything changes it."""
        self._taught = None
        if ctx.model is not None and self.config.distill_on != "none":
            nodes = self._distilled(ctx)
            if nodes.numel():
                teacher = self.predict_logits(ctx)[nodes]
                if self.config.distill_on != "all":  # what it did not know is out of the question
                    new = ctx.view.num_classes - teacher.shape[1]
                    teacher = functional.pad(teacher, (0, new), value=-torch.inf)
                self._taught = nodes, teacher
                ctx.report["distillation"] = {"nodes": nodes.numel()}
        super().begin_task(ctx)

    def loss(self, ctx: TaskContext) -> Tensor:
        """Adds the distillation to DSLR's loss; at the first task there is no teacher."""
        if self._taught is None:
            return super().loss(ctx)
        kept, rest = ctx.batch.nodes[:0], list[Tensor]()
        if len(self.buffer):
            kept, *rest = ctx.draw(self.buffer.nodes, self.buffer.labels, *self.weights(ctx))
        nodes, targets = ctx.draw(*self._taught)
        logits = ctx.forward(torch.cat([ctx.batch.nodes, kept, nodes]))
        ends = [ctx.batch.nodes.numel(), ctx.batch.nodes.numel() + kept.numel()]
        current, replayed, shown = logits.tensor_split(ends)
        if rest:
            loss = self.weighed(ctx, current, replayed, *rest)
        else:
            loss = ctx.cross_entropy(current, ctx.batch.labels)
        distilled = distillation_loss(shown, targets, self.config.temperature)
        return loss + self.config.gamma * distilled

    def end_task(self, ctx: TaskContext) -> None:
        """Selects the buffer; lets the teacher go, as the network itself is the next one."""
        self._taught = None
        super().end_task(ctx)
        if self.config.distill_on == "training" and not ctx.final:
            self._keep_training_nodes(ctx)

    def reads(self, num_old: int, num_nodes: int, num_layers: int) -> Reads | None:
        """Reads what is around the distilled nodes as well, of a large graph a sample."""
        found, chosen = super().reads(num_old, num_nodes, num_layers), self.config.distill_on
        if found is None or chosen == "none":
            return found
        kept = self.buffer.unlabelled.cpu()
        sample = nested_sample(num_nodes if chosen == "all" else num_old, SAMPLED)
        if chosen == "training":
            sample = kept[nested_sample(kept.numel(), SAMPLED)]
        beside = [kept] if found.beside is None else [kept, found.beside]
        nodes = torch.cat([found.nodes, sample])
        return found._replace(nodes=nodes, beside=torch.cat(beside))

    def graph_bytes(self, ctx: TaskContext) -> int:
        """Counts the neighbourhoods of the nodes that will be distilled as well."""
        if self.config.distill_on == "none":
            return super().graph_bytes(ctx)
        joined = [near.flatten() for near in self.buffer.neighbours.values()]
        view, depth = ctx.view, ctx.model_config.num_layers
        nodes = torch.arange(view.num_nodes, device=ctx.device)
        if self.config.distill_on == "training":
            kept = (self.buffer.nodes, self.buffer.unlabelled)
            nodes = torch.cat([part.to(ctx.device) for part in kept])
        return neighbourhood_bytes(view.features, view.adjacency, nodes, depth, joined)

    def _distilled(self, ctx: TaskContext) -> Tensor:
        """Lists the nodes to distil, ``[m]``: of a large graph an evenly spaced sample."""
        view, chosen = ctx.view, self.config.distill_on
        if chosen == "training":
            nodes = self.buffer.unlabelled.to(ctx.device)
            if view.part is not None:
                nodes = nodes[nested_sample(nodes.numel(), SAMPLED).to(ctx.device)]
        else:
            of = view.part or view
            count = of.num_nodes if chosen == "all" else of.num_old
            nodes = torch.arange(count, device=ctx.device)
            if view.part is not None:
                sample = nested_sample(count, SAMPLED).to(ctx.device)
                nodes = view.part.rows(sample)
        return nodes if chosen == "all" else nodes[~torch.isin(nodes, view.train_nodes)]

    def _keep_training_nodes(self, ctx: TaskContext) -> None:
        """Keeps the ids of all training nodes so far, or a sample in which all count alike."""
        before, now = self.buffer.unlabelled.to(ctx.device), ctx.view.train_nodes
        fresh = now[~torch.isin(now, before)]
        nodes, weight = torch.cat([before, fresh]), torch.ones(before.numel() + fresh.numel())
        if nodes.numel() > KEPT:
            earlier = sum(self.buffer.train_counts.values()) - fresh.numel()
            weight[: before.numel()] = max(earlier / max(before.numel(), 1), 1.0)
            generator = ctx.generator("distilled", "cpu")
            rows = torch.multinomial(weight, KEPT, generator=generator)
            nodes = nodes[rows.to(ctx.device)]
        self.buffer.unlabelled = torch.sort(nodes).values
