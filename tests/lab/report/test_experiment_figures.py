"""Figures of experiments: what their axes say."""

from __future__ import annotations

from evergraph.lab.paper.catalog import EXPERIMENTS
from evergraph.lab.paper.experiment import Facts, Table, Values
from evergraph.lab.paper.outcome import make_outcome
from evergraph.lab.report.experiment_figures import draw_outcome

FACTS = Facts("cora", 1770, 3, 6, 2)


def panels(name: str):
    """Draws an experiment whose every cell is measured."""
    experiment = EXPERIMENTS[name]
    rows = experiment.rows(FACTS)
    cells = {
        (row.name, metric.key): Values({0: place + 60.0, 1: place + 61.0})
        for place, row in enumerate(rows)
        for metric in experiment.metrics
    }
    figure = draw_outcome(make_outcome(experiment, [Table(FACTS, rows, cells, {})], quick=False))
    assert figure is not None
    return figure.axes


def test_a_series_with_its_own_panel_names_its_axis_and_its_values():
    axes = {axis.get_title(): axis for axis in panels("sensitivity")}
    assert len(axes) == 8
    panel = axes["cora: PM ↑ over τ"]
    assert panel.get_xlabel() == "τ"
    ticks = [tick.get_text() for tick in panel.get_xticklabels()]
    assert ticks == ["0.75", "0.8", "0.85", "0.9", "0.95"]
    assert panel.get_legend() is None


def test_series_that_share_a_panel_are_told_apart():
    for axis in panels("buffer-size"):
        assert axis.get_xlabel() == "buffer, % of training nodes"
        names = [text.get_text() for text in axis.get_legend().get_texts()]
        assert names == ["continual-gnn", "er-gnn", "dslr"]


def test_points_share_one_key_and_far_values_a_log_scale():
    axes = panels("training-time")
    assert [axis.get_xscale() for axis in axes] == ["log", "log"]  # the paper's reach 110
    assert [text.get_text() for text in axes[0].get_yticklabels()][-1] == "dslr"
    (key,) = axes[0].figure.legends
    assert [text.get_text() for text in key.get_texts()] == ["paper", "measured, ± std"]
    assert [axis.get_xscale() for axis in panels("ablation")] == ["linear", "linear"]


def test_what_the_paper_prints_is_named_beside_lines():
    for axis in panels("beta"):
        assert "paper" in [text.get_text() for text in axis.get_legend().get_texts()]
