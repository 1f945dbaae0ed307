"""Amazon Computers, two classes at a time, through the estimator: the same PM as ``evergraph run``.

Compare with ``evergraph run --dataset amazon-computers --method dslr --seed 0``. Words after the
name of the script change it: ``amazon_computers.py replay epochs=20``.
"""

import sys

from evergraph.estimator import ContinualNodeClassifier
from evergraph.experiments.config import parse_settings
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

DATASET = "amazon-computers"
method, settings = (sys.argv[1:2] or ["dslr"])[0], parse_settings(sys.argv[2:])

stream = TaskStream(load_graph(DATASET), protocol_for(DATASET), seed=0)
clf = ContinualNodeClassifier(method, preset=DATASET, settings=settings, validation_fraction=0)
nodes = edges = 0
for task in stream.tasks:
    ids = range(nodes, task.num_nodes)  # the nodes of this class pair
    x, pairs = stream.features[ids.start : ids.stop], stream.edges[:, edges : task.num_edges].T
    train = task.train_nodes.tolist()
    clf.learn(ids, x, pairs, dict(zip(train, stream.labels[train].tolist(), strict=True)))
    clf.save("amazon-state")
    clf = ContinualNodeClassifier.load("amazon-state")  # changes nothing
    nodes, edges = task.num_nodes, task.num_edges
judged = [stream.evaluation(task.index) for task in stream.tasks]
row = [100 * clf.score(part.nodes, part.labels) for part in judged]
print(f"{method}: PM {sum(row) / len(row):.2f}, on the tasks {[round(value, 2) for value in row]}")
