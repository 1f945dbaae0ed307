"""``evergraph doctor``: what is installed, what runs use of it, and what to do about the rest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any, NamedTuple

import torch

from evergraph import __version__
from evergraph.kernels import has_kernels, kernels
from evergraph.lab.cli.runs import JsonOption
from evergraph.lab.tables import Sheet, show, size
from evergraph.nn.device import free_memory, pick_device
from evergraph.stream.datasets.download import data_folder

#: The extras of the package: what each installs, and what for.
EXTRAS = {
    "tables": ("pyarrow", "CSV and Parquet files for learn and predict"),
    "serve": ("fastapi", "evergraph serve"),
    "report": ("matplotlib", "figures for papers"),
    "tune": ("optuna", "evergraph tune"),
    "pyg": ("torch-geometric", "downloads of Amazon Computers and Reddit"),
    "ogb": ("ogb", "the download of ogbn-arxiv"),
    "ray": ("ray", "--engine ray"),
    "track": ("mlflow", "--track"),
}


class Finding(NamedTuple):
    """One line of the answer."""

    what: str
    found: str
    remedy: str = ""


def doctor(as_json: JsonOption = False) -> None:
    """Say what is installed, which devices and kernels are used, and what to fix."""
    findings = [*_machine(), *_extras(), _data()]
    columns = ["what", "found", "what to do"]
    sheet = Sheet("Evergraph on this machine", columns, findings, prose=columns[1:])
    wrong = sum(bool(finding.remedy) for finding in findings)
    line = f"{wrong} lines say what to do; all else is ready" if wrong else "all is ready"
    show([finding._asdict() for finding in findings], [sheet], as_json, line)


def _machine() -> list[Finding]:
    """Finds versions, the device that ``auto`` takes, and whether its kernels work."""
    device = pick_device("auto")
    named = "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
    told = Finding("device", f"{named}, {size(free_memory(device))} free")
    if device.type == "cpu" and torch.version.cuda is not None:
        told = told._replace(remedy="a GPU needs its driver; check nvidia-smi if there is one")
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    busy = Finding("threads", f"{threads} of {cores} cores")
    if threads > cores:
        busy = busy._replace(remedy=f"set OMP_NUM_THREADS to at most {cores}")
    return [
        Finding("evergraph", __version__),
        Finding("Python", f"{platform.python_version()}, {platform.system()}"),
        Finding("PyTorch", torch.__version__),
        told,
        _kernels(device),
        busy,
    ]


def _kernels(device: torch.device) -> Finding:
    """Loads the compiled kernels of a device, as a run would."""
    named = "numba" if device.type == "cpu" else "Triton"
    if not has_kernels(device):
        return Finding("kernels", "plain PyTorch", "pip install triton for the fast ones")
    try:
        kernels(device)
    except Exception as error:  # whatever a broken installation raises
        remedy = f"reinstall {named.lower()}, or use --set attention=plain"
        return Finding("kernels", f"{named} fails: {error}", remedy)
    return Finding("kernels", f"{named} {_version(named.lower())}, compiled when first used")


def _extras() -> list[Finding]:
    """Finds the optional packages."""
    found = []
    for extra, (package, purpose) in EXTRAS.items():
        version = _version(package)
        remedy = "" if version else f'pip install "evergraph[{extra}]" for {purpose}'
        found.append(Finding(f"extra {extra}", version and f"{package} {version}", remedy))
    return found


def _data() -> Finding:
    """Finds the folder that graphs are read from."""
    folder: Path = data_folder(None)
    if not folder.is_dir():
        remedy = "nothing for Cora and Citeseer; else set EVERGRAPH_DATA to a folder of graphs"
        return Finding("data", f"no folder {folder}", remedy)
    names: list[Any] = sorted(path.name for path in folder.iterdir())
    return Finding("data", f"{folder}: {', '.join(names[:8]) or 'empty'}")


def _version(package: str) -> str:
    """Returns the installed version of a package, an empty text for none."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
