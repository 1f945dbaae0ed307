"""Ten years of a Linux distribution against a running server, which is asked all the while.

The first release is learned into a folder, which ``evergraph serve`` serves; later releases are
taught over HTTP, 70 % of their packages with their section. Meanwhile somebody asks for the
sections of packages, and gets an answer at once, of the version that is the newest. Needs
``ubuntu-packages.npz`` in the data folder, and two minutes::

    python examples/served_packages.py state
"""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from evergraph import Client, ContinualNodeClassifier

with np.load(Path(os.environ.get("EVERGRAPH_DATA", "data")) / "ubuntu-packages.npz") as z:
    x = csr_matrix((z["x_data"], z["x_indices"], z["x_indptr"]), shape=tuple(z["x_shape"]))
    names, sections = z["names"].tolist(), z["class_names"][z["y"]].tolist()
    edges, arrival, edge_arrival = z["edge_index"], z["time"], z["edge_time"]
shown = np.random.default_rng(0).random(len(names)) < 0.7


def release(number):
    """Returns what is new: packages, features, dependencies, and the sections that are known."""
    rows = np.flatnonzero(arrival == number)
    pairs = [(names[a], names[b]) for a, b in edges[:, edge_arrival == number].T.tolist()]
    labels = [(names[row], sections[row]) for row in rows if shown[row]]
    return [names[row] for row in rows], x[rows], pairs, labels


def sparse(rows):
    """Names the features that are not zero, row by row."""
    return [dict(zip(map(str, row.indices), row.data.tolist(), strict=True)) for row in rows]


def share_right(client, number):
    """Asks for the packages of a release whose section nobody has told."""
    rows = np.flatnonzero((arrival == number) & ~shown)
    found = client.predict([names[row] for row in rows[:10_000]])["nodes"]
    return np.mean([one["label"] == sections[row] for one, row in zip(found, rows, strict=False)])


def ask(url, times):
    """Asks for one package after the other until it is told to stop."""
    with Client(url) as client:
        for name in np.random.default_rng(1).choice(first, 10**6):
            if done.is_set():
                return
            begun = time.perf_counter()
            client.predict([str(name)])
            times.append(time.perf_counter() - begun)
            time.sleep(0.01)


state, (first, features, pairs, labels) = sys.argv[1], release(0)
known = dict(labels)
clf = ContinualNodeClassifier("analytic", device="cpu")
clf.learn(first, features, pairs, [known.get(name) for name in first]).save(state)
print(f"release 0: {len(first)} packages are learned into {state}")

command = [sys.executable, "-m", "evergraph", "serve", state, "--port", "0"]
server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
url = server.stdout.readline().split("at ")[1].split()[0]
print(f"served at {url}: open it in a browser", file=sys.stderr)
done, times = threading.Event(), []
asking = threading.Thread(target=ask, args=(url, times))
try:
    with Client(url) as client:
        client.predict(first[:1])
        asking.start()
        for number in range(1, int(arrival.max()) + 1):
            ids, features, pairs, labels = release(number)
            begun, before = time.perf_counter(), len(times)
            key = f"release {number}"  # sent twice it is learned once
            change = client.teach(ids=ids, x=sparse(features), edges=pairs, labels=labels, key=key)
            version = client.wait(change)["version"]
            while client.version() < version:
                time.sleep(0.1)
            took, asked = time.perf_counter() - begun, 1000 * np.array(times[before:] or [0])
            print(
                f"{key}: {len(ids)} packages are version {version}; "
                f"{100 * share_right(client, number):.0f} % of those without a label are right"
            )
            print(
                f"  learned in {took:.1f} s; meanwhile {len(asked)} questions, half of them "
                f"answered within {np.median(asked):.0f} ms, all within {asked.max():.0f} ms",
                file=sys.stderr,
            )
finally:
    done.set()
    server.terminate()
    server.wait()
