"""The engine of many machines: jobs as tasks of a Ray cluster (the extra ``ray``).

Every job runs in its own folder, which all machines must share. A task whose worker is lost is
given out again and continues after its last finished task, to the same bits; what the driver
finds finished when it is started again is not run again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from evergraph.errors import InputError
from evergraph.lab.engines import OnDone, OnMessage, Resources, import_ray, run_job
from evergraph.lab.jobs import Job

#: How often a job is given out again after its worker was lost.
RETRIES = 3
#: Bytes that a cluster of our own keeps for what jobs return.
OBJECT_STORE = 100 * 2**20


def run_on_ray(
    jobs: Sequence[Job], resources: Resources, on_message: OnMessage, on_done: OnDone
) -> list[str]:
    """Runs jobs as tasks of a Ray cluster; returns the names of those that failed."""
    ray = import_ray()
    _connect(ray, resources)
    try:
        root = resources.data_root
        there = replace(resources, data_root=None if root is None else root.resolve())
        task = ray.remote(num_cpus=1, num_gpus=resources.gpus, max_retries=RETRIES)(_run_remotely)
        waiting = {}
        for job in jobs:
            lasting = replace(job, path=job.path.resolve())
            started = task.options(name="evergraph job").remote(
                lasting, there, resources.threads, os.getcwd()
            )
            waiting[started] = job
        failed = []
        while waiting:
            (done,), _ = ray.wait(list(waiting), num_returns=1)
            job = waiting.pop(done)
            results, reason = _answer(ray, done)
            if reason is not None:
                failed.append(job.name)
            on_done(job, results, reason)
        return failed
    finally:
        ray.shutdown()


def _connect(ray: Any, resources: Resources) -> None:
    """Joins the cluster, or makes one that nobody outside this machine can reach."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "ignore_reinit_error": True}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # A job that asks for no part of a GPU may still use the one there is.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    own = {
        "num_cpus": resources.num_workers,
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE,
        "_node_ip_address": "127.0.0.1",
    }
    try:
        ray.init(resources.address, **quiet, **({} if resources.address else own))
    except (ConnectionError, RuntimeError, ValueError, TimeoutError):
        if resources.address is None:
            raise
        raise InputError(
            f"Expected '--address' to name a running Ray cluster (got '{resources.address}'); "
            "start one with 'ray start --head' or leave the option out."
        ) from None


def _run_remotely(job: Job, resources: Resources, threads: int, home: str) -> dict[str, Any]:
    """Runs one job in a worker of the cluster."""
    torch.set_num_threads(threads)
    if Path(home).is_dir():
        os.chdir(home)  # paths of graphs may be relative
    return run_job(job, resources)


def _answer(ray: Any, reference: Any) -> tuple[dict[str, Any] | None, str | None]:
    """Reads what a task returned: results, or the reason why there are none."""
    try:
        return ray.get(reference), None
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, InputError):
            raise error.cause from None
        return None, f"{type(error.cause).__name__}: {error.cause}"
    except ray.exceptions.RayError:
        return None, f"its worker was lost {RETRIES + 1} times, perhaps for memory"
