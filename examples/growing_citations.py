"""A growing citation graph: papers of Cora arrive year by year, labels for a few of them."""

import sys

import numpy as np

from evergraph import ContinualNodeClassifier
from evergraph.stream.datasets import load_graph

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 50
graph = load_graph("cora")
names = np.array([f"paper-{row}" for row in range(graph.num_nodes)])
topics = np.array(graph.class_names)[graph.y]
x = graph.x.dense().numpy()
edges = graph.edges.numpy().T
rng = np.random.default_rng(0)
year = rng.integers(0, 4, graph.num_nodes)
year[np.isin(topics, ["Theory", "Rule_Learning"])] = 3  # topics that nobody wrote about before

settings = {"epochs": epochs, "link_epochs": epochs}
clf = ContinualNodeClassifier("dslr", buffer_size=100, settings=settings)
for now in range(4):
    new = np.flatnonzero(year == now)
    cited = edges[year[edges].max(axis=1) == now]  # both papers are there, one of them is new
    labels = np.where(rng.random(new.size) < 0.5, topics[new], None)
    clf.learn(names[new], x[new], names[cited], labels)
    step = clf.history_[-1]
    print(
        f"year {now}: {step['num_nodes']} papers, {len(clf.classes_)} topics, "
        f"{step['accuracy']:.1f} % on held-out papers"
    )
for warning in clf.diagnose()["warnings"]:
    print("warning:", warning)
