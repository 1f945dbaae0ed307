"""Ten years of a Linux distribution: what becomes of a classifier of packages while they change.

Draws a grid of runs over a graph that grew, one line per method: the accuracy on the packages
that are new in each release, and on all packages so far, once the release was learned. A dotted
line shows joint training one release behind, that is before it learned the release. Methods after
the picture's name are drawn, all by default; the table has all. First make the grid::

    evergraph compare --dataset ubuntu-packages --stream time --seeds 3 --output packages \
        --method frozen --method finetune --method replay:buffer_size=2000 \
        --method dslr:buffer_size=2000 --method analytic --method joint
    python examples/packages.py packages packages.png frozen finetune dslr analytic joint
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
BEHIND = "joint, one release behind"


def mean_of(rows: list[list[float]]) -> list[float]:
    """Averages runs of several seeds, release by release."""
    return [fmean(values) for values in zip(*rows, strict=True)]


def draw(axes, lines, title: str) -> None:
    """Draws lines with their names beside their ends."""
    for number, (label, line) in enumerate(sorted(lines.items())):
        style = {"color": COLOURS[number % len(COLOURS)]}
        if label == BEHIND:
            style = {"color": "#777777", "linestyle": ":"}
        axes.plot(steps, line, marker="o", markersize=3, label=label, **style)
    low, high = axes.get_ylim()
    height = high
    for line in sorted(axes.lines, key=lambda line: -line.get_ydata()[-1]):
        end = line.get_ydata()[-1]
        height = min(end, height - 0.05 * (high - low))  # apart, so that each can be read
        place = (len(steps) - 0.8, height)
        axes.annotate(f"{line.get_label()} {end:.0f}", place, va="center", color=line.get_color())
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_xlim(right=1.45 * len(steps))
    axes.tick_params(axis="x", labelrotation=30)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.3)
    axes.set_axisbelow(True)


grid, picture, wanted = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
runs, new, seen = defaultdict(list), {}, {}
for result in collect_results(grid / "runs"):
    runs[result["label"].partition(":")[0]].append(result)
for label, results in runs.items():
    new[label] = mean_of([[row[-1] for row in result["accuracy_matrix"]] for result in results])
    seen[label] = mean_of([result["stream"]["seen_by_step"] for result in results])
if "joint" in runs:
    behind = mean_of([result["stream"]["before"][1:] for result in runs["joint"]])
    new[BEHIND] = [new["joint"][0], *behind]
steps = next(iter(runs.values()))[0]["stream"]["steps"]

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained", sharey=True)
chosen = {*wanted, BEHIND} if wanted else new
draw(left, {k: v for k, v in new.items() if k in chosen}, "on the packages new in a release, %")
draw(right, {k: v for k, v in seen.items() if k in chosen}, "on all packages so far, %")
figure.savefig(picture, dpi=160)

print(f"| | {' | '.join(steps)} | all packages |")
print(f"|---|{'---:|' * (len(steps) + 1)}")
for label, line in sorted(new.items()):
    numbers = [f"{value:.1f}" for value in line]
    last = f"{seen[label][-1]:.1f}" if label in seen else "–"
    print(f"| {label} | {' | '.join(numbers)} | {last} |")
