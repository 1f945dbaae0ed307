"""A release: one version, formats as stated, and a wheel that works in a clean environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import evergraph
import evergraph.config
from evergraph.estimator import config as estimator_config
from evergraph.estimator import store
from evergraph.lab.paper import outcome
from evergraph.serve import queue

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_one():
    version = evergraph.__version__
    assert PROJECT["version"] == version
    assert str(yaml.safe_load(text("CITATION.cff"))["version"]) == version
    assert text("CHANGELOG.md").partition("\n## ")[2].startswith(version)
    assert f"Today that is {version.rpartition('.')[0]}." in text("SECURITY.md")


def test_formats_are_those_that_are_written():
    rows = dict(re.findall(r"^\| (.+?) \| (\d+) \|", text("CONTRIBUTING.md"), re.MULTILINE))
    assert rows == {
        "`config.yaml` of a run": str(evergraph.config.SCHEMA_VERSION),
        "`results.json` of a run": str(evergraph.config.SCHEMA_VERSION),
        "an outcome of `reproduce`": str(outcome.SCHEMA_VERSION),
        "a state of the estimator": str(store.SCHEMA_VERSION),
        "a served state's queue": str(queue.SCHEMA_VERSION),
        "a state's settings": str(estimator_config.SCHEMA_VERSION),
    }


def test_citation_names_the_paper_and_the_licence():
    citation = yaml.safe_load(text("CITATION.cff"))
    assert citation["license"] == PROJECT["license"]
    assert citation["references"][0]["doi"] in text("README.md")


def test_addresses_lead_to_no_registry():
    named = {*PROJECT["urls"].values(), *re.findall(r"https?://[^\s)>`\"]+", text("README.md"))}
    assert [url for url in named if not url.startswith("https://doi.org/")] == []


def test_python_versions_are_those_that_are_promised():
    minors = [int(c.rpartition("3.")[2]) for c in PROJECT["classifiers"] if ":: 3." in c]
    assert min(minors) == int(PROJECT["requires-python"].rpartition(".")[2])


def interpreters() -> dict[str, Path]:
    """Finds the promised Python versions that work here, those that pyenv keeps as well."""
    found: dict[str, Path] = {f"3.{sys.version_info.minor}": Path(sys.executable)}
    kept = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in ("3.11", "3.12", "3.13"):
        named = shutil.which(f"python{version}")
        for path in [*([Path(named)] if named else []), *kept.glob(f"{version}.*/bin/python")]:
            answer = subprocess.run(
                [str(path), "-m", "venv", "-h"], capture_output=True, check=False
            )
            if answer.returncode == 0:  # the shim of a version that is not chosen fails
                found.setdefault(version, path)
    return found


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Builds what `make dist` builds."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    return folder


@pytest.mark.slow
def test_wheel_holds_the_package_alone(dist: Path):
    (wheel,) = dist.glob("*.whl")
    (source,) = dist.glob("*.tar.gz")
    assert f"-{evergraph.__version__}-" in wheel.name
    assert source.stat().st_size < 20_000_000
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"evergraph"}
    for part in ("py.typed", "presets.yaml", "stream/datasets/data/cora.npz", "lab/page/main.js"):
        assert f"evergraph/{part}" in names


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_wheel_works_in_a_clean_environment(dist: Path, tmp_path: Path, version: str):
    python = interpreters().get(version)
    if python is None:
        pytest.skip(f"no Python {version} found")
    (wheel,) = dist.glob("*.whl")
    home = tmp_path / "environment"
    subprocess.run([str(python), "-m", "venv", str(home)], check=True, timeout=300)
    program = home / ("Scripts" if sys.platform == "win32" else "bin")
    words = [str(program / "pip"), "install", "-q", "--no-cache-dir", str(wheel)]
    words += ["-c", str(ROOT / "constraints.txt")]  # the pins fit every promised version
    subprocess.run(words, check=True, cwd=tmp_path, timeout=1800)

    code = [
        "import numpy as np",
        "ids, labels, edges = list('abcdefgh'), list('uv' * 4), [('a', 'c'), ('b', 'd')]",
        "x, new_ids, new_x, new_edges, new_labels = np.eye(8), ['i'], np.eye(8)[:1], [], [None]",
        *three_lines(),
        "print(*clf.predict(['i']))",
    ]
    done = subprocess.run(
        [str(program / "python"), "-c", "\n".join(code)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.split()[-1] in {"u", "v"}
    command = [str(program / "evergraph"), "run", "--set", "epochs=2", "--set", "link_epochs=2"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "PM" in told.stdout
    answer = subprocess.run(
        [str(program / "evergraph"), "--version"], capture_output=True, text=True, check=True
    )
    assert answer.stdout == f"evergraph {evergraph.__version__}\n"
    shutil.rmtree(home)  # some gigabytes, with PyTorch for CUDA


def three_lines() -> list[str]:
    """Returns the README's first Python: an import and three lines."""
    (block, *_) = re.findall(r"```python\n(.*?)```", text("README.md"), re.DOTALL)
    lines = [line for line in block.splitlines() if line.strip()]
    assert lines[0] == "from evergraph import ContinualNodeClassifier"
    assert len(lines) == 4
    return lines
