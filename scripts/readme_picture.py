"""Draws the README's picture from the table of docs/packages.md: ten years, four ways.

python scripts/readme_picture.py docs/images/growth.png
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

TABLE = Path(__file__).parents[1] / "docs" / "packages.md"
#: Row of the table: what a reader calls it, and its colour.
WAYS = {
    "frozen": ("trained once, left alone", "#CC4C02"),
    "finetune": ("fine-tuned on what is new", "#7A7A7A"),
    "joint": ("retrained on everything", "#5B6B7A"),
    "analytic": ("Evergraph", "#00695C"),
}
#: Years in which the releases came out.
YEARS = (2016.3, 2018.3, 2020.3, 2022.3, 2024.3, 2025.8, 2026.3, 2026.8)


def rows() -> dict[str, list[float]]:
    """Reads the accuracies on new packages, and behind them that on all packages."""
    found = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        name, *cells = [cell.strip(" *`") for cell in line.strip("|").split("|")]
        if name in WAYS and len(cells) == len(YEARS) + 2:
            found[name] = [float(re.split(r" ", cell)[0]) for cell in cells[:-1]]
    return found


def draw(picture: Path) -> None:
    """Draws lines over the years, and bars of what is known at the end."""
    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(10.5, 3.9), layout="constrained", width_ratios=(1.5, 1)
    )
    found = rows()
    for name in ("frozen", "analytic"):
        label, colour = WAYS[name]
        line = found[name][:-1]
        left.plot(YEARS, line, color=colour, marker="o", linewidth=2.5)
        left.annotate(f"{label}\n{line[-1]:.0f} %", (2027.1, line[-1]), color=colour, va="center")
    left.set_title("New packages put into the right section, %", loc="left")
    left.set_xlim(2015.8, 2030.5)
    left.set_xticks(range(2016, 2027, 2))
    left.set_ylim(30, 90)
    order = sorted(found, key=lambda name: found[name][-1])
    for place, name in enumerate(order):
        label, colour = WAYS[name]
        value = found[name][-1]
        right.barh(place, value, color=colour, height=0.62)
        right.text(1.5, place, label, va="center", color="white")
        right.text(value + 1, place, f"{value:.0f} %", va="center", color=colour)
    right.set_title("All packages, after ten years", loc="left")
    right.set_xlim(0, 92)
    right.set_yticks([])
    right.spines["left"].set_visible(False)
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
