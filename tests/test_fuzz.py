"""Fuzzing in short, and every input that once made a reader fail."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import fuzz
from evergraph.errors import InputError

pytest.importorskip("pyarrow")

CORPUS = Path(__file__).parent / "data" / "fuzz"
SHORT = {
    "config": 150,
    "npz": 200,
    "csv": 200,
    "parquet": 200,
    "state": 120,
    "run": 30,
    "field": 200,
}


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_reader_survives_some_cases(name: str, tmp_path: Path):
    target = fuzz.TARGETS[name](tmp_path)
    before = fuzz.memory()
    for number in range(SHORT[name]):
        path = target.write(random.Random(f"short {name} {number}"))
        wrong = fuzz.judge(target.read, path)
        assert wrong is None, f"case {number}: {wrong}"
    assert fuzz.memory() - before < fuzz.GROWTH


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_past_failures_stay_mended(name: str, tmp_path: Path):
    target = fuzz.TARGETS[name](tmp_path)
    for path in sorted((CORPUS / name).glob("*")):
        wrong = fuzz.judge(target.read, path)
        assert wrong is None, f"{path.name}: {wrong}"


@pytest.mark.slow
@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_reader_survives_twenty_thousand_cases(name: str, tmp_path: Path):
    assert fuzz.fuzz(name, 20_000, seed=1, failures=tmp_path) == 0


# --- what people with bad intentions try -----------------------------------------------------

LAUGHS = "a: &a [1, 1]\n" + "".join(
    f"{chr(98 + at)}: &{chr(98 + at)} [{', '.join([f'*{chr(97 + at)}'] * 9)}]\n" for at in range(20)
)
CONFIGS = {
    "references": LAUGHS,
    "code": "!!python/object/apply:os.system ['false']\n",
    "nesting": "a: " + "[" * 5000,
    "a long number": "seed: " + "9" * 5000,
    "a date that is none": "seed: 2001-99-99",
    "length": "a: 1\n" * 100_000,
}


@pytest.mark.parametrize("case", CONFIGS)
def test_hostile_configurations_are_refused(case: str, tmp_path: Path):
    path = tmp_path / "config.yaml"
    path.write_text(CONFIGS[case])
    target = fuzz.TARGETS["config"](tmp_path)
    assert fuzz.judge(target.read, path) is None


def test_the_harness_notices_failures(tmp_path: Path):
    def raises(path: Path) -> None:
        raise KeyError(path)

    class Chatter(InputError):
        def __str__(self) -> str:
            return "two\nlines"

    def chatters(path: Path) -> None:
        raise Chatter("")

    assert "KeyError" in str(fuzz.judge(raises, tmp_path))
    assert "not a sentence" in str(fuzz.judge(chatters, tmp_path))
    assert fuzz.judge(lambda path: path, tmp_path) is None
