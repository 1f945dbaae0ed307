r"""Analytic: ridge regression on propagated features, exact from task to task.

A task adds the moments of its rows (:mod:`evergraph.closed_form`), and moments add up: after any
number of tasks the weights are those of ridge regression on all rows ever taken in, moved as far
as the nodes seen by then have moved on average. A node's scores are then propagated over the graph.
What is kept lists neither nodes nor labels, but both can be recovered from it and the graph while
a class has fewer rows than columns (docs/privacy.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from evergraph.closed_form.cross_validation import LeftOut
from evergraph.closed_form.features import EmbeddingRows, FeatureConfig, PropagatedFeatures, Rows
from evergraph.closed_form.moments import Moments
from evergraph.closed_form.projection import principal_directions
from evergraph.closed_form.propagation import powers
from evergraph.closed_form.ridge import Judges, Ridge
from evergraph.closed_form.selection import GROUPED_NODES, JUDGED_NODES, Selection
from evergraph.errors import InputError
from evergraph.events import Epoch, Stage
from evergraph.memory import SELECTORS, ReplayBuffer
from evergraph.methods.analytic_config import PRECISIONS, AnalyticConfig
from evergraph.methods.base import Descent, Method, Reads, nested_sample
from evergraph.methods.context import TaskContext
from evergraph.methods.replay import selection_pool
from evergraph.nn.receptive_field import ReceptiveField
from evergraph.stream.tasks import GraphView, LabelledNodes

#: Above so many nodes ``auto`` reads no more than what is around training nodes and a sample.
WHOLE = 200_000
#: Most hops to choose from where a graph is large from the start: three reach most of it.
NEAR = 2
#: Most nodes of the sample.
SAMPLED = 512
#: Stages of a task.
STAGES = 4
#: Most columns that rows are compared in where there are more nodes and features than twice that.
COMPARED_COLUMNS = 512
#: The size of a buffer that keeps everything.
EVERYTHING = 1 << 62
#: Above so many nodes ``statistics=auto`` keeps no training nodes any more.
EXACT = 50_000


class Analytic(Method[AnalyticConfig]):
    """Ridge regression whose statistics are added up task by task."""

    Config = AnalyticConfig
    summary = "ridge regression on smoothed features, exact over all tasks; no gradient descent"
    paper = "Hoerl and Kennard, Ridge Regression; here recursive, on a growing graph"
    year = 1970
    parallel = "nodes"
    leaves_out = True

    def __init__(self, config: AnalyticConfig) -> None:
        super().__init__(config)
        self.takes_back = config.begins_exact
        if self.takes_back or config.statistics == "refresh":
            self.buffer = ReplayBuffer(EVERYTHING if self.takes_back else config.buffer_size)
        self._begin()

    def _begin(self) -> None:
        """Forgets everything but what is in the buffer."""
        config = self.config
        self.moments = Moments(config.rank, PRECISIONS[config.precision])
        self.mean_row: Tensor | None = None  # [d], of all nodes seen by the last task, or a sample
        self.mean_of = 0  # so many
        self.selection = Selection(
            config.kinds,
            config.strength,
            config.teleport,
            config.mean_field,
            class_weight="given" if isinstance(config.class_weight, dict) else config.class_weight,
            metric=config.metric,
        )
        self._weights: Tensor | None = None

    def begin_task(self, ctx: TaskContext) -> None:
        """Makes a network for the first task if the rows are embeddings; else needs none."""
        if self.config.rows == "encoder" and ctx.model is None:
            ctx.prepare_model()

    def fit_task(self, ctx: TaskContext) -> Iterator[Epoch | Stage | Descent]:
        """Adds the moments of the training nodes' rows, solves, and chooses how to infer."""
        self.config.check_memory(ctx.view.num_features, ctx.view.train_nodes.numel())
        if ctx.optimizer is not None:  # there is a network that is not trained yet
            yield Descent()
        trained = LabelledNodes(ctx.view.train_nodes, ctx.view.train_labels)
        anew = self.takes_back
        if anew:
            self._begin()
            trained = self._keep(trained)
            if self.config.statistics == "auto":
                if (ctx.view.part or ctx.view).num_nodes > EXACT:  # to begin anew takes too long
                    self.takes_back, self.buffer = False, None
                ctx.report["statistics"] = "exact" if self.takes_back else "follow"
            if not trained.nodes.numel():
                return
        if isinstance(self.config.class_weight, dict):
            self.selection.weights = ctx.named_weights(self.config.class_weight, torch.float64)
        yield Stage(ctx.view.task, "features", 0, STAGES)
        with ctx.stage("features"):
            self._select_rows(ctx, trained)
            rows = self.rows(ctx)
            here = torch.nonzero((at := rows.place(trained.nodes)) >= 0).flatten()
            x = rows.own_rows(at[here])
            self._follow(rows, ctx.view)
            self._refresh(rows)
        yield Stage(ctx.view.task, "statistics", 1, STAGES)
        with ctx.stage("statistics"):
            old_classes = set(self.moments.labels)
            self.moments.update(x, trained.labels[here], rows.team)
        yield Stage(ctx.view.task, "solve", 2, STAGES)
        with ctx.stage("solve"):
            some = self.selection.sample(trained.labels, JUDGED_NODES)
            judged, place = trained.take(some), torch.full_like(trained.nodes, -1)
            place[here] = torch.arange(here.numel(), device=here.device)
            own = torch.nonzero(place[some] >= 0).flatten()
            judges = Judges(judged.labels, x[place[some[own]]].double(), own, rows.team)
            ridge = self.selection.solve(self.moments, judges)
            strength = self.selection.strength
            self._weights = ridge.weights(strength)
        yield Stage(ctx.view.task, "inference", 3, STAGES)
        with ctx.stage("inference"):
            if self.selection.chooses_inference:
                some = self.selection.sample(judged.labels, GROUPED_NODES)
                x, train = judges.all(judges.x)[some], judged.take(some)
                seen = 0 if anew else ctx.view.num_old
                groups = LeftOut(
                    ridge, rows, x, train, strength, num_seen=seen, old_classes=old_classes
                )
                self.selection.select_inference(groups, self._features(ctx), ctx.graph)
        ctx.report |= self.selection.report()
        errors = ctx.report["strength_losses"]
        yield Epoch(ctx.view.task, "classify", 0, 1, torch.tensor(min(errors.values())))

    def _keep(self, trained: LabelledNodes) -> LabelledNodes:
        """Adds training nodes to those kept and returns all, in the order of their ids."""
        assert self.buffer is not None
        kept = self.buffer.labelled
        kept = kept.take(~torch.isin(kept.nodes, trained.nodes.to(kept.nodes.device)))
        device = trained.nodes.device
        nodes, order = torch.sort(torch.cat([kept.nodes.to(device), trained.nodes]))
        labels = torch.cat([kept.labels.to(device), trained.labels])[order]
        classes = torch.unique(labels).tolist()
        self.buffer.picks = {label: nodes[labels == label] for label in classes}
        return LabelledNodes(nodes, labels)

    def _select_rows(self, ctx: TaskContext, trained: LabelledNodes) -> None:
        """Chooses the kind of rows and what features are projected on, on the first task."""
        config, selection, features = self.config, self.selection, ctx.view.features
        if config.rows == "encoder" or self.moments.labels:
            return
        if ctx.graph.arcs is None or not ctx.graph.arcs.directed:
            if config.direction is True:
                raise InputError(
                    "Expected a graph whose edges have directions beside 'direction' (got one "
                    "without, as in every run); leave the setting out or use the estimator."
                )
            selection.keep_kinds(lambda kind: not kind.direction)
        if ctx.view.part and self._may_be_local:
            selection.keep_kinds(lambda kind: kind.reach <= NEAR)
        width, basis = features.shape[1], None
        if selection.kind is None and min(trained.nodes.numel(), width) > 2 * COMPARED_COLUMNS:
            basis = principal_directions(features, COMPARED_COLUMNS, ctx.seed, ctx.graph.team)
        graph, seed, some = ctx.graph, ctx.seed, self._some(ctx.view)
        shared: dict[Any, Tensor] = {}
        how: dict[str, Any] = {"known": shared, "some": some}
        kind = selection.select_kind(
            lambda kind: PropagatedFeatures(features, graph, kind, seed, basis, **how), trained
        )
        count = config.columns(width, kind)
        if count < width and config.projection is None:
            known = basis is not None and basis.shape[1] == count
            if not known:
                basis = principal_directions(features, count, seed, graph.team)
            selection.basis = basis

    def rows(self, ctx: TaskContext) -> Rows:
        """Returns the rows of the context's graph; what they need is prepared once per graph."""
        if self.config.rows == "encoder":
            return EmbeddingRows(ctx.embed().relu())
        return self._propagated(ctx, self.kind)

    @property
    def kind(self) -> FeatureConfig:
        """The rows that were chosen."""
        assert self.selection.kind is not None, "rows are chosen before they are computed"
        return self.selection.kind

    def _features(self, ctx: TaskContext) -> Rows:
        """Returns the nodes' own features as rows of length one."""
        given = self.selection.kind or self.config.kinds[0]
        own = {"hops": "0", "combine": "sum", "direction": False}
        return self._propagated(ctx, given.model_copy(update=own))

    def _propagated(self, ctx: TaskContext, kind: FeatureConfig) -> PropagatedFeatures:
        basis, features, some = self.selection.basis, ctx.view.features, self._some(ctx.view)
        return ctx.once(
            kind.name,
            lambda: PropagatedFeatures(features, ctx.graph, kind, ctx.seed, basis, some=some),
        )

    def _follow(self, rows: Rows, view: GraphView) -> None:
        """Moves all classes as the nodes seen before have moved on average since.

        A mean over nodes of which some are gone tells nothing about the others.
        """
        now, sampled = view.part or view, self.selection.local
        self.selection.local = self._some(view)
        if not self._follows:
            return
        if self.mean_row is not None and self.mean_of == now.num_old:
            self.moments.shift(_mean(rows, view, now.num_old, sampled) - self.mean_row.double())
        mean = _mean(rows, view, now.num_nodes, self.selection.local)
        self.mean_row, self.mean_of = mean.to(self.moments.dtype), now.num_nodes

    @property
    def _follows(self) -> bool:
        """Whether classes move as all nodes do; what begins anew has nothing to move."""
        return not self.takes_back and self.config.statistics in {"follow", "auto"}

    @property
    def _may_be_local(self) -> bool:
        """Whether the settings allow to predict a node from what is around it."""
        teleport, mean_field = self.selection.given_teleport, self.selection.given_mean_field
        return self.config.rows == "smoothed" and teleport in ("auto", 1) and mean_field is not True

    def _is_large(self, num_nodes: int) -> bool:
        """Tells whether a part of a graph is to do; of any large one if nothing is given up."""
        given = self.selection.given_teleport, self.selection.given_mean_field
        return self._may_be_local and (num_nodes > WHOLE or given == (1, False))

    def _some(self, view: GraphView) -> bool:
        """Tells whether rows of some nodes are enough: of a part of a large graph."""
        return view.part is not None and self._is_large(view.part.num_nodes)

    def _refresh(self, rows: Rows) -> None:
        """Moves every class as its kept nodes have moved since the last task."""
        if self.buffer is None or "features" not in self.buffer.rows:
            return
        moved = rows.rows(self.buffer.nodes) - self.buffer.rows["features"].double()
        labels = self.buffer.labels
        for label in torch.unique(labels).tolist():  # a class may have lost all of its nodes
            self.moments.shift(moved[labels == label].mean(dim=0), label)

    def end_task(self, ctx: TaskContext) -> None:
        """Chooses the nodes whose rows will be compared, unless nothing is refreshed."""
        if self.buffer is None or self.takes_back or ctx.final:
            return
        with ctx.stage("selection"):
            rows = self.rows(ctx)

            def show(nodes: Tensor) -> tuple[Tensor, Tensor]:
                x = rows.rows(nodes)
                return x @ self.solved().to(x.dtype), x

            selector = SELECTORS[self.config.selector].make(self.config.r)
            self.buffer.update(selection_pool(ctx, self.buffer, show), selector)
            kept_rows = rows.rows(self.buffer.nodes).to(self.moments.dtype)
            self.buffer.rows["features"] = kept_rows

    def reach(self, num_layers: int) -> int | None:
        """Reaches as far as the hops, if scores are not propagated further."""
        kind, chosen = self.selection.kind, self.selection
        embeds = self.config.rows == "encoder"
        if kind is None or embeds or chosen.mean_field or chosen.teleport < 1:
            return None
        return kind.reach

    def reads(self, num_old: int, num_nodes: int, num_layers: int) -> Reads | None:
        """Reads what is around kept nodes and a sample, once the graph is large."""
        depth = self.reach(num_layers)
        if not self._is_large(num_nodes) or not self.selection.local or depth is None:
            return None
        nodes = [] if self.buffer is None else [self.buffer.nodes.cpu()]
        if self._follows:
            nodes += [nested_sample(count, SAMPLED) for count in (num_old, num_nodes)]
        none = torch.empty(0, dtype=torch.int64)
        return Reads(torch.cat([*nodes, none]), depth)

    def predict_logits(self, ctx: TaskContext) -> Tensor:
        """Infers every node's class in the graph; classes without a row are never chosen."""
        if not self.moments.labels:  # all that was taught is taken back
            return torch.zeros(ctx.view.num_nodes, ctx.view.num_classes, device=ctx.device)
        scores = self.rows(ctx).times(self.solved())
        found = self.selection.infer(scores, self._features(ctx), ctx.graph)
        return self.moments.logits(found, ctx.view.num_classes)

    def predict_nodes(self, ctx: TaskContext, nodes: Tensor) -> Tensor:
        """Infers the class of some nodes where scores are not propagated, ``[m, k]``."""
        scores = self.rows(ctx).rows(nodes) @ self.solved().float()
        return self.moments.logits(scores, ctx.view.num_classes)

    def predict_field(self, field: ReceptiveField, num_classes: int, *, seed: int) -> Tensor:
        """Infers the class of some nodes where scores are not propagated."""
        found = self._near(field, seed).times(self.solved())
        found = found if field.rows is None else found[field.rows]
        return self.moments.logits(found, num_classes)

    def score_powers(self, ctx: TaskContext) -> list[Tensor] | None:
        """Returns scores after every step, if propagation is how classes are inferred."""
        if self.selection.mean_field or self.selection.teleport == 1:
            return None
        scores = self.rows(ctx).times(self.solved())
        return list(powers(self.moments.logits(scores, ctx.view.num_classes), ctx.adjacency))

    def embed_field(self, field: ReceptiveField, *, seed: int) -> Tensor:
        """Returns the rows that scores are linear in."""
        rows = self._near(field, seed)
        everyone = torch.arange(rows.num_nodes, device=field.features.device)
        return rows.rows(everyone if field.rows is None else field.rows)

    def _near(self, field: ReceptiveField, seed: int) -> PropagatedFeatures:
        basis = self.selection.basis
        return PropagatedFeatures(field.features, field.graphs, self.kind, seed, basis)

    @property
    def temperature(self) -> float:
        """The temperature that suits scores of left-out training nodes."""
        return self.selection.temperature

    @property
    def closed_form(self) -> Analytic | None:
        """Itself, unless rows are embeddings or nothing is learned yet."""
        return None if self.config.rows == "encoder" or self.selection.kind is None else self

    def solved(self) -> Tensor:
        """Returns the weights, ``[d, k]``; what was restored solves for them again."""
        if self._weights is None:
            ridge = Ridge(self.moments, self.selection.weighing)
            self._weights = ridge.weights(self.selection.strength)
        return self._weights

    def memory_bytes(self) -> int:
        """Counts the moments, the mean row, the losses, the nodes seen, the buffer and its rows."""
        mean = 0 if self.mean_row is None else self.mean_row.nbytes
        parts = self.moments.memory_bytes() + self.selection.memory_bytes()
        return parts + mean + 8 + super().memory_bytes()

    def state_dict(self) -> dict[str, Any]:
        """Returns the moments, the choices, the buffer and its rows; the weights follow."""
        return {
            **super().state_dict(),
            **self.selection.state_dict(),
            "moments": self.moments.state_dict(),
            "mean_row": self.mean_row,
            "mean_of": self.mean_of,
            **({"takes_back": self.takes_back} if self.config.statistics == "auto" else {}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned, or 0.1.0 wrote."""
        if self.takes_back and state.get("takes_back", True) is not True:
            self.takes_back, self.buffer = False, None
        super().load_state_dict(state)
        self.selection.load_state_dict(state)
        self.moments.load_state_dict(state["moments"])
        count = state["mean_of"] if "mean_of" in state else state["num_seen"]
        self.mean_row, self.mean_of = state["mean_row"], int(count)
        self._weights = None
        self._check_restored()

    def _check_restored(self) -> None:
        """Refuses parts that do not belong to each other or to the settings."""
        width, config, selection = self.moments.width, self.config, self.selection
        if width is not None and config.rows != "encoder":
            kind, basis = selection.kind, selection.basis
            if kind is None or width % kind.blocks:
                raise ValueError("moments of other settings")
            columns = width // kind.blocks - (kind.constant is True)
            projected = config.projection if basis is None else basis.shape[-1]
            if projected not in (None, columns) or (basis is not None and basis.ndim != 2):
                raise ValueError("moments of other settings")
        kept = None if self.buffer is None else self.buffer.rows.get("features")
        mean = self.mean_row
        if (mean is not None and mean.shape != (width,)) or (
            kept is not None and kept.shape[1:] != (width,)
        ):
            raise ValueError("rows of other columns")
        if self.mean_of < 0:
            raise ValueError("a negative number of nodes")
        weights = selection.weights
        if weights is not None and weights.shape < (max(self.moments.labels, default=-1) + 1,):
            raise ValueError("weights of other classes")


def _mean(rows: Rows, view: GraphView, count: int, sampled: bool) -> Tensor:
    """Averages the rows of the first ``count`` nodes of the whole graph, or of a sample of them."""
    if not sampled or view.part is None:
        return rows.mean(count)
    nodes = view.part.rows(nested_sample(count, SAMPLED).to(view.train_nodes.device))
    return rows.rows(nodes).mean(dim=0, dtype=torch.float64)
