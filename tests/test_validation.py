"""Validation: the first failure of a configuration as one sentence."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from evergraph.errors import InputError, one_line
from evergraph.stream import Protocol
from evergraph.validation import Config, parse


class Example(Config):
    tau: float = Field(default=0.8, ge=0, le=1)
    share: float = Field(default=0.5, gt=0, lt=1)
    lr: float = Field(default=0.005, gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    num_neighbors: int = Field(default=5, ge=0)
    ceiling: int = Field(default=0, le=9)
    below: float = Field(default=0, lt=2)
    scale: float = 1.0
    kind: Literal["cosine", "dot"] = "cosine"
    flags: tuple[bool, ...] = ()


class Required(Config):
    buffer_size: int = Field(ge=1)


def sentence(cls: type[Config], **values: object) -> str:
    with pytest.raises(InputError) as caught:
        parse(cls, values)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"tau": 1.7}, "Expected 'tau' in [0, 1] (got 1.7)"),
        ({"tau": -0.1}, "Expected 'tau' in [0, 1] (got -0.1)"),
        ({"share": 1}, "Expected 'share' in (0, 1) (got 1)"),
        ({"dropout": 1.0}, "Expected 'dropout' in [0, 1) (got 1.0)"),
        ({"lr": 0}, "Expected 'lr' above 0 (got 0)"),
        ({"num_neighbors": -1}, "Expected 'num_neighbors' as an integer of at least 0 (got -1)"),
        ({"ceiling": 10}, "Expected 'ceiling' as an integer of at most 9 (got 10)"),
        ({"below": 2}, "Expected 'below' below 2 (got 2)"),
    ],
)
def test_parse_out_of_range_states_the_interval_and_the_value(values, expected):
    assert sentence(Example, **values) == f"{expected}; change its value."


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"tau": "high"}, "Expected 'tau' in [0, 1] (got 'high')"),
        ({"num_neighbors": 2.5}, "Expected 'num_neighbors' as an integer of at least 0 (got 2.5)"),
        (
            {"num_neighbors": None},
            "Expected 'num_neighbors' as an integer of at least 0 (got None)",
        ),
        ({"kind": "cos"}, "Expected 'kind' to be 'cosine' or 'dot' (got 'cos')"),
        ({"scale": []}, "Expected 'scale' to be a valid number (got [])"),
    ],
)
def test_parse_wrong_type_states_what_is_expected(values, expected):
    assert sentence(Example, **values) == f"{expected}; change its value."


def test_parse_wrong_entry_of_a_tuple_names_the_field():
    text = sentence(Example, flags=[True, "perhaps"])
    assert text.startswith("Expected 'flags[1]' to be a valid boolean")
    assert "(got 'perhaps')" in text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("key", ["tau", "scale"])
def test_parse_refuses_nan_and_infinity(key, value):
    assert f"Expected '{key}'" in sentence(Example, **{key: value})


def test_parse_unknown_key_suggests_the_nearest():
    text = sentence(Example, num_neighbours=3)
    assert text == "Unknown key 'num_neighbours': did you mean 'num_neighbors'?"


def test_parse_unknown_key_lists_the_keys_when_nothing_is_near():
    assert sentence(Required, q=3) != ""
    assert sentence(Example, xyzzy=3).endswith(
        "choose one of below, ceiling, dropout, flags, kind, lr, num_neighbors, scale, share, tau."
    )


def test_parse_missing_value_says_which():
    text = sentence(Required)
    assert text == "Expected a value for 'buffer_size' (got none); add it."


def test_parse_hides_the_validation_error_behind_the_sentence():
    with pytest.raises(InputError) as caught:
        parse(Example, {"tau": 2})
    assert caught.value.__suppress_context__


def test_parse_reads_numbers_written_as_text():
    config = parse(Example, {"tau": "0.25", "num_neighbors": "3"})
    assert (config.tau, config.num_neighbors) == (0.25, 3)


def test_config_is_frozen():
    config = Example()
    with pytest.raises(ValidationError, match="frozen"):
        config.tau = 0.5


def test_parse_leaves_its_argument_alone():
    values = {"tau": "0.5"}
    parse(Example, values)
    assert values == {"tau": "0.5"}


@given(tau=st.floats(allow_nan=False, allow_infinity=False))
def test_parse_accepts_exactly_the_interval(tau):
    if 0 <= tau <= 1:
        assert parse(Example, {"tau": tau}).tau == tau
    else:
        assert f"(got {tau!r})" in sentence(Example, tau=tau)


@given(key=st.text(min_size=1, max_size=15))
def test_parse_refuses_every_unknown_key(key):
    assume(key not in Example.model_fields)
    assert sentence(Example, **{key: 1}).startswith(one_line(f"Unknown key '{key}': "))


@pytest.mark.parametrize("value", [2**63, -(10**30)])
def test_numbers_that_no_tensor_holds_are_refused(value: int):
    with pytest.raises(InputError, match=r"Expected 'classes_per_task' below 2\^63 \(got"):
        parse(Protocol, {"classes_per_task": value})
