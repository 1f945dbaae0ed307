"""``evergraph datasets``, ``methods`` and ``doctor``: what there is, and what can be built."""

from __future__ import annotations

import inspect
import os
import platform
import re
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from pydantic import BaseModel

from evergraph import __version__
from evergraph.device import free_memory, pick_device
from evergraph.errors import InputError
from evergraph.kernels import has_kernels, kernels
from evergraph.lab.cli.runs import JsonOption
from evergraph.lab.engines import check_at_least
from evergraph.lab.runs import installed
from evergraph.lab.tables import Sheet, make_console, show, size
from evergraph.memory import SELECTORS
from evergraph.methods import METHODS, TrainConfig, method_class
from evergraph.nn import ModelConfig
from evergraph.stream import protocol_for
from evergraph.stream.datasets import DATASETS
from evergraph.stream.datasets.download import data_folder, mirror_indexes
from evergraph.stream.datasets.packages import build_packages

#: The extras of the package: what each installs, and what for.
EXTRAS = {
    "scale": ("pymetis", "parts with few edges between them for partition"),
    "tables": ("pyarrow", "CSV and Parquet files for learn and predict"),
    "serve": ("fastapi", "evergraph serve"),
    "report": ("matplotlib", "figures for papers"),
    "tune": ("optuna", "evergraph tune"),
    "pyg": ("torch-geometric", "downloads of Amazon Computers and Reddit"),
    "ogb": ("ogb", "the download of ogbn-arxiv"),
    "ray": ("ray", "--engine ray"),
    "track": ("mlflow", "--track"),
}


@dataclass(frozen=True)
class BuildOptions:
    """What ``datasets build packages`` reads and writes."""

    folder: Annotated[
        Path | None,
        typer.Option("--from", help="Folder of index files, one subfolder per release."),
    ] = None
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The npz file.")] = None
    releases: Annotated[str | None, "Releases in order, a,b,c; else subfolders by name."] = None
    mirror: Annotated[str | None, "Address of an archive to get index files from."] = None
    architecture: Annotated[str, "Whose packages a mirror gives."] = "amd64"
    words: Annotated[int, "The most words that make the features."] = 2000


def datasets(
    action: Annotated[
        list[str] | None, typer.Argument(help="'build packages' builds one instead.")
    ] = None,
    *,
    building: BuildOptions,
    as_json: JsonOption = False,
) -> None:
    """List the datasets and where they come from, or build one."""
    if action or building != BuildOptions():
        build(action or [], building)
        return
    entries: list[dict[str, Any]] = [
        {**asdict(info), "protocol": protocol_for(name).name, "hash": protocol_for(name).hash}
        for name, info in DATASETS.items()
    ]
    columns = ["dataset", "nodes", "edges", "features", "classes", "protocol", "obtained"]
    rows = [[entry["name"], *(entry[key] for key in columns[1:])] for entry in entries]
    rows.append(["path/to/file.npz", None, None, None, None, "default", "your own graph"])
    show(entries, [Sheet("Datasets", columns, rows, prose=("protocol", "obtained"))], as_json)


def methods(
    name: Annotated[str | None, typer.Argument(help="A method, to see its settings.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the methods and selectors, or describe the settings of one."""
    if name is not None:
        show_method(name, as_json)
        return
    entries: list[dict[str, Any]] = [
        {
            "name": name,
            "summary": cls.summary,
            "paper": cls.paper,
            "year": cls.year,
            "needs": sorted(cls.needs),
            "settings": defaults(cls.Config),
            "search": cls.search,
        }
        for name, cls in METHODS.items()
    ]
    selectors = [{"name": name, "summary": info.summary} for name, info in SELECTORS.items()]
    rows = [
        [e["name"], e["summary"], " ".join(e["needs"]) or "–", len(e["settings"])] for e in entries
    ]
    columns = ["method", "what it does", "needs", "settings"]
    kept = ["selector", "which nodes it keeps"]
    sheets = [
        Sheet("Methods", columns, rows, prose=("what it does",)),
        Sheet("Selectors", kept, [[*entry.values()] for entry in selectors], prose=tuple(kept)),
    ]
    line = "evergraph methods NAME describes the settings of one"
    show({"methods": entries, "selectors": selectors}, sheets, as_json, line)


def show_method(name: str, as_json: bool) -> None:
    """Prints what a method is, and each of its settings with its default and its meaning."""
    cls = method_class(name)
    about = {"name": name, "summary": cls.summary, "paper": cls.paper, "year": cls.year}
    shown: dict[str, type[BaseModel]] = {f"{name}: {cls.summary}": cls.Config}
    shown |= {"Training, of every network": TrainConfig, "The network": ModelConfig}
    own = defaults(cls.Config)
    elsewhere = own.keys() | cls.Config().unused()  # no effect with its other settings
    sheets, columns = [], ["setting", "default", "meaning"]
    for title, config in shown.items():
        text, values = descriptions(config), defaults(config)
        keys = own if config is cls.Config else [key for key in values if key not in elsewhere]
        rows = [[key, str(values[key]), text.get(key, "")] for key in keys]
        sheets += [Sheet(title, columns, rows, prose=("default", "meaning"))] if rows else []
    text = descriptions(cls.Config)
    settings = {key: {"default": v, "meaning": text.get(key, "")} for key, v in own.items()}
    line = f"{cls.paper}, {cls.year} · evergraph run --method {name} --explain: the values of a run"
    show({**about, "settings": settings}, sheets, as_json, line)


def defaults(config: type[BaseModel]) -> dict[str, Any]:
    """Returns the settings of a class with their defaults."""
    return {
        key: field.get_default(call_default_factory=True)
        for key, field in config.model_fields.items()
        if not field.deprecated
    }


def descriptions(config: type[BaseModel]) -> dict[str, str]:
    """Reads what is written of each setting where it is defined, which is the only place.

    That is an entry of ``Attributes`` in the docstring of its class, a comment above it that
    begins with ``#:``, or one behind it.
    """
    told: dict[str, str] = {}
    for cls in reversed(config.__mro__):
        if not issubclass(cls, BaseModel) or cls is BaseModel:
            continue
        _, _, attributes = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")
        told |= dict(re.findall(r"^    (\w+): ((?:.|\n {5,})*)", attributes, re.MULTILINE))
        above = ""
        for line in inspect.getsource(cls).splitlines():
            if line.startswith("    #: "):
                above += f" {line[7:]}"
                continue
            if match := re.match(r"    (\w+): [^#]*(?:# (.*))?$", line):
                if above or match[2]:
                    told[match[1]] = above or match[2]
                above = ""
    plain = {k: " ".join(text.replace("``", "'").split()).rstrip(".") for k, text in told.items()}
    leads = r" \((?:decision \d+|:\w+:`.*?`)\)"  # to other places of the code
    return {key: re.sub(leads, "", text) for key, text in plain.items()}


def build(what: list[str], options: BuildOptions) -> None:
    """Builds the dataset that the words after ``datasets`` name."""
    if what != ["build", "packages"]:
        raise InputError(
            f"Expected 'datasets' alone or 'datasets build packages' (got 'datasets "
            f"{' '.join(what)}'); change the words."
        )
    output, releases = options.output, [r for r in (options.releases or "").split(",") if r]
    if output is None:
        raise InputError("Expected '--output' (got none); name the npz file to write.")
    check_at_least(1, words=options.words)
    tell = make_console(stderr=True).print
    with tempfile.TemporaryDirectory(prefix="evergraph-") as passing:
        folder = options.folder or Path(passing)
        if options.mirror is not None:
            if not releases:
                raise InputError(
                    "Expected '--releases' beside '--mirror' (got none); name them in order."
                )
            kind = options.architecture
            mirror_indexes(options.mirror, releases, folder, architecture=kind, tell=tell)
        elif options.folder is None:
            raise InputError(
                "Expected '--from' or '--mirror' (got neither); name a folder or an archive."
            )
        build_packages(folder, output, releases, num_words=options.words, tell=tell)


def doctor(as_json: JsonOption = False) -> None:
    """Say what is installed, which devices and kernels are used, and what to fix."""
    device = pick_device("auto")
    on_cpu = device.type == "cpu"
    named = "cpu" if on_cpu else torch.cuda.get_device_name(device)
    lost = on_cpu and torch.version.cuda is not None
    driver = "a GPU needs its driver; check nvidia-smi if there is one" if lost else ""
    cores, threads = os.cpu_count() or 1, torch.get_num_threads()
    fewer = f"set OMP_NUM_THREADS to at most {cores}" if threads > cores else ""
    findings = [
        ("evergraph", __version__, ""),
        ("Python", f"{platform.python_version()}, {platform.system()}", ""),
        ("PyTorch", torch.__version__, ""),
        ("device", f"{named}, {size(free_memory(device))} free", driver),
        _kernels(device),
        ("threads", f"{threads} of {cores} cores", fewer),
    ]
    for extra, (package, purpose) in EXTRAS.items():
        version = installed(package)
        remedy = "" if version else f'pip install "evergraph[{extra}]" for {purpose}'
        findings.append((f"extra {extra}", f"{package} {version}" if version else "", remedy))
    folder, remedy = data_folder(None), ""
    if folder.is_dir():
        names = sorted(path.name for path in folder.iterdir())
        told = f"{folder}: {', '.join(names[:8]) or 'empty'}"
    else:
        told = f"no folder {folder}"
        remedy = "nothing for Cora and Citeseer; else set EVERGRAPH_DATA to a folder of graphs"
    findings.append(("data", told, remedy))
    columns = ["what", "found", "what to do"]
    sheet = Sheet("Evergraph on this machine", columns, findings, prose=columns[1:])
    wrong = sum(bool(remedy) for *_, remedy in findings)
    line = f"{wrong} lines say what to do; all else is ready" if wrong else "all is ready"
    content = [dict(zip(("what", "found", "remedy"), found, strict=True)) for found in findings]
    show(content, [sheet], as_json, line)


def _kernels(device: torch.device) -> tuple[str, str, str]:
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
