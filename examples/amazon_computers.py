"""Amazon Computers, two classes at a time, through the estimator: the same PM as ``evergraph run``.

Compare with ``evergraph run --dataset amazon-computers --method dslr --seed 0``. Words after the
name of the script change it: ``amazon_computers.py replay epochs=20``.
"""

import sys

from evergraph import ContinualNodeClassifier
from evergraph.config import parse_settings
from evergraph.stream import TaskStream, protocol_for
from evergraph.stream.datasets import load_graph

name, method, *words = "amazon-computers", *(sys.argv[1:] or ["dslr"])
settings = {"preset": name, "settings": parse_settings(words), "validation_fraction": 0}
stream = TaskStream(load_graph(name), protocol_for(name), seed=0)
clf = ContinualNodeClassifier(method, **settings)
nodes = edges = 0
for task in stream.tasks:
    ids = range(nodes, task.num_nodes)  # the nodes of this class pair
    x, pairs = stream.features[ids.start : ids.stop], stream.edges[:, edges : task.num_edges].T
    train = task.train_nodes.tolist()
    clf.learn(ids, x, pairs, dict(zip(train, stream.labels[train].tolist(), strict=True)))
    clf = clf.save("amazon-state").load("amazon-state")  # changes nothing
    nodes, edges = task.num_nodes, task.num_edges
judged = [stream.evaluation(task.index) for task in stream.tasks]
row = [100 * clf.score(part.nodes, part.labels) for part in judged]
print(f"{method}: PM {sum(row) / len(row):.2f}, on the tasks {[round(value, 2) for value in row]}")
