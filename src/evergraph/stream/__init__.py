"""A static or user graph as a stream of tasks."""

from evergraph.stream.adjacency import Adjacency
from evergraph.stream.features import Features, SparseRows
from evergraph.stream.graph import Graph
from evergraph.stream.protocol import Protocol, protocol_for
from evergraph.stream.tasks import GraphView, LabelledNodes, Part, Task, TaskStream

__all__ = [
    "Adjacency",
    "Features",
    "Graph",
    "GraphView",
    "LabelledNodes",
    "Part",
    "Protocol",
    "SparseRows",
    "Task",
    "TaskStream",
    "protocol_for",
]
