"""Presets: what tuning chose stands before what is shared; adopting a search writes it down."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import yaml

from evergraph import config as settings_of
from evergraph.config import Variant, preset_for, read_presets, resolve, settable_keys
from evergraph.errors import InputError
from evergraph.lab.trials import SeedRow, TrialRow, read_rows, write_rows
from evergraph.methods import METHODS, method_class

SCRIPT = Path(__file__).parents[2] / "scripts" / "adopt_tuning.py"


def test_tuned_values_are_of_known_datasets_methods_and_searched_keys():
    for dataset, by_method in read_presets().items():
        for method in by_method.keys() - {"all"}:
            assert by_method[method].keys() <= settable_keys(Variant.parse(method).name)
            assert "buffer_size" not in by_method[method]
            resolve(Variant.parse(dataset), Variant.parse(method), 0)


def test_preset_is_the_shared_one_without_own_keys_then_the_tuned_one(
    monkeypatch: pytest.MonkeyPatch,
):
    values = {key: dict(by_method) for key, by_method in read_presets().items()}
    shared = values["cora"]["all"]
    tuned = {"lam": {"tuned": 300}, "dropout": {"tuned": 0.2}}
    values["cora"] = {"all": shared, "ewc": tuned, "er-gnn": {"selector": {"tuned": "im"}}}
    monkeypatch.setattr(settings_of, "read_presets", lambda: values)
    config = resolve(Variant.parse("cora"), Variant.parse("ewc"), 0)
    assert (config.settings["lam"], config.model.dropout) == (300.0, 0.2)
    assert config.training.label_smoothing == shared["label_smoothing"]["tuned"]
    assert config.overrides == {}
    er_gnn = resolve(Variant.parse("cora"), Variant.parse("er-gnn"), 0).settings
    assert (er_gnn["selector"], er_gnn["beta"]) == ("im", "share")
    assert er_gnn["replay_weights"] == "balanced"
    # What is not tuned is as it was, and the user has the last word.
    last = {key: list(by_origin.items())[-1] for key, by_origin in shared.items()}
    for method in ("dslr", "replay", "finetune", "joint"):
        found = preset_for("cora", method)
        assert found == {key: (value, origin) for key, (origin, value) in last.items()}
    assert "lam" not in preset_for("cora", "mas")
    assert preset_for("graph.npz", "ewc") == {}
    letter = preset_for("graph.npz", "replay", "printed")
    assert letter.keys() == read_presets()["all"]["all"].keys() - {"tau", "split_seed"}
    mine = resolve(Variant.parse("cora"), Variant.parse("ewc:lam=5"), 0, {"dropout": 0.3})
    assert (mine.settings["lam"], mine.model.dropout) == (5.0, 0.3)


def test_variant_with_an_option_may_have_a_preset_of_its_own(monkeypatch: pytest.MonkeyPatch):
    values = {"cora": {"joint": {"lr": {"tuned": 0.5}, "epochs": {"tuned": 7}}}}
    values["cora"]["joint:learner=appnp"] = {"lr": {"tuned": 0.25}}
    monkeypatch.setattr(settings_of, "read_presets", lambda: values)

    def recipe(method: str) -> tuple[float, int]:
        training = resolve(Variant.parse("cora"), Variant.parse(method), 0).training
        return training.lr, training.epochs

    assert recipe("joint") == recipe("joint:backbone=gcn") == (0.5, 7)
    assert recipe("joint:learner=appnp@bound") == (0.25, 7)
    assert recipe("joint:learner=appnp,lr=2") == (2, 7)


def test_printed_settings_are_the_papers_and_nothing_of_ours():
    config = resolve(Variant.parse("cora"), Variant.parse("dslr"), 0, presets="printed")
    keys = ("beta", "lam", "num_neighbors", "num_candidates", "tau", "r", "buffer_size")
    assert [config.settings[key] for key in keys] == [0.1, 0.5, 5, 50, 0.8, 0.3, 100]
    assert (config.model.dropout, config.model.head_init) == (0.0, "uniform")
    assert (config.training.label_smoothing, config.training.lr) == (0.0, 0.005)
    assert config.settings["replay_weights"] == "none"
    # Other methods keep what their own papers say.
    ewc = resolve(Variant.parse("amazon-computers"), Variant.parse("ewc"), 0, presets="printed")
    assert ewc.settings["lam"] == method_class("ewc").Config().lam
    assert ewc.model.dropout == 0.0
    mine = Variant.parse("dslr:dropout=0.3")
    assert resolve(Variant.parse("cora"), mine, 0, presets="printed").model.dropout == 0.3


@pytest.fixture
def adopt():
    spec = importlib.util.spec_from_file_location("adopt_tuning", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.adopt


def folder(path: Path, *rows: TrialRow) -> Path:
    path.mkdir()
    (path / "trials.csv").write_bytes(write_rows(rows, TrialRow))
    return path


def row(method: str, trial: int, pm: float, settings: str, dataset: str = "cora") -> TrialRow:
    return TrialRow(dataset, method, trial, 2, pm, 1.0, 90.0, settings)


def test_adopt_joins_searches_into_presets_and_log(tmp_path: Path, adopt):
    root = tmp_path / "repository"
    target = root / "src" / "evergraph" / "presets.yaml"
    target.parent.mkdir(parents=True)
    (root / "docs").mkdir()
    there = {"cora": {"all": {"r": {"printed": 0.3}}, "ewc": {"lr": {"tuned": 1, "ours": 2}}}}
    target.write_text(f"# what this is\n# and whence\n{yaml.safe_dump(there)}")
    first = folder(
        tmp_path / "a",
        row("ewc", 0, 40.0, "lam=1000"),
        row("ewc", 1, 50.0, "lam=30"),
        row("er-gnn", 0, 80.0, "selector=cm replay_weights=none"),
        row("replay-mf", 0, 80.0, "beta=0.2"),
        row("joint:learner=appnp", 0, 80.0, "lr=0.01"),
    )
    second = folder(tmp_path / "b", row("ewc", 0, 60.0, "lam=1", "amazon-computers"))
    lines = adopt([first, second], None, root)
    assert len(lines) == 4  # a label is no method of its own
    assert target.read_text().startswith("# what this is\n# and whence\n")
    assert "\n    lam: {tuned: 30}\n" in target.read_text()
    assert yaml.safe_load(target.read_text()) == {
        "cora": {
            "all": {"r": {"printed": 0.3}},
            "ewc": {"lr": {"ours": 2}, "lam": {"tuned": 30}},
            "er-gnn": {"selector": {"tuned": "cm"}, "replay_weights": {"tuned": "none"}},
            "joint:learner=appnp": {"lr": {"tuned": 0.01}},
        },
        "amazon-computers": {"ewc": {"lam": {"tuned": 1}}},
    }
    log = read_rows(root / "docs" / "tuning.csv", TrialRow)
    assert [(r.dataset, r.method, r.trial) for r in log] == [
        ("cora", "er-gnn", 0),
        ("cora", "ewc", 0),
        ("cora", "ewc", 1),
        ("cora", "joint:learner=appnp", 0),
        ("cora", "replay-mf", 0),
        ("amazon-computers", "ewc", 0),
    ]
    again = folder(tmp_path / "c", row("ewc", 0, 70.0, "lam=3"), row("mas", 0, 70.0, "lam=3"))
    adopt([again], ["ewc"], root)  # only what is asked for; its old rows go
    assert yaml.safe_load(target.read_text())["cora"]["ewc"]["lam"] == {"tuned": 3}
    assert "mas" not in yaml.safe_load(target.read_text())["cora"]
    assert len(read_rows(root / "docs" / "tuning.csv", TrialRow)) == 5
    seeds = [SeedRow("cora", "ewc", 0, seed, "test", 70.0, None, 90.0) for seed in range(2)]
    (again / "seeds.csv").write_bytes(write_rows(seeds, SeedRow))
    adopt([first, again], ["ewc"], root)
    assert read_rows(root / "docs" / "tuning-by-seed.csv", SeedRow) == seeds
    before = target.read_bytes()
    with pytest.raises(InputError, match="got none"):
        adopt([again], ["lwf"], root)
    bad = folder(tmp_path / "d", row("ewc", 0, 70.0, "lam=-3"))
    with pytest.raises(InputError, match="'lam'"):
        adopt([bad], None, root)
    assert target.read_bytes() == before


def test_every_method_with_settings_of_its_own_to_weigh_declares_a_grid():
    without = {name for name in METHODS if not method_class(name).search}
    assert without == {"finetune", "frozen", "analytic"}  # which chooses its strength itself
