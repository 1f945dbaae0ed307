"""A growing citation graph: papers of Cora arrive year by year, labels for half of them.

DSLR keeps 100 papers and their labels from year to year. Fine-tuning, which goes on training on new
papers alone, is what a plain training loop would do.
"""

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
topic_year = {topic: at // 2 for at, topic in enumerate(graph.class_names)}  # two topics a year
year = np.array([topic_year[topic] for topic in topics])
late = rng.random(graph.num_nodes) < 0.1  # and now and then a paper on an old topic
year[late] = rng.integers(year[late], 4)
labelled = rng.random(graph.num_nodes) < 0.5

settings = {"epochs": epochs, "link_epochs": epochs}
learners = {
    "dslr": ContinualNodeClassifier("dslr", buffer_size=100, settings=settings),
    "fine-tuning": ContinualNodeClassifier("finetune", settings={"epochs": epochs}),
}
for now in range(4):
    new = np.flatnonzero(year == now)
    cited = edges[year[edges].max(axis=1) == now]  # both papers are there, one of them is new
    labels = np.where(labelled[new], topics[new], None)
    judged = np.flatnonzero((year <= now) & ~labelled)  # old and new papers without a label
    scores = []
    for name, clf in learners.items():
        clf.learn(names[new], x[new], names[cited], labels)
        scores.append(f"{name} {100 * clf.score(names[judged], topics[judged]):.1f} %")
    there = f"{clf.history_[-1]['num_nodes']} papers, {len(clf.classes_)} topics"
    print(f"year {now}: {there}; right on unlabelled papers: {', '.join(scores)}")
if len(sys.argv) > 2:  # a folder, for evergraph predict, inspect, report and serve
    learners["dslr"].save(sys.argv[2])
