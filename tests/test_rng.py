"""Randomness: one seed, many independent purposes, no global state."""

from __future__ import annotations

import hashlib

import torch
from hypothesis import given
from hypothesis import strategies as st

from evergraph.device import derive_seed, make_generator

SEEDS = st.integers(0, 2**31)
PURPOSES = st.lists(st.text("abcdefgh ", min_size=1, max_size=6), max_size=3)


def draw(seed: int, *purpose: str | int) -> list[int]:
    return torch.randint(0, 2**31, (8,), generator=make_generator(seed, *purpose)).tolist()


def test_derive_seed_is_the_hash_of_seed_and_purpose():
    digest = hashlib.sha256(b"(7, 'split')").hexdigest()
    assert derive_seed(7, "split") == int(digest[:16], 16) // 2


def test_derive_seed_tells_neighbouring_seeds_and_purposes_apart():
    seeds = {derive_seed(seed, "epoch", epoch) for seed in range(20) for epoch in range(50)}
    assert len(seeds) == 20 * 50
    assert derive_seed(1, 23) != derive_seed(12, 3)


@given(seed=SEEDS, purpose=PURPOSES)
def test_derive_seed_fits_a_torch_seed(seed, purpose):
    assert 0 <= derive_seed(seed, *purpose) < 2**63


@given(seed=SEEDS, purpose=PURPOSES)
def test_make_generator_repeats_for_the_same_arguments(seed, purpose):
    assert draw(seed, *purpose) == draw(seed, *purpose)


def test_make_generator_purposes_are_independent():
    draws = [draw(0, "split"), draw(0, "init"), draw(1, "split"), draw(0, "split", 1), draw(0)]
    assert len({tuple(numbers) for numbers in draws}) == len(draws)


def test_make_generator_draws_are_uncorrelated_between_purposes():
    n = 20_000
    first = torch.randn(n, generator=make_generator(0, "a"))
    second = torch.randn(n, generator=make_generator(0, "b"))
    # The correlation of independent samples has standard deviation 1/√n = 0.007.
    assert abs(float((first * second).mean())) < 0.05


def test_make_generator_use_of_one_leaves_the_others_alone():
    expected = draw(0, "init")
    init = make_generator(0, "init")
    torch.rand(100, generator=make_generator(0, "split"))
    assert torch.randint(0, 2**31, (8,), generator=init).tolist() == expected


def test_make_generator_neither_reads_nor_moves_the_global_state():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    expected = draw(3, "split")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert draw(3, "split") == expected
