"""``evergraph partition``: a graph in parts, and what ``learn`` and ``predict`` do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import numpy as np
import typer

from evergraph.distributed.cutting import Order, Source, cut
from evergraph.distributed.learning import Learned, learn_parts, predict_parts
from evergraph.errors import InputError, unknown_name
from evergraph.estimator.store import Store
from evergraph.estimator.transaction import load_state
from evergraph.lab.cli.runs import JsonOption, RunProgress
from evergraph.lab.cli.words import Workers
from evergraph.lab.runs import DataRoot
from evergraph.lab.tables import counted, make_console, show
from evergraph.stream.datasets import load_graph
from evergraph.stream.features import Scaling
from evergraph.team import Team


def partition(
    source: Annotated[
        str, typer.Argument(help="A state, a folder of x.npy, edges.npy and y.npy, or a dataset.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder for the parts; must not exist.")
    ],
    parts: Annotated[int, "Number of parts, one for each worker."] = 1,
    order: Annotated[str, "Order of nodes: auto, arrival or metis."] = "auto",
    feature_scaling: Annotated[
        str | None, "Scaling of features: auto, none or robust; a state has its own. [auto]"
    ] = None,
    *,
    data_root: DataRoot = None,
    as_json: JsonOption = False,
) -> None:
    """Cut a graph into parts that several workers learn and predict together."""
    for name, value, known in (
        ("order", order, get_args(Order)),
        ("feature scaling", feature_scaling or "auto", get_args(Scaling)),
    ):
        if value not in known:
            raise unknown_name(name, value, known)
    progress = RunProgress(make_console(stderr=True), change=True)
    with progress.running():
        progress.stage("reading")
        found, learned = read_source(source, data_root)
        if learned is not None and feature_scaling is not None:
            raise InputError(
                f"Expected no '--feature-scaling' for a state, whose features are scaled (got "
                f"'{feature_scaling}'); leave it out."
            )
        progress.stage("cutting")
        how: Any = {"order": order, "scaling": "none" if learned else feature_scaling or "auto"}
        contents = cut(found, output, parts, **how)
        if learned is not None:
            learned.write(output)
    line = f"{output}: {counted(contents.num_nodes, 'node')} in {counted(parts, 'part')}"
    show(contents.model_dump(), [], as_json, line)


def read_source(source: str, data_root: Path | None) -> tuple[Source, Learned | None]:
    """Opens what is to be cut; of a state also what it has learned."""
    folder = Path(source)
    if Store(folder).exists:
        return _from_state(folder)
    if (folder / "x.npy").is_file():
        return _from_arrays(folder), None
    graph = load_graph(source, data_root)
    names = list(graph.node_names) or None
    labels, pairs = graph.y.numpy(), graph.edges.t().numpy()
    return Source(graph.x, pairs, labels, graph.class_names, names), None


def _from_state(folder: Path) -> tuple[Source, Learned]:
    state, _ = load_state(folder)
    graph, buffer = state.graph, state.learner.method.buffer
    labels = np.full(graph.num_nodes, -1)
    for part in (state.held_out, state.granted):
        labels[part.nodes.numpy()] = part.labels.numpy()
    if buffer is not None:
        labels[buffer.nodes.numpy()] = buffer.labels.numpy()
    pairs, arcs = graph.edges.array, None if graph.arcs is None else graph.arcs.array
    if state.edits:
        whole = state.edits.apply(graph.adjacency)
        once = whole.src < whole.dst
        pairs = np.stack([whole.src[once].numpy(), whole.dst[once].numpy()], axis=1)
        arcs = None if whole.arcs is None else whole.arcs.weights[once].numpy()
    last = state.history[-1]
    about = {"temperature": last.temperature, "exponent": last.exponent}
    names = graph.names.take()
    found = Source(graph.features, pairs, labels, state.classes, names, arcs, graph.directed)
    return found, Learned(state.config, state.learner, about)


def _from_arrays(folder: Path) -> Source:
    """Maps a folder of arrays: nothing is read before it is needed."""
    x, edges, labels = (
        _map(folder, name, kinds, dimensions)
        for name, kinds, dimensions in (("x", "fiu", 2), ("edges", "iu", 2), ("y", "iu", 1))
    )
    n, last = x.shape[0], int(edges.max(initial=-1))
    if labels.shape[0] != n or edges.shape[1] != 2 or last >= n or edges.min(initial=0) < 0:
        raise InputError(
            f"Expected edges [m, 2] and labels [n] of the {n} nodes in '{folder}' (got edges "
            f"{list(edges.shape)} up to node {last}, labels {list(labels.shape)}); correct them."
        )
    names = None
    if (folder / "names.npy").is_file():
        names = _map(folder, "names", "iuU", 1).tolist()
    return Source(x, edges, labels, list(range(int(labels.max(initial=-1)) + 1)), names)


def _map(folder: Path, name: str, kinds: str, dimensions: int) -> Any:
    path, got = folder / f"{name}.npy", "no such file"
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if found.ndim == dimensions and found.dtype.kind in kinds:
            return found
        got = f"{found.dtype} {list(found.shape)}"
    except ValueError:
        got = "something else"
    except OSError as error:
        got = error.strerror or got
    raise InputError(
        f"Expected '{path}' as a plain array of {dimensions} dimensions (got: {got}); write it "
        "with numpy.save."
    )


def check_options(folder: Path, **given: Any) -> None:
    """Refuses options that have no meaning for a graph in parts, which is learned on CPUs."""
    if given.get("device") in {"auto", "cpu"}:
        del given["device"]
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"Expected no '--{name.replace('_', '-')}' with '{folder}', a graph in parts (got "
                f"'{value}'); leave it out."
            )


def learn_partition(
    folder: Path, given: dict[str, Any], workers: Workers, *, as_json: bool
) -> None:
    """Learns a graph in parts and prints what came of it."""
    if workers.are_wanted:
        workers.launch()
        return
    team = Team.join()
    progress = RunProgress(make_console(stderr=True), change=True)
    with progress.running():
        about = learn_parts(folder, given, team, progress).about
    team.leave()
    judged = about.get("accuracy")
    accuracy = "no held-out nodes" if judged is None else f"{judged:.2f} % on held-out nodes"
    line = f"{folder}: {about['nodes']:,} nodes; learned {about['trained_on']:,} labels; {accuracy}"
    show(about, [], as_json, line)


def predict_partition(folder: Path, output: Path, workers: Workers) -> None:
    """Predicts a graph in parts into a folder of Parquet files."""
    if workers.are_wanted:
        workers.launch()
        return
    team = Team.join()
    count = predict_parts(folder, output, team)
    team.leave()
    make_console(stderr=True).print(f"{count:,} nodes · {output}", markup=False)
