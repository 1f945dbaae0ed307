"""A method of your own: fine-tuning that holds the weights near those of the last task."""

import sys

import torch
from pydantic import Field

from evergraph import (
    METHODS,
    ContinualNodeClassifier,
    Method,
    MethodConfig,
    Protocol,
    TaskContext,
    TaskStream,
    find_leaks,
    load_graph,
)


class L2Config(MethodConfig):
    """Settings: ``lam`` is the weight of the distance to the last weights."""

    lam: float = Field(default=1.0, ge=0)


class L2(Method[L2Config]):
    """Cross-entropy plus λ times the squared distance to where the last task ended."""

    Config = L2Config
    summary = "holds all weights alike"
    paper = "none"
    year = 2026

    def __init__(self, config: L2Config) -> None:
        super().__init__(config)
        self.anchor: dict[str, torch.Tensor] = {}

    def loss(self, ctx: TaskContext) -> torch.Tensor:
        """Looks at the current training nodes alone."""
        loss = ctx.cross_entropy(ctx.forward(ctx.batch.nodes), ctx.batch.labels)
        for name, value in ctx.model.named_parameters():
            if name in self.anchor:
                old = self.anchor[name]
                loss = loss + self.config.lam * (value[: old.shape[0]] - old).square().sum()
        return loss

    def end_task(self, ctx: TaskContext) -> None:
        """Remembers where this task ended."""
        self.anchor = {k: v.detach().clone() for k, v in ctx.model.named_parameters()}

    def state_dict(self) -> dict:
        """Returns what a saved state needs."""
        return {"anchor": self.anchor}

    def load_state_dict(self, state: dict) -> None:
        """Takes it back."""
        self.anchor = dict(state["anchor"])


METHODS["l2"] = L2

if __name__ == "__main__":
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    options = {"nodes": 120, "classes": 6, "mean_degree": 6}
    graph = load_graph("synthetic", None, options)
    print("leaks:", find_leaks(lambda: L2(L2Config()), lambda: TaskStream(graph, Protocol())))
    for method in ("finetune", "l2"):
        clf = ContinualNodeClassifier(method, settings={"epochs": epochs}, validation_fraction=0.2)
        for first in (0, 2, 4):  # two classes at a time
            rows = ((graph.y == first) | (graph.y == first + 1)).nonzero().flatten()
            inside = torch.isin(graph.edges, rows).all(dim=0)
            clf.learn(rows, graph.x[rows], graph.edges[:, inside].T, graph.y[rows])
        print(f"{method}: {clf.history_[-1]['accuracy']:.1f} % on held-out nodes")
