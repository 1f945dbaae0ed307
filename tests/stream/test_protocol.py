"""Protocol: the paper's presets, what is refused, and the hash."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.errors import InputError
from evergraph.stream import Graph, Protocol, protocol_for
from evergraph.stream.protocol import PROTOCOLS, choose_classes
from evergraph.validation import parse

AMAZON = (0.3, 0.75, 0.65, 0.3, 0.9, 0.3, 0.4, 0.75)
ARXIV = (0.3, 0.3, 0.3, 0.3, 0.35, 0.85, 0.2, 0.2, 0.8, 0.3, 0.3, 0.8, 0.4, 0.35, 0.25)

# The table of section 1 of the method: c, order, classes kept, shares, drawn how, features.
TABLE = {
    "cora": (2, "alphabetical", 200, None, 0.3, True, "row-sum"),
    "citeseer": (2, "alphabetical", 0, None, (0.15,) + (0.6,) * 5, True, "row-sum"),
    "amazon-computers": (2, "label", 400, None, AMAZON, False, "row-sum"),
    "ogbn-arxiv": (3, "label", 2830, None, ARXIV, False, "none"),
    "reddit": (5, "label", 0, 40, 0.3, False, "none"),
}

# Real class sizes in label order, and the labels the table keeps: c × T classes.
SIZES = {
    "cora": [298, 418, 818, 426, 217, 180, 351],
    "citeseer": [249, 596, 701, 508, 668, 590],
    "amazon-computers": [436, 2142, 1414, 542, 5158, 308, 487, 818, 2156, 291],
    "ogbn-arxiv": [
        *(565, 687, 4839, 2080, 5862, 4958, 1618, 589, 6232, 2820),
        *(7869, 750, 29, 2358, 597, 403, 27321, 515, 749, 2877),
        *(2076, 393, 1903, 2834, 22187, 1257, 4605, 4801, 21406, 416),
        *(11814, 2828, 411, 1271, 7867, 127, 3524, 2369, 1507, 2029),
    ],
    "reddit": [100] * 17 + [99] + [100] * 23,  # sizes made up, 41 classes, the smallest is 17
}
NAMES = {
    "cora": (
        *("Case_Based", "Genetic_Algorithms", "Neural_Networks", "Probabilistic_Methods"),
        *("Reinforcement_Learning", "Rule_Learning", "Theory"),
    ),
    "citeseer": ("AI", "Agents", "DB", "HCI", "IR", "ML"),
}
KEPT = {
    "cora": ([0, 1, 2, 3, 4, 6], 3),
    "citeseer": ([0, 1, 2, 3, 4, 5], 3),
    "amazon-computers": ([0, 1, 2, 3, 4, 6, 7, 8], 4),
    "ogbn-arxiv": ([2, 4, 5, 8, 10, 16, 19, 23, 24, 26, 27, 28, 30, 34, 36], 5),
    "reddit": ([label for label in range(41) if label != 17], 8),
}


def graph_of(dataset: str) -> Graph:
    """A graph without edges whose classes have the real sizes and names."""
    sizes = torch.tensor(SIZES[dataset])
    y = torch.repeat_interleave(torch.arange(sizes.numel()), sizes)
    edges = torch.empty(2, 0, dtype=torch.int64)
    names = NAMES.get(dataset) or tuple(str(label) for label in range(sizes.numel()))
    return Graph.build(dataset, torch.ones(y.numel(), 1), edges, y, names)


# Presets.


def test_protocol_presets_are_the_five_datasets():
    assert {name for name, each in PROTOCOLS.items() if each.name == "dslr"} == set(TABLE)


@pytest.mark.parametrize("dataset", TABLE)
def test_protocol_presets_have_the_values_of_the_table(dataset):
    protocol = protocol_for(dataset)
    assert (
        protocol.classes_per_task,
        protocol.order,
        protocol.min_class_size,
        protocol.max_classes,
        protocol.test_share,
        protocol.pooled,
        protocol.features,
    ) == TABLE[dataset]
    assert protocol.name == "dslr"
    # Reported runs train on the full part, are judged on test nodes, and split by the seed.
    assert (protocol.validation_fraction, protocol.evaluate) == (0.0, "test")
    assert protocol.split_seed is None


@pytest.mark.parametrize("dataset", TABLE)
def test_protocol_presets_keep_the_classes_and_tasks_of_the_table(dataset):
    protocol = protocol_for(dataset)
    kept, num_tasks = KEPT[dataset]
    assert choose_classes(graph_of(dataset), protocol) == kept
    assert len(kept) == protocol.classes_per_task * num_tasks


@pytest.mark.parametrize("dataset", ["amazon-computers", "citeseer", "ogbn-arxiv"])
def test_protocol_presets_have_a_share_for_every_kept_class(dataset):
    assert len(protocol_for(dataset).test_share) == len(KEPT[dataset][0])


def test_protocol_for_another_graph_is_the_default():
    assert protocol_for("my-graph") == Protocol()
    assert Protocol().name == "default"


# What is refused.


@pytest.mark.parametrize(
    "order",
    ["", "Label", "labels", "random", "random:", "random:-1", "random:x", "random:1.5", " label"],
)
def test_protocol_refuses_an_order_it_cannot_read(order):
    with pytest.raises(InputError) as caught:
        parse(Protocol, {"order": order})
    assert str(caught.value) == (
        f"Expected 'order' label, alphabetical or random:SEED (got '{order}'); "
        "write for example random:0."
    )


@pytest.mark.parametrize("order", ["label", "alphabetical", "random:0", "random:123"])
def test_protocol_accepts_every_order(order):
    assert parse(Protocol, {"order": order}).order == order


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"classes_per_task": 0},
            "Expected 'classes_per_task' as an integer of at least 1 (got 0)",
        ),
        ({"test_share": 1.5}, "Expected 'test_share' in (0, 1) (got 1.5)"),
        ({"test_share": 0}, "Expected 'test_share' in (0, 1) (got 0)"),
        ({"validation_fraction": 0.6}, "Expected 'validation_fraction' in [0, 0.5] (got 0.6)"),
        ({"split_seed": -1}, "Expected 'split_seed' as an integer of at least 0 (got -1)"),
        ({"max_classes": 0}, "Expected 'max_classes' as an integer of at least 1 (got 0)"),
        ({"evaluate": "train"}, "Expected 'evaluate' to be 'test' or 'validation' (got 'train')"),
        ({"features": "l2"}, "Expected 'features' to be 'row-sum' or 'none' (got 'l2')"),
    ],
)
def test_protocol_refuses_values_out_of_range(values, expected):
    with pytest.raises(InputError) as caught:
        parse(Protocol, values)
    assert str(caught.value) == f"{expected}; change its value."


def test_protocol_refuses_one_share_out_of_range_by_its_own_value():
    # The list itself is fine; the sentence must speak of the entry that is not.
    with pytest.raises(InputError) as caught:
        parse(Protocol, {"test_share": [0.3, 1.5, 0.2]})
    assert str(caught.value) == (
        "Expected 'test_share[1]' to be less than 1 (got 1.5); change its value."
    )


def test_protocol_refuses_to_evaluate_on_validation_nodes_that_are_not_there():
    with pytest.raises(InputError) as caught:
        parse(Protocol, {"evaluate": "validation"})
    assert str(caught.value) == (
        "Expected 'validation_fraction' above 0 to evaluate on validation nodes (got 0); "
        "set it to 0.1."
    )
    assert parse(Protocol, {"evaluate": "validation", "validation_fraction": 0.1})


def test_protocol_refuses_unknown_keys_with_a_suggestion():
    with pytest.raises(InputError, match=r"Unknown key 'test_shares': did you mean 'test_share'\?"):
        parse(Protocol, {"test_shares": 0.2})


# Hash.

CHANGES = {
    "name": "other",
    "classes_per_task": 3,
    "order": "random:1",
    "min_class_size": 1,
    "max_classes": 5,
    "test_share": 0.31,
    "pooled": True,
    "features": "row-sum",
    "feature_scaling": "auto",
    "validation_fraction": 0.1,
    "evaluate": "validation",
    "split_seed": 0,
    "stream": "time",
}


def test_hash_changes_with_any_field():
    assert set(CHANGES) == set(Protocol.model_fields)
    base = {"validation_fraction": 0.2}
    hashes = {Protocol(**base).hash} | {
        Protocol(**(base | {k: v})).hash for k, v in CHANGES.items()
    }
    assert len(hashes) == len(CHANGES) + 1


def test_hash_tells_seeds_shares_and_presets_apart():
    protocols = [
        *PROTOCOLS.values(),
        Protocol(),
        Protocol(order="random:1"),
        Protocol(order="random:2"),
        Protocol(split_seed=1),
        Protocol(split_seed=2),
        Protocol(test_share=(0.3, 0.4)),
        Protocol(test_share=(0.4, 0.3)),
    ]
    assert len({protocol.hash for protocol in protocols}) == len(protocols)


def test_hash_does_not_depend_on_how_values_were_written():
    written = parse(Protocol, {"test_share": ["0.3", 0.5], "classes_per_task": "3"})
    assert written.hash == Protocol(classes_per_task=3, test_share=(0.3, 0.5)).hash


@given(
    share=st.floats(0.01, 0.99),
    split_seed=st.none() | st.integers(0, 2**40),
    seed=st.integers(0, 2**40),
)
def test_hash_survives_writing_and_reading(share, split_seed, seed):
    protocol = Protocol(order=f"random:{seed}", test_share=share, split_seed=split_seed)
    assert Protocol.model_validate_json(protocol.model_dump_json()).hash == protocol.hash
    assert parse(Protocol, protocol.model_dump()).hash == protocol.hash


def test_hash_is_stable_across_processes():
    code = (
        "from evergraph.stream.protocol import PROTOCOLS; "
        "print(*(p.hash for p in PROTOCOLS.values()))"
    )
    environment = os.environ | {"PYTHONHASHSEED": "12345"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [protocol.hash for protocol in PROTOCOLS.values()]
