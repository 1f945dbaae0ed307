"""The engine of many machines: cells as tasks of a Ray cluster (the extra ``ray``).

Every cell runs in its own folder, which all machines must share. A task whose worker is lost is
given out again and continues after its last finished task, to the same bits; what the driver
finds finished when it is started again is not run again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evergraph.config import RunConfig
from evergraph.errors import InputError
from evergraph.lab.engines.base import Job, run_cell
from evergraph.lab.engines.local import threads_per_job
from evergraph.lab.jobs import Cell, OnCell, OnMessage

#: How often a cell is given out again after its worker was lost.
RETRIES = 3
#: Bytes for what tasks return: a few lines of text each.
OBJECT_STORE = 100 * 2**20


class RayEngine:
    """Runs cells on a Ray cluster: one made for the occasion on this machine, or another.

    Args:
        jobs: Cells at a time on a cluster of our own; a given one has its own size.
        address: The cluster's address; None makes a cluster on this machine.
        gpus: Part of a GPU that each cell asks for.
    """

    def __init__(self, jobs: int, address: str | None = None, gpus: float = 0.0) -> None:
        self.jobs = jobs
        self.address = address
        self.gpus = gpus

    def run(
        self, cells: Sequence[Cell], job: Job, on_message: OnMessage, on_cell: OnCell
    ) -> list[str]:
        """Runs every cell; see :class:`~evergraph.lab.engines.base.Engine`."""
        ray = import_ray()
        self._connect(ray)
        try:
            return self._run(ray, cells, job, on_cell)
        finally:
            ray.shutdown()

    def _connect(self, ray: Any) -> None:
        """Joins the cluster, or makes one that nobody outside this machine can reach."""
        quiet = {"log_to_driver": False, "logging_level": "ERROR", "ignore_reinit_error": True}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # A cell that asks for no part of a GPU may still use the one there is.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        if self.address is None:
            ray.init(
                num_cpus=self.jobs,
                include_dashboard=False,
                object_store_memory=OBJECT_STORE,
                _node_ip_address="127.0.0.1",
                **quiet,
            )
            return
        try:
            ray.init(address=self.address, **quiet)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError):
            raise InputError(
                f"Expected '--address' to name a running Ray cluster (got '{self.address}'); "
                "start one with 'ray start --head' or leave the option out."
            ) from None

    def _run(self, ray: Any, cells: Sequence[Cell], job: Job, on_cell: OnCell) -> list[str]:
        threads = 1 if self.address else threads_per_job(self.jobs)
        task = ray.remote(num_cpus=1, num_gpus=self.gpus, max_retries=RETRIES)(run_remotely)
        root = None if job.data_root is None else str(job.data_root.resolve())
        waiting = {
            task.options(name="evergraph cell").remote(
                cell.config.to_yaml(),
                str(cell.path.resolve()),
                json.dumps([job.device, root, job.track, threads, os.getcwd()]),
            ): cell
            for cell in cells
        }
        failed = []
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            cell = waiting.pop(done)
            results, reason = _answer(ray, done)
            if reason is not None:
                failed.append(cell.name)
            on_cell(cell, results, reason)
        return failed


def import_ray() -> Any:
    """Imports Ray, or says how to get it."""
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError:
        raise InputError(
            "Expected Ray for '--engine ray' (it is not installed); install the extra with "
            "pip install 'evergraph[ray]'."
        ) from None
    return ray


def run_remotely(config: str, path: str, how: str) -> str:
    """Runs one cell in a worker of the cluster; words in, words out.

    Args:
        config: The run as YAML.
        path: Its folder, which the driver sees as well.
        how: Device, data root, tracker, threads and working folder as JSON.

    Returns:
        JSON: ``results``, or ``error`` with ``wrong_input``.
    """
    import torch  # noqa: PLC0415 - the worker's own

    device, root, track, threads, home = json.loads(how)
    torch.set_num_threads(threads)
    if Path(home).is_dir():
        os.chdir(home)  # paths of graphs may be relative
    cell = Cell(RunConfig.from_yaml(config, path), Path(path))
    job = Job(device, None if root is None else Path(root), track)
    try:
        return json.dumps({"results": run_cell(cell, job, None)})
    except InputError as error:
        return json.dumps({"error": str(error), "wrong_input": True})
    except Exception as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}", "wrong_input": False})


def _answer(ray: Any, reference: Any) -> tuple[dict[str, Any] | None, str | None]:
    """Reads what a task returned: results, or the reason why there are none."""
    try:
        answer = json.loads(ray.get(reference))
    except ray.exceptions.RayError:
        return None, f"its worker was lost {RETRIES + 1} times, perhaps for memory"
    if answer.get("wrong_input"):
        raise InputError(answer["error"])
    return answer.get("results"), answer.get("error")
