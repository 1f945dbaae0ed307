"""Randomness: every generator is derived from one seed and a purpose, none is global.

Where an even sample will do, there is one without any.
"""

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


def evenly_spaced(count: int, most: int, device: torch.device) -> torch.Tensor:
    """Returns at most so many of ``count`` places, evenly spaced."""
    return torch.arange(0, count, max(1, -(-count // most)), device=device)
