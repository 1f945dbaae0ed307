"""Errors: one sentence that names what is wrong and what to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evergraph.errors import InputError, one_line, unknown_name

NAMES = ["replay", "dslr", "joint"]


def test_input_error_is_a_value_error():
    with pytest.raises(ValueError, match=r"^Expected"):
        raise InputError("Expected 'tau' in [0, 1] (got 1.7); change its value.")


def test_unknown_name_suggests_the_nearest():
    error = unknown_name("method", "dlsr", NAMES)
    assert isinstance(error, InputError)
    assert str(error) == "Unknown method 'dlsr': did you mean 'dslr'?"


def test_unknown_name_lists_all_sorted_when_nothing_is_near():
    error = unknown_name("method", "xyzzy", iter(NAMES))
    assert str(error) == "Unknown method 'xyzzy': choose one of dslr, joint, replay."


@given(name=st.text(max_size=12), known=st.lists(st.text("abcde", min_size=1), min_size=1))
def test_unknown_name_always_names_the_input_and_a_known_name(name, known):
    text = str(unknown_name("dataset", name, known))
    begin = one_line(f"Unknown dataset '{name}': ")
    assert text.startswith(begin)
    hint = text.removeprefix(begin)
    assert any(candidate in hint for candidate in known)


def test_input_error_stays_one_line_whatever_a_file_put_into_it():
    assert str(InputError("a\nb\x00\ud800 ä")) == "a\\nb\\x00\\ud800 ä"
    long = str(InputError("x" * 5000 + "; change it."))
    assert len(long) < 1010
    assert long.endswith("; change it.")
