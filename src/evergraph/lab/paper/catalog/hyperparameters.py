"""``hyperparameters``: settings of DSLR per dataset (Table 10)."""

from collections.abc import Mapping
from pathlib import Path

from evergraph.config import Variant, resolve
from evergraph.lab.paper.experiment import THREE, Experiment, Facts, Figure, Metric, Row

TITLES = {
    "beta": "β",
    "lam": "λ",
    "num_neighbors": "N",
    "num_candidates": "K",
    "tau": "τ",
    "r": "r",
    "buffer_size": "buffer size",
    "lr": "learning rate",
}


def describe(facts: Facts, data_root: Path | None) -> Mapping[str, float]:
    """Reads the settings that a run of DSLR takes by default."""
    config = resolve(Variant.parse_dataset(facts.dataset), Variant.parse("dslr"), 0)
    values = {**config.settings, "lr": config.training.lr}
    return {key: float(values[key]) for key in TITLES}


EXPERIMENT = Experiment(
    id="hyperparameters",
    title="Hyper-parameters of DSLR",
    source="Table 10",
    rows=lambda facts: [Row("dslr", "dslr")],
    metrics=tuple(
        Metric(key, title, lambda results, row: None, None, 0, 3) for key, title in TITLES.items()
    ),
    figure=Figure("points", ("beta", "lam", "tau", "r")),
    datasets=THREE,
    describe=describe,
    notes=("Ours were chosen on validation nodes (decision 0005).",),
)
