"""Ten years of a Linux distribution: what becomes of a classifier of packages while they change.

Draws a grid of runs over a graph that grew, one line per method: the accuracy on the packages
that are new in each release, once the release was learned. A dotted line shows joint training one
release behind, that is before it learned the release. First make the grid::

    evergraph compare --dataset ubuntu-packages --stream time --seeds 3 --output packages \
        --method frozen --method finetune --method replay:buffer_size=2000 \
        --method dslr:buffer_size=2000 --method analytic --method joint
    python examples/packages.py packages packages.png
"""

import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # after the backend is chosen

from evergraph.lab.summary import collect_results

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def mean_of(rows: list[list[float]]) -> list[float]:
    """Averages runs of several seeds, release by release."""
    return [fmean(values) for values in zip(*rows, strict=True)]


grid, picture = Path(sys.argv[1]), Path(sys.argv[2])
runs, lines, ends = defaultdict(list), {}, {}
for result in collect_results(grid / "runs"):
    runs[result["label"]].append(result)
for label, results in runs.items():
    matrices = [result["accuracy_matrix"] for result in results]
    lines[label] = mean_of([[row[-1] for row in matrix] for matrix in matrices])
    ends[label] = fmean(result["stream"]["seen"] for result in results)
if "joint" in runs:
    behind = mean_of([result["stream"]["before"][1:] for result in runs["joint"]])
    lines["joint, one release behind"] = [lines["joint"][0], *behind]
steps = next(iter(runs.values()))[0]["stream"]["steps"]

figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
for number, (label, line) in enumerate(lines.items()):
    style = {"color": COLOURS[number % len(COLOURS)]}
    if label not in runs:
        style = {"color": "#777777", "linestyle": ":"}
    axes.plot(steps, line, marker="o", markersize=3, label=label, **style)
low, high = axes.get_ylim()
height = high
for line in sorted(axes.lines, key=lambda line: -line.get_ydata()[-1]):  # names beside their ends
    end = line.get_ydata()[-1]
    height = min(end, height - 0.05 * (high - low))  # apart, so that each can be read
    place = (len(steps) - 0.9, height)
    axes.annotate(f"{line.get_label()} {end:.1f}", place, va="center", color=line.get_color())
axes.set_ylabel("accuracy on the release's new packages, %")
axes.set_xlim(right=len(steps) + 1.6)
axes.spines[["top", "right"]].set_visible(False)
axes.grid(axis="y", linewidth=0.3)
axes.set_axisbelow(True)
figure.savefig(picture, dpi=200)

print(f"| | {' | '.join(steps)} | all packages |")
print(f"|---|{'---:|' * (len(steps) + 1)}")
for label, line in lines.items():
    numbers = [f"{value:.1f}" for value in line]
    last = f"{ends[label]:.1f}" if label in ends else "–"
    print(f"| {label} | {' | '.join(numbers)} | {last} |")
