"""The frontier's table and files: CSV, JSON, Markdown and the picture."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evergraph.experiments.files import write_atomic, write_json
from evergraph.experiments.frontier import collect_points, table_rows
from evergraph.report.frontier_figure import frontier_figure
from evergraph.report.tables import Sheet, number, size, spread

FORMATS = ("png", "svg")


def write_frontier(folder: Path) -> Sheet:
    """Writes table and figure of all runs below a grid's folder; returns the table."""
    points = collect_points(folder / "runs")
    pictures = frontier_figure(points, FORMATS)  # first: it may refuse
    rows = table_rows(points)
    sheet = frontier_sheet(rows)
    write_json(folder / "frontier.json", rows)
    write_atomic(folder / "frontier.csv", frontier_csv(rows).encode())
    write_atomic(folder / "frontier.md", (sheet.markdown() + "\n").encode())
    for kind, picture in pictures.items():
        write_atomic(folder / f"frontier.{kind}", picture)
    return sheet


def frontier_sheet(rows: Sequence[dict[str, Any]]) -> Sheet:
    """Shows every point, the most accurate of each dataset first."""
    columns = [
        "dataset · method",
        "seeds",
        "PM ↑",
        "FM ↓",
        "memory",
        "s",
        "measured on",
        "best for",
    ]
    cells = [
        [
            f"{row['dataset']} · {row['label']}",
            str(row["seeds"]),
            spread({"mean": row["pm"], "std": row["pm_std"]}),
            number(row["fm"]),
            size(row["bytes"]),
            number(row["seconds"], 1),
            row["device"],
            " and ".join(row["frontier"]) or "–",
        ]
        for row in rows
    ]
    return Sheet("PM against bytes kept and seconds, mean ± std over seeds, %", columns, cells)


def frontier_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Writes the points as comma-separated values, one line each."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({**row, "frontier": " ".join(row["frontier"])})
    return text.getvalue()
