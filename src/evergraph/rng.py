"""Randomness: every generator is derived from one seed and a purpose, none is global."""

from __future__ import annotations

import hashlib

import torch


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Hashes a seed and a purpose into an independent 63-bit seed."""
    digest = hashlib.sha256(repr((seed, *purpose)).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def make_generator(
    seed: int, *purpose: str | int, device: torch.device | str = "cpu"
) -> torch.Generator:
    """Returns a fresh generator for one purpose, the same for the same arguments."""
    return torch.Generator(device=device).manual_seed(derive_seed(seed, *purpose))
