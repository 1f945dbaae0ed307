"""Runs and comparisons from Python: what ``evergraph run`` and ``compare`` do, as functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evergraph.config import Presets, Variant, check_shared, resolve
from evergraph.events import Event
from evergraph.files import make_folder, write_atomic, write_json
from evergraph.lab.engines import Resources
from evergraph.lab.folder import make_jobs
from evergraph.lab.grid import check_finished, grid_configs, run_grid
from evergraph.lab.runs import execute
from evergraph.lab.summary import collect_results, compare_pairs, summarise_grid
from evergraph.lab.tables import Sheet, as_markdown, comparison_sheet, grid_sheet, stream_sheet
from evergraph.stream import Graph


def run(
    dataset: str | Graph = "cora",
    method: str = "dslr",
    *,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    presets: Presets = "tuned",
    output: str | Path | None = None,
    on_event: Callable[[Event], None] | None = None,
    device: str = "auto",
    data_root: str | Path | None = None,
) -> dict[str, Any]:
    """Runs one method on one dataset with one seed, as ``evergraph run`` does.

    Args:
        dataset: A name, the path of an npz file, ``synthetic:nodes=5000``, or a graph itself.
        method: ``NAME[:key=value,...][@label]``.
        seed: Source of all randomness.
        settings: What ``--set`` takes.
        presets: Our settings, or ``printed``: the paper's to the letter.
        output: The run's folder, in which a killed run continues; without it nothing is left.
        on_event: Called with every :class:`~evergraph.events.Event` of the training loop.
        device: ``auto``, ``cpu`` or ``cuda``.
        data_root: Where datasets are; ``EVERGRAPH_DATA`` by default.

    Returns:
        The content of ``results.json``: the accuracy matrix, PM, FM, Current, seconds and more.
    """
    graph = dataset if isinstance(dataset, Graph) else None
    name = graph.name if graph is not None else str(dataset)
    shared, variant = dict(settings or {}), Variant.parse(method)
    check_shared(shared, [variant.name])
    place = Variant.parse_dataset(name) if graph is None else Variant(name=name, label=name)
    config = resolve(place, variant, seed, shared, presets)
    with _folder(output) as folder:
        return execute(
            config,
            folder / "run" if output is None else folder,
            device=device,
            data_root=_root(data_root),
            on_event=on_event,
            graph=graph,
        )


def compare(
    datasets: str | Sequence[str] = "cora",
    methods: str | Sequence[str] = ("dslr", "replay"),
    seeds: int = 10,
    *,
    settings: Mapping[str, Any] | None = None,
    presets: Presets = "tuned",
    output: str | Path | None = None,
    jobs: int = 1,
    device: str = "auto",
    data_root: str | Path | None = None,
) -> list[dict[str, Any]]:
    """Runs every method on every dataset over seeds 0 to ``seeds - 1``, as ``evergraph compare``.

    Args:
        datasets: Names or paths.
        methods: Each as ``NAME[:key=value,...][@label]``; ``all`` stands for all others.
        seeds: How many.
        settings: For every method that has them.
        presets: Our settings, or ``printed``: the paper's to the letter.
        output: Folder of the grid, in which finished runs are never run again; without it
            nothing is left.
        jobs: Runs at a time, each in a process of its own.
        device: ``auto``, ``cpu`` or ``cuda``.
        data_root: Where datasets are; ``EVERGRAPH_DATA`` by default.

    Returns:
        The content of ``summary.json``: mean and deviation of every metric by dataset and method.
    """
    graphs = [datasets] if isinstance(datasets, str) else list(datasets)
    words = [methods] if isinstance(methods, str) else list(methods)
    configs = grid_configs(graphs, words, seeds, settings or {}, presets)
    resources = Resources(device, _root(data_root), jobs=jobs)
    with _folder(output) as folder:
        check_finished(run_grid(make_jobs(configs, folder), resources))
        return summarise(folder, configs[0].label)[0]


def summarise(output: Path, reference: str | None) -> tuple[list[dict[str, Any]], list[Sheet]]:
    """Writes the summary of everything in a grid's folder; returns it, also as tables.

    Without a ``reference``, dslr is compared with the others, or what comes first.
    """
    make_folder(output)
    results = collect_results(output / "runs")
    summary = summarise_grid(results)
    if reference is None:
        reference = min((entry["label"] for entry in summary), key=lambda label: label != "dslr")
    comparisons = compare_pairs(results, reference)
    write_json(output / "summary.json", summary)
    write_json(output / "comparisons.json", comparisons)
    more = (stream_sheet(summary), comparison_sheet(comparisons))
    sheets = [grid_sheet(summary), *(sheet for sheet in more if sheet.rows)]
    write_atomic(output / "summary.md", as_markdown(sheets).encode())
    return summary, sheets


@contextmanager
def _folder(output: str | Path | None) -> Iterator[Path]:
    """Gives the folder to write to, one that vanishes where none is wanted."""
    if output is not None:
        yield Path(output)
        return
    with TemporaryDirectory(prefix="evergraph-") as name:
        yield Path(name)


def _root(data_root: str | Path | None) -> Path | None:
    named = data_root or os.environ.get("EVERGRAPH_DATA")
    return Path(named) if named else None
