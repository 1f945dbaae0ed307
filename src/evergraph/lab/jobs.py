"""Jobs: the runs of a grid and the folders they live in."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evergraph.config import RunConfig
from evergraph.errors import InputError


@dataclass(frozen=True)
class Job:
    """One run of a grid and its folder."""

    config: RunConfig
    path: Path

    @property
    def name(self) -> str:
        """What progress shows."""
        return f"{self.config.dataset_name} · {self.config.label} · seed {self.config.seed}"


def make_jobs(configs: Sequence[RunConfig], output: Path) -> list[Job]:
    """Gives every run its folder ``runs/DATASET/LABEL/seed-N``; refuses labels that clash."""
    jobs: dict[Path, Job] = {}
    for config in configs:
        path = output / "runs" / dataset_slug(config) / slug(config.label) / f"seed-{config.seed}"
        if path in jobs and jobs[path].config.dataset_name != config.dataset_name:
            raise InputError(
                "Expected every dataset of a grid to have its own file name (got "
                f"'{jobs[path].config.dataset_name}' and '{config.dataset_name}'); rename one."
            )
        if path in jobs:
            raise InputError(
                f"Expected every method of a grid to have its own label (got '{config.label}' "
                "twice); add @label to one of them."
            )
        jobs[path] = Job(config, path)
    return list(jobs.values())


def slug(text: str) -> str:
    """Turns a label into a folder name."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "-", text).strip("-.") or "unnamed"


def dataset_slug(config: RunConfig) -> str:
    """Names a dataset's folder: generated graphs by their options, files without their path."""
    return slug(config.dataset_name if config.dataset_options else Path(config.dataset).stem)
