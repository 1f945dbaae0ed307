"""``evergraph doctor``: what is installed, what runs use of it, and what to do about the rest."""

from __future__ import annotations

import os
import platform

import torch

from evergraph import __version__
from evergraph.kernels import has_kernels, kernels
from evergraph.lab.cli.runs import JsonOption
from evergraph.lab.runs import installed
from evergraph.lab.tables import Sheet, show, size
from evergraph.nn.device import free_memory, pick_device
from evergraph.stream.datasets.download import data_folder

#: The extras of the package: what each installs, and what for.
EXTRAS = {
    "tables": ("pyarrow", "CSV and Parquet files for learn and predict"),
    "report": ("matplotlib", "figures for papers"),
    "tune": ("optuna", "evergraph tune"),
    "pyg": ("torch-geometric", "downloads of Amazon Computers and Reddit"),
    "ogb": ("ogb", "the download of ogbn-arxiv"),
    "ray": ("ray", "--engine ray"),
    "track": ("mlflow", "--track"),
}
#: One line of the answer: what, what was found of it, and what to do, "" where all is well.
Finding = tuple[str, str, str]


def doctor(as_json: JsonOption = False) -> None:
    """Say what is installed, which devices and kernels are used, and what to fix."""
    findings = [*_machine(), *map(_extra, EXTRAS), _data()]
    columns = ["what", "found", "what to do"]
    sheet = Sheet("Evergraph on this machine", columns, findings, prose=columns[1:])
    wrong = sum(bool(remedy) for *_, remedy in findings)
    line = f"{wrong} lines say what to do; all else is ready" if wrong else "all is ready"
    content = [dict(zip(("what", "found", "remedy"), found, strict=True)) for found in findings]
    show(content, [sheet], as_json, line)


def _machine() -> list[Finding]:
    """Finds versions, the device that ``auto`` takes, and whether its kernels work."""
    device = pick_device("auto")
    on_cpu = device.type == "cpu"
    named = "cpu" if on_cpu else torch.cuda.get_device_name(device)
    lost = on_cpu and torch.version.cuda is not None
    driver = "a GPU needs its driver; check nvidia-smi if there is one" if lost else ""
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    fewer = f"set OMP_NUM_THREADS to at most {cores}" if threads > cores else ""
    return [
        ("evergraph", __version__, ""),
        ("Python", f"{platform.python_version()}, {platform.system()}", ""),
        ("PyTorch", torch.__version__, ""),
        ("device", f"{named}, {size(free_memory(device))} free", driver),
        _kernels(device),
        ("threads", f"{threads} of {cores} cores", fewer),
    ]


def _kernels(device: torch.device) -> Finding:
    """Loads the compiled kernels of a device, as a run would."""
    named = "numba" if device.type == "cpu" else "Triton"
    if not has_kernels(device):
        return "kernels", "plain PyTorch", "pip install triton for the fast ones"
    try:
        kernels(device)
    except Exception as error:  # whatever a broken installation raises
        remedy = f"reinstall {named.lower()}, or use --set attention=plain"
        return "kernels", f"{named} fails: {error}", remedy
    return "kernels", f"{named} {installed(named.lower())}, compiled when first used", ""


def _extra(extra: str) -> Finding:
    """Finds an optional package."""
    package, purpose = EXTRAS[extra]
    version = installed(package)
    if version is None:
        return f"extra {extra}", "", f'pip install "evergraph[{extra}]" for {purpose}'
    return f"extra {extra}", f"{package} {version}", ""


def _data() -> Finding:
    """Finds the folder that graphs are read from."""
    folder = data_folder(None)
    if not folder.is_dir():
        remedy = "nothing for Cora and Citeseer; else set EVERGRAPH_DATA to a folder of graphs"
        return "data", f"no folder {folder}", remedy
    names = sorted(path.name for path in folder.iterdir())
    return "data", f"{folder}: {', '.join(names[:8]) or 'empty'}", ""
