"""Figures for a paper, drawn by matplotlib from the values that the page shows."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evergraph.errors import InputError
from evergraph.files import make_folder
from evergraph.lab.jobs import slug
from evergraph.lab.report.drawings import COLOURS, DRAWINGS
from evergraph.lab.report.experiment_figures import UNDATED

FORMATS = ("pdf", "png", "svg")
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "evergraph",  # the same values give the same file
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


def check_formats(formats: Sequence[str] | None, folder: Path | None) -> list[str]:
    """Returns the formats wanted, refusing unknown ones and a missing matplotlib."""
    for name in formats or ():
        if name not in FORMATS:
            raise InputError(
                f"Expected '--format' {', '.join(FORMATS)} (got '{name}'); choose among these."
            )
    if formats and folder is None:
        raise InputError(
            f"Expected '--figures' with '--format' (got '{formats[0]}' alone); name a folder."
        )
    if folder is not None and find_spec("matplotlib") is None:
        raise InputError(
            "Expected matplotlib for '--figures' (it is not installed); install evergraph[report]."
        )
    if folder is not None and folder.exists() and not folder.is_dir():
        raise InputError(
            f"Expected '--figures' to be a folder (got the file '{folder}'); choose another."
        )
    return list(formats or ["pdf"])


def write_figures(data: dict[str, Any], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Draws every figure for which there is data, ``DATASET-NAME.FORMAT``."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra that only this needs

    make_folder(folder)
    written = []
    with mpl.rc_context(STYLE):
        for dataset in data["datasets"]:
            order = {name: place for place, name in enumerate(data["order"])}
            groups = sorted(dataset["groups"], key=lambda group: order[group["name"]])
            paint = {name: COLOURS[place % len(COLOURS)] for name, place in order.items()}
            for name, draw in DRAWINGS.items():
                figure = draw(dataset, groups, paint)
                if figure is None:
                    continue
                for ending in formats:
                    path = folder / f"{slug(dataset['name'])}-{name}.{ending}"
                    figure.savefig(path, bbox_inches="tight", dpi=300, metadata=UNDATED.get(ending))
                    written.append(path)
    return written
