"""Configurations: where a key lives, what wins over what, and what identifies a run."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evergraph.config import (
    ORIGINS,
    SECTIONS,
    RunConfig,
    Variant,
    check_shared,
    complete,
    load_mapping,
    parse_settings,
    preset_for,
    read_presets,
    resolve,
    settable_keys,
)
from evergraph.errors import InputError
from evergraph.methods import METHODS, TrainConfig
from evergraph.nn import ModelConfig
from evergraph.stream import Protocol, protocol_for
from evergraph.stream.datasets import DATASETS

PRESETS = [dataset for dataset in read_presets() if dataset != "all"]


def preset(dataset: str, key: str, method: str = "replay") -> Any:
    return preset_for(dataset, method)[key][0]


def resolved(
    dataset: str = "graph.npz",
    method: str = "dslr",
    seed: int = 0,
    shared: dict[str, Any] | None = None,
) -> RunConfig:
    return resolve(Variant.parse(dataset), Variant.parse(method), seed, shared)


@pytest.mark.parametrize("method", METHODS)
def test_keys_have_one_section_each(method: str):
    sections = [METHODS[method].Config, *SECTIONS.values()]
    keys = [key for section in sections for key in section.model_fields]
    twice = {key for key in keys if keys.count(key) > 1}
    # Networks and the closed form weigh classes alike in words; the method's own setting counts.
    assert twice == ({"class_weight", "metric"} if method == "analytic" else set())


@pytest.mark.parametrize("dataset", PRESETS)
def test_presets_use_known_datasets_and_keys(dataset: str):
    known = set().union(*(settable_keys(method) for method in METHODS))
    origins = set().union(*ORIGINS.values())
    assert dataset in DATASETS
    named = {Variant.parse(name).name for name in read_presets()[dataset]}  # of variants too
    assert named <= METHODS.keys() | {"all"}
    for part in read_presets()[dataset].values():
        assert part.keys() <= known
        assert all(by_origin.keys() <= origins for by_origin in part.values())
    for method in METHODS:  # and values that every method takes
        resolved(dataset, method)


def test_resolve_takes_defaults_without_preset():
    config = resolved()
    assert config.training == TrainConfig()
    assert config.model == ModelConfig()
    assert config.protocol == Protocol(feature_scaling="auto")  # of a file that is a user's own
    assert config.settings == METHODS["dslr"].Config().model_dump(mode="json")
    assert config.overrides == {}


def test_resolve_holds_nodes_out_for_a_method_that_validates():
    assert "validation" in METHODS["rclg"].needs
    assert resolved("cora").protocol.validation_fraction == 0
    held_out = resolved("cora", "rclg").protocol
    assert held_out == protocol_for("cora").model_copy(update={"validation_fraction": 0.1})
    shared = {"validation_fraction": 0.25}
    assert resolved("cora", "rclg", shared=shared).protocol.validation_fraction == 0.25


def test_resolve_takes_preset_over_defaults():
    config = resolved("citeseer")
    assert config.settings["r"] == preset("citeseer", "r")
    assert config.model.dropout == preset("citeseer", "dropout")
    replay = resolved("citeseer", "replay").training
    assert replay.label_smoothing == preset("citeseer", "label_smoothing") == 0.2
    assert config.training.label_smoothing == preset("citeseer", "label_smoothing", "dslr") == 0.1
    assert config.protocol == protocol_for("citeseer")
    assert config.overrides == {}  # what the user set, nothing else


@pytest.mark.parametrize("dataset", PRESETS)
def test_resolve_leaves_a_methods_own_keys_alone(dataset: str):
    config = resolved(dataset, "er-gnn")
    assert config.settings["beta"] == "share" != resolved(dataset, "replay").settings["beta"]
    assert config.settings["buffer_size"] == preset(dataset, "buffer_size")  # all else is shared
    assert resolved(dataset, "er-gnn:beta=0.2").settings["beta"] == 0.2
    assert resolved(dataset, "er-gnn", shared={"beta": 0.4}).settings["beta"] == 0.4


def test_resolve_takes_shared_over_preset_and_own_options_over_shared():
    shared = {"r": 0.4, "beta": 0.7, "classes_per_task": 3}
    config = resolved("citeseer", "replay:beta=0.2,epochs=9@mine", 5, shared)
    assert config.settings["r"] == 0.4
    assert config.settings["beta"] == 0.2
    assert config.training.epochs == 9
    assert config.protocol.classes_per_task == 3
    assert config.protocol.test_share == protocol_for("citeseer").test_share
    assert config.overrides == {"r": 0.4, "beta": 0.2, "classes_per_task": 3, "epochs": 9}
    assert (config.label, config.method, config.seed) == ("mine", "replay", 5)


def test_complete_tells_where_every_value_comes_from():
    given = {"settings.yaml": {"lr": 0.5, "heads": 2}, "--set": {"lr": 0.1, "margin": 9}}
    found = complete("citeseer", "dslr", given)
    sections = [METHODS["dslr"].Config, *SECTIONS.values()]
    assert list(found.origins) == [key for section in sections for key in section.model_fields]
    assert (found.training.lr, found.model.heads) == (0.1, 2)
    assert {
        "lr": "--set",
        "heads": "settings.yaml",
        "buffer_size": "printed",
        "r": "tuned",
        "label_smoothing": "ours",
        "epochs": "default",
        "test_share": "protocol",
        "evaluate": "default",
    }.items() <= found.origins.items()
    assert "margin" not in found.origins  # GEM's, not DSLR's
    letter = complete("citeseer", "dslr", {}, "printed")
    assert {letter.origins[key] for key in ("r", "dropout", "label_smoothing")} == {"printed"}
    assert complete("cora", "rclg", {}).origins["validation_fraction"] == "ours"


def test_complete_needs_no_dataset():
    found = complete(None, "dslr", {"user": {"tau": 0.5}})
    assert (found.training, found.model) == (TrainConfig(), ModelConfig())
    assert found.protocol == Protocol()
    assert found.settings == METHODS["dslr"].Config(tau=0.5)
    assert found.origins["tau"] == "user"


def test_resolve_leaves_shared_keys_to_methods_that_have_them():
    shared = {"tau": 0.3, "epochs": 2}
    check_shared(shared, ["finetune", "dslr"])
    assert resolved(method="finetune", shared=shared).overrides == {"epochs": 2}
    assert resolved(method="dslr", shared=shared).settings["tau"] == 0.3


def test_check_shared_refuses_key_of_no_method():
    with pytest.raises(InputError, match="'tau'"):
        check_shared({"tau": 0.3}, ["finetune", "joint"])
    with pytest.raises(InputError, match="'name'"):
        check_shared({"name": "dslr"}, ["dslr"])


def test_resolve_keeps_options_of_a_generated_graph():
    config = resolved("synthetic:nodes=50,homophily=0.9")
    assert config.dataset == "synthetic"
    assert config.dataset_options == {"nodes": 50, "homophily": 0.9}
    assert config.hash != resolved("synthetic").hash


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dataset", ["cora", "citeseer", "ogbn-arxiv", "graph.npz"])
def test_config_yaml_round_trip(dataset: str, method: str):
    config = resolved(dataset, method, 3, {"epochs": 7})
    text = config.to_yaml()
    again = RunConfig.from_values(yaml.safe_load(text))
    assert again == config
    assert again.hash == config.hash
    assert again.to_yaml() == text


def test_config_yaml_is_complete():
    content = yaml.safe_load(resolved("cora").to_yaml())
    assert content["training"].keys() == TrainConfig.model_fields.keys()
    assert content["model"].keys() == ModelConfig.model_fields.keys()
    assert content["protocol"].keys() == Protocol.model_fields.keys()
    assert content["settings"].keys() == METHODS["dslr"].Config.model_fields.keys()


def test_hash_is_stable():
    assert resolved("cora").hash == resolved("cora").hash
    # Spelled-out defaults, labels and the order of words change nothing.
    assert resolved("cora", "dslr:link_epochs=100@x").hash == resolved("cora").hash
    first = resolved(method="dslr:tau=0.5,lam=0.1")
    assert first.hash == resolved(method="dslr:lam=0.1,tau=0.5").hash
    assert first.hash == resolved(shared={"tau": 0.5, "lam": 0.1}).hash


@pytest.mark.parametrize(
    "method",
    ["replay", "dslr:tau=0.5", "dslr:epochs=3", "dslr:heads=2", "dslr:classes_per_task=1"],
)
def test_hash_changes_with_every_section(method: str):
    base, other = resolved("cora"), resolved("cora", method)
    assert base.hash != other.hash
    assert base.variant_hash != other.variant_hash


def test_variant_hash_ignores_the_seed_alone():
    first, second = resolved(seed=0), resolved(seed=1)
    assert first.hash != second.hash
    assert first.variant_hash == second.variant_hash
    assert first.variant_hash != resolved("other.npz").variant_hash


@pytest.mark.parametrize(
    ("text", "name", "options", "label"),
    [
        ("dslr", "dslr", {}, "dslr"),
        ("dslr@ours", "dslr", {}, "ours"),
        ("dslr@", "dslr", {}, "dslr"),
        ("replay:selector=mf", "replay", {"selector": "mf"}, "replay:selector=mf"),
        (
            "replay:selector=mf,beta=0.2@replay-mf",
            "replay",
            {"selector": "mf", "beta": 0.2},
            "replay-mf",
        ),
        ("dslr:order=random:3", "dslr", {"order": "random:3"}, "dslr:order=random:3"),
        ("dslr:max_classes=null", "dslr", {"max_classes": None}, "dslr:max_classes=null"),
        ("joint:warm_start=true", "joint", {"warm_start": True}, "joint:warm_start=true"),
        ("a/b.npz", "a/b.npz", {}, "a/b.npz"),
        ("rclg:additions=[1,2],r=1@x", "rclg", {"additions": [1, 2], "r": 1}, "x"),
    ],
)
def test_variant_parse(text: str, name: str, options: dict[str, Any], label: str):
    variant = Variant.parse(text)
    assert (variant.name, variant.options, variant.label) == (name, options, label)


@pytest.mark.parametrize("text", ["dslr:beta", "C:\\graph.npz", "dslr:beta=1,tau", "dslr:=1"])
def test_variant_parse_refuses(text: str):
    with pytest.raises(InputError, match="key=value"):
        Variant.parse(text)


@given(
    st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.integers() | st.booleans())
)
def test_parse_settings_reads_what_yaml_writes(settings: dict[str, Any]):
    pairs = [f"{key}={yaml.safe_dump(value).split()[0]}" for key, value in settings.items()]
    assert parse_settings(pairs) == settings


def test_parse_settings_takes_the_last_of_a_key():
    assert parse_settings(["beta=0.1", "beta = share", "r=[1, 2]"]) == {
        "beta": "share",
        "r": [1, 2],
    }


def test_load_mapping_names_line_and_kind():
    with pytest.raises(InputError, match=r"'f.yaml' to be YAML \(it is not at line 2\)"):
        load_mapping("a: 1\nb: [", "f.yaml")
    with pytest.raises(InputError, match=r"'f.yaml' to hold keys and values \(got str\)"):
        load_mapping("word", "f.yaml")


@pytest.mark.parametrize("key", ["settings", "training", "dataset", "protocol"])
def test_from_values_refuses_missing_section(key: str):
    content = yaml.safe_load(resolved().to_yaml())
    del content[key]
    with pytest.raises(InputError, match=f"'{key}'"):
        RunConfig.from_values(content)


def test_from_values_checks_the_methods_own_settings():
    content = yaml.safe_load(resolved().to_yaml())
    content["settings"]["tau"] = 1.7
    with pytest.raises(InputError, match=r"'tau' in \[0, 1\] \(got 1.7\)"):
        RunConfig.from_values(content)


def test_from_values_suggests_keys_of_the_section_that_is_wrong():
    content = yaml.safe_load(resolved().to_yaml())
    content["training"]["epoch"] = content["training"].pop("epochs")
    with pytest.raises(InputError, match="'epoch': did you mean 'epochs'"):
        RunConfig.from_values(content)


def test_class_weights_enter_the_hash_where_they_change_something():
    def hashed(**shared):
        return resolve(Variant.parse("cora"), Variant.parse("replay"), 0, shared).hash

    assert hashed() == hashed(class_weight="natural")
    assert len({hashed(), hashed(class_weight="balanced"), hashed(class_weight={"a": 2.0})}) == 3
