"""The state that most tests of the server begin with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from evergraph import ContinualNodeClassifier
from served import first_batch


@pytest.fixture(scope="session")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state of one batch, to copy."""
    place = tmp_path_factory.mktemp("learned") / "state"
    ContinualNodeClassifier("analytic", device="cpu").learn(**first_batch()).save(place)
    return place


@pytest.fixture(scope="module")
def folder(learned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of it for the tests of a file."""
    return Path(shutil.copytree(learned, tmp_path_factory.mktemp("served") / "state"))


@pytest.fixture
def state(learned: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return Path(shutil.copytree(learned, tmp_path / "state"))
