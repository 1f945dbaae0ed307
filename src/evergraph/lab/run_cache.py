"""RunPool: finished runs found by what they are, whatever label or folder they were given."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from evergraph.config import RunConfig
from evergraph.files import read_json, replacing, write_atomic, write_json
from evergraph.lab.jobs import make_cells
from evergraph.lab.runs import RunFolder, finished_runs, runs_to_merge


class RunPool:
    """The finished runs below a folder, by the hash of their configuration.

    Args:
        output: Folder of a grid; runs live below ``runs/``.
    """

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folders: dict[str, Path] = {}
        self.rescan()

    def rescan(self) -> None:
        """Looks for runs that have been finished since."""
        known = set(self.folders.values())
        for folder in finished_runs(self.output / "runs"):
            if folder not in known:
                self.folders[_hash(folder)] = folder

    def __contains__(self, run: str) -> bool:
        return run in self.folders

    def results(self, run: str) -> dict[str, Any] | None:
        """Returns the results of a run by its hash, None if it is not finished."""
        folder = self.folders.get(run)
        return None if folder is None else read_json(folder / "results.json")

    def machine(self, run: str) -> str | None:
        """Names the processor and the number of cores of a finished run, None if unknown."""
        folder = self.folders.get(run)
        if folder is None or not (folder / "environment.json").exists():
            return None
        where = read_json(folder / "environment.json")
        return f"{where.get('device_name')} with {where.get('cores')} cores"

    def take(self, wanted: Iterable[RunConfig], sources: Sequence[Path]) -> int:
        """Copies wanted runs that were finished elsewhere; returns how many.

        A run is recognised by its configuration, so that grids made by ``compare`` under
        other labels serve as well; the copy carries the label that is wanted here.
        """
        missing = {config.hash: config for config in wanted if config.hash not in self}
        found: dict[str, Path] = {}
        for source in sources:
            for folder in runs_to_merge(source):
                run = read_json(folder / "results.json").get("config_hash")
                # A release that added a setting hashes its runs otherwise: read those again.
                run = run if run in missing else _hash(folder)
                if run in missing:
                    found.setdefault(run, folder)
        for run, folder in found.items():
            self._adopt(missing[run], folder)
        self.rescan()
        return len(found)

    def _adopt(self, config: RunConfig, folder: Path) -> None:
        (cell,) = make_cells([config], self.output)
        RunFolder(cell.path).inspect(config)  # refuses a folder that holds another run
        with replacing(cell.path) as beside:
            shutil.copytree(folder, beside)
            results = read_json(beside / "results.json")
            named = {"label": config.label, "overrides": config.overrides}
            hashes = {"config_hash": config.hash, "variant_hash": config.variant_hash}
            write_json(beside / "results.json", {**results, **named, **hashes})
            write_atomic(beside / "config.yaml", config.to_yaml().encode())


def _hash(folder: Path) -> str:
    """Computes the hash of a run as this release does, from its configuration."""
    return RunFolder(folder).config().hash
