"""Writes a graph twice: as it is, and without the edges between its tasks.

    python scripts/task_islands.py cora OUT_FOLDER

Many published numbers are measured on tasks that know nothing of each other: every task is learned
and judged on its own subgraph. Without edges between tasks the whole graph is just these subgraphs
side by side, so that the same commands on both files tell what that protocol is worth. Both files
hold the nodes that the dataset's protocol keeps, in the order in which they come; the settings that
the protocol of a file must be given are printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from evergraph.stream import Graph, TaskStream
from evergraph.stream.datasets import load_graph
from evergraph.stream.datasets.npz import write_plain
from evergraph.stream.protocol import protocol_for


def islands(stream: TaskStream, name: str) -> tuple[Graph, Graph]:
    """Returns the graph of a stream, and the same without edges between tasks."""
    ends = torch.tensor([task.num_nodes for task in stream.tasks])
    task = torch.searchsorted(ends, stream.edges, right=True)
    inside = stream.edges[:, task[0] == task[1]]
    features, labels, names = stream.features, stream.labels, stream.class_names
    return (
        Graph.build(name, features, stream.edges, labels, class_names=names),
        Graph.build(f"{name}-islands", features, inside, labels, class_names=names),
    )


def main() -> None:
    """Writes both files and says how many edges each has."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    protocol = protocol_for(given.dataset)
    stream = TaskStream(load_graph(given.dataset), protocol)
    given.folder.mkdir(parents=True, exist_ok=True)
    for graph in islands(stream, given.dataset):
        path = given.folder / f"{graph.name}.npz"
        write_plain(graph, path)
        print(f"{path}: {graph.num_nodes} nodes, {graph.num_edges} edges")
    print(f"--classes-per-task {protocol.classes_per_task} --set feature_scaling=none")


if __name__ == "__main__":
    main()
