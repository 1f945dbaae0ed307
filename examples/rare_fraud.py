"""A rare new class: among accounts that trade, a few fraudulent ones appear in the third week."""

import sys

import numpy as np

from evergraph import ContinualNodeClassifier

epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 100
rng = np.random.default_rng(0)
kinds = {"shop": 0, "person": 1, "fraud": 2}


def week(number: int, counts: dict[str, int]) -> tuple[list[str], np.ndarray, list[str]]:
    """Makes new accounts: names, behaviour, kind."""
    labels = [kind for kind, count in counts.items() for _ in range(count)]
    ids = [f"w{number}-{at}" for at in range(len(labels))]
    x = rng.normal(size=(len(ids), 8))
    x[range(len(ids)), [kinds[label] for label in labels]] += 3
    return ids, x, labels


clf = ContinualNodeClassifier("replay", buffer_size=60, settings={"epochs": epochs})
known: list[tuple[str, str]] = []
for number in range(4):
    frauds = 6 if number >= 2 else 0
    ids, x, labels = week(number, {"shop": 40, "person": 80, "fraud": frauds})
    known += list(zip(ids, labels, strict=True))
    trades = []
    for name, label in zip(ids, labels, strict=True):  # frauds trade among themselves
        partners = [other for other, kind in known if (kind == "fraud") == (label == "fraud")]
        trades += [(name, str(other)) for other in rng.choice(partners, 3) if other != name]
    clf.learn(ids, x, trades, labels)
    print(f"week {number}: classes {', '.join(clf.classes_)}")

found = clf.predict([name for name, _ in known])
frauds = np.array([kind == "fraud" for _, kind in known])
print(f"found {(found[frauds] == 'fraud').mean():.0%} of {frauds.sum()} frauds;", end=" ")
print(f"{(found[~frauds] == 'fraud').mean():.1%} of the others were accused")
clf.remove(ids=[name for name, kind in known if kind == "fraud"])  # accounts that were closed
print(f"{len(clf.ids_)} accounts are left")
