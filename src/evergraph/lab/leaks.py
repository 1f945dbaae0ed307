"""The leak exhibit: what the usual shortcuts are worth, each switched on alone.

None is a setting of a method, a protocol or a run: no ordinary command reaches this file but
``evergraph reproduce leaks``. What is measured here lies in ``leaks/``, without a configuration or
results of a run, so that no grid, report or table of the field can take it up.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor

from evergraph.config import RunConfig
from evergraph.device import pick_device
from evergraph.errors import unknown_name
from evergraph.events import TaskDone
from evergraph.files import make_folder, read_json, write_json
from evergraph.lab.folder import Run, slug
from evergraph.metrics import scores
from evergraph.stream import Graph, GraphView, Protocol, TaskStream
from evergraph.train import Learner, hits, train

#: Where measurements lie, and the name of each: not that of a run's results.
FOLDER, LEAK = "leaks", "leak.json"
#: Steps that features are propagated for prototypes and pseudo-labels, and components kept.
STEPS, COMPONENTS = 2, 128


class Shortcut(TaskStream):
    """A stream that leaves the protocol in nothing; the others each leave it in one thing."""

    def learned(self, view: GraphView) -> None:
        """Takes note of a task once it is learned."""

    def judge(self, logits: Tensor, index: int) -> float:
        """Returns the accuracy in percent on task ``index``."""
        return 100 * float(hits(logits, self.evaluation(index)).float().mean())


class OwnSubgraph(Shortcut):
    """Removes the edges between tasks, so that each is learned and judged on its own subgraph."""

    def __init__(self, graph: Graph, protocol: Protocol, seed: int = 0) -> None:
        super().__init__(graph, protocol, seed)
        ends = torch.tensor([task.num_nodes for task in self.tasks])
        task_of = torch.bucketize(self.edges, ends, right=True)
        inside = task_of[0] == task_of[1]
        self.edges = self.edges[:, inside]
        counts = [int((task_of[1][inside] <= task.index).sum()) for task in self.tasks]
        self.tasks = tuple(
            replace(task, num_edges=count) for task, count in zip(self.tasks, counts, strict=True)
        )


class TaskOfNode(Shortcut):
    """Guesses the task of each node by the nearest prototype, then a class of that task.

    A prototype is the mean of the propagated features of a task's training nodes, as in TPP (Niu
    et al., 2024). This one is fair: a node is judged by what is known of it.
    """

    rows: Tensor  # of all nodes so far, once a task is learned
    prototypes: tuple[Tensor, ...] = ()

    def learned(self, view: GraphView) -> None:
        """Keeps the task's prototype, and the features by which nodes are held against it."""
        self.rows = propagated(view)
        mine = self.rows[self.tasks[view.task].train_nodes].mean(dim=0)
        self.prototypes = (*self.prototypes, mine)

    def judge(self, logits: Tensor, index: int) -> float:
        """Chooses among the classes of the guessed task alone."""
        judged = self.evaluation(index)
        guessed = self.guess(self.rows[judged.nodes])
        shown = logits[judged.nodes]
        for task in self.tasks[: len(self.prototypes)]:
            others = torch.ones(shown.shape[1], dtype=torch.bool)
            others[torch.unique(self.labels[task.train_nodes])] = False
            shown[(guessed == task.index)[:, None] & others] = -torch.inf
        return 100 * float((shown.argmax(dim=1) == judged.labels).float().mean())

    def guess(self, rows: Tensor) -> Tensor:
        """Names the task of each row, ``[m]``."""
        return torch.cdist(rows, torch.stack(self.prototypes)).argmin(dim=1)


class TaskOfTestMeans(TaskOfNode):
    """Guesses one task for all test nodes of a task, by their mean: they are known to be of one."""

    def guess(self, rows: Tensor) -> Tensor:
        """Names the task of the mean row for all of them."""
        return super().guess(rows.mean(dim=0, keepdim=True)).expand(len(rows))


class PseudoLabels(Shortcut):
    """Adds the test nodes of a task to its training nodes, with labels that are guessed.

    A logistic regression on the training nodes' propagated features guesses among the task's
    classes: that a test node is of one of them is what is not known.
    """

    def view(self, index: int, *args: Any, **kwargs: Any) -> GraphView:
        """Shows the test nodes among the training nodes."""
        from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - slow to import

        view = super().view(index, *args, **kwargs)
        rows, labels = propagated(view).numpy(), view.train_labels.cpu().numpy()
        known, test = view.train_nodes.cpu(), self.tasks[index].test_nodes
        model = LogisticRegression(C=100.0, max_iter=1000).fit(rows[known], labels)
        guessed = torch.from_numpy(model.predict(rows[test])).to(view.train_labels)
        nodes, order = torch.sort(torch.cat([view.train_nodes, test.to(view.train_nodes)]))
        both = torch.cat([view.train_labels, guessed])
        return replace(view, train_nodes=nodes, train_labels=both[order])


class FirstTaskStatistics(Shortcut):
    """Replaces features by principal components, fitted on the nodes of the first task: fair."""

    last = 0  # the task up to whose nodes they are fitted

    def __init__(self, graph: Graph, protocol: Protocol, seed: int = 0) -> None:
        from sklearn.decomposition import PCA  # noqa: PLC0415 - slow to import

        super().__init__(graph, protocol, seed)
        count = self.tasks[self.last].num_nodes
        rows = self.features if isinstance(self.features, Tensor) else self.features.dense()
        seen = rows[:count].numpy()
        model = PCA(min(COMPONENTS, *seen.shape), random_state=seed).fit(seen)
        found = torch.from_numpy(model.transform(rows.numpy())).to(rows.dtype)
        self.features = found / found[:count].norm(dim=1).mean()


class WholeGraphStatistics(FirstTaskStatistics):
    """The same, fitted on the nodes of all tasks, those to come included."""

    last = -1


#: By name; what a leak is to be held against stands before it.
SHORTCUTS: dict[str, type[Shortcut]] = {
    "none": Shortcut,
    "own subgraph": OwnSubgraph,
    "task of each node": TaskOfNode,
    "task of test means": TaskOfTestMeans,
    "pseudo-labels on test nodes": PseudoLabels,
    "first-task statistics": FirstTaskStatistics,
    "whole-graph statistics": WholeGraphStatistics,
}


def measure_leak(
    config: RunConfig, shortcut: str, graph: Graph, device: str = "cpu"
) -> dict[str, float | None]:
    """Learns a stream with one shortcut; returns PM, FM and Current."""
    if shortcut not in SHORTCUTS:
        raise unknown_name("shortcut", shortcut, SHORTCUTS)
    stream = SHORTCUTS[shortcut](graph, config.protocol, config.seed)
    learner, matrix = Learner(config.make_method()), list[list[float]]()
    place = pick_device(device)
    events = train(learner, stream, config.model, config.training, seed=config.seed, device=place)
    for event in events:
        if isinstance(event, TaskDone):
            assert learner.context is not None
            logits = learner.method.predict_logits(learner.context).cpu()
            stream.learned(learner.context.view)
            matrix.append([stream.judge(logits, seen) for seen in range(event.task + 1)])
    return dict(vars(scores(matrix)))


def propagated(view: GraphView) -> Tensor:
    r"""Propagates features by :math:`(D + I)^{-1/2} (A + I) (D + I)^{-1/2}`, ``[n, d]``."""
    graph, n = view.adjacency.to("cpu"), view.num_nodes
    features = view.features.to("cpu")
    rows = (features if isinstance(features, Tensor) else features.dense()).numpy()
    ones = torch.ones(graph.src.numel()).numpy()
    adjacency = csr_array((ones, (graph.dst.numpy(), graph.src.numpy())), shape=(n, n))
    scale = diags_array((graph.degree.numpy() + 1.0) ** -0.5)
    step = scale @ (adjacency + diags_array(torch.ones(n).numpy())) @ scale
    for _ in range(STEPS):
        rows = step @ rows
    return torch.from_numpy(rows).float()


def leak_key(config: RunConfig, shortcut: str) -> str:
    """Names what is measured; no run has such a key."""
    return f"{slug(shortcut)}/{config.hash}"


def write_leak(output: Path, config: RunConfig, shortcut: str, graph: Graph, device: str) -> None:
    """Measures a leak and writes it into its folder."""
    folder = output / FOLDER / leak_key(config, shortcut)
    found = measure_leak(config, shortcut, graph, device)
    make_folder(folder)
    write_json(folder / LEAK, found)


def leaks_by_key(output: Path) -> dict[str, Run]:
    """Finds what was measured, as if these were runs."""
    found = {}
    for path in (output / FOLDER).glob(f"*/*/{LEAK}"):
        key = path.parent.relative_to(output / FOLDER).as_posix()
        found[key] = Run(path.parent)
        found[key].results = read_json(path)
    return found
