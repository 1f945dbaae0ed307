"""To the letter: every decision says what the paper prints, and ``--as-printed`` sets it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from evergraph.config import Variant, read_presets, resolve
from evergraph.methods import METHODS, method_class

FOLDER = Path(__file__).parent.parent / "docs" / "decisions"
DATASETS = ("cora", "citeseer", "amazon-computers", "ogbn-arxiv", "reddit", "synthetic")
#: What a decision says that departs from nothing: it is not about the paper, or that is silent.
NO_DEPARTURE = {"–", "silent"}


def table() -> dict[str, str]:
    """What the paper prints, by the number of the decision."""
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|") for line in lines if line.startswith("| [0")]
    return {re.findall(r"\d{4}", row[0])[0]: row[2].strip() if row[2:] else "" for row in rows}


def printed() -> dict[str, object]:
    """The settings of all departures."""
    text = " ".join(table().values())
    return {key: yaml.safe_load(value) for key, value in re.findall(r"`(\w+)=([^`]+)`", text)}


def resolved(dataset: str, method: str, presets: str) -> dict[str, object]:
    config = resolve(Variant.parse_dataset(dataset), Variant.parse(method), 0, None, presets)
    sections = (config.training, config.model, config.protocol)
    return config.settings | {key: value for part in sections for key, value in part}


def test_every_decision_says_what_the_paper_prints():
    assert sorted(table()) == sorted(path.name[:4] for path in FOLDER.glob("0*.md"))
    for number, text in table().items():
        assert text in NO_DEPARTURE or re.fullmatch(r"(`\w+=[^`]+` ?)+", text), number


def test_every_departure_is_a_setting_of_dslr_that_is_printed():
    everywhere = read_presets()["all"]["all"]
    assert {key: value["printed"] for key, value in everywhere.items() if "printed" in value} == (
        printed()
    )
    for number, text in table().items():
        for key in re.findall(r"`(\w+)=", text):
            page = next(FOLDER.glob(f"{number}*.md")).read_text(encoding="utf-8")
            assert key in page or number == "0005", f"{number} does not name '{key}'"


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("method", METHODS)
def test_run_as_printed_carries_every_departure_that_the_method_has(dataset: str, method: str):
    found = resolved(dataset, method, "printed")
    for key, value in printed().items():
        assert found.get(key, value) == value
    if method == "dslr":
        assert printed().keys() <= found.keys()


def test_new_settings_behave_as_before_unless_asked():
    config = method_class("dslr").Config()
    assert {key: getattr(config, key) for key in config.former} == config.former


def test_authors_preset_follows_their_code_where_it_differs():
    code, letter = (resolved("cora", "dslr", presets) for presets in ("authors", "printed"))
    differing = {key: code[key] for key in code if code[key] != letter[key]}
    assert differing == {"link_loss": "logits", "embedding": "hidden", "tau": 0.85, "split_seed": 0}
