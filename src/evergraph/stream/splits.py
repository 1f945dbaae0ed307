"""Which classes are kept, in which order, and which of their nodes train and test."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.rng import make_generator
from evergraph.stream.graph import Graph
from evergraph.stream.protocol import Protocol


class Split(NamedTuple):
    """Disjoint node sets, each ascending."""

    train: Tensor
    validation: Tensor
    test: Tensor


def choose_classes(graph: Graph, protocol: Protocol) -> list[int]:
    """Lists the original labels of the classes kept, in order of arrival."""
    sizes = torch.bincount(graph.y, minlength=len(graph.class_names)).tolist()
    kept = [c for c, size in enumerate(sizes) if size > max(protocol.min_class_size, 0)]
    if protocol.max_classes is not None:
        largest = sorted(kept, key=lambda c: (-sizes[c], c))[: protocol.max_classes]
        kept = sorted(largest)
    if not kept:
        raise InputError(
            f"Expected 'min_class_size' to leave a class of '{graph.name}' (got "
            f"{protocol.min_class_size}, largest class {max(sizes)}); lower it."
        )
    if protocol.order == "alphabetical":
        kept.sort(key=lambda c: graph.class_names[c].encode())
    elif protocol.order.startswith("random:"):
        seed = int(protocol.order.removeprefix("random:"))
        shuffle = torch.randperm(len(kept), generator=make_generator(seed, "class order"))
        kept = [kept[i] for i in shuffle.tolist()]
    return kept


def split_nodes(
    labels: Tensor,
    original_ids: Tensor,
    kept: list[int],
    protocol: Protocol,
    generator: torch.Generator,
) -> Split:
    """Draws test nodes by share, then validation nodes per class from the rest.

    Args:
        labels: Class of each node in order of arrival, ``[n]``.
        original_ids: Original id of each node; the draw depends on these and not on the
            order of classes, ``[n]``.
        kept: Original label of each class in order of arrival.
        protocol: Shares and validation fraction.
        generator: Source of the draw.
    """
    # Draw in the order of original ids, so that another class order keeps the same split.
    by_id = torch.argsort(original_ids)
    shuffled = by_id[torch.randperm(by_id.numel(), generator=generator)]
    test, rest = [], []
    for pool, share in _pools(kept, protocol):
        members = shuffled[torch.isin(labels[shuffled], torch.tensor(pool))]
        cut = round(share * members.numel())
        test.append(members[:cut])
        rest.append(members[cut:])
    train = torch.cat(rest)
    validation = [torch.empty(0, dtype=torch.int64)]
    if protocol.validation_fraction:
        for label in range(len(kept)):
            members = train[labels[train] == label]
            count = max(1, round(protocol.validation_fraction * members.numel()))
            validation.append(members[: min(count, members.numel())])
    held_out = torch.cat(validation)
    train = train[~torch.isin(train, held_out)]
    return Split(*(torch.sort(part).values for part in (train, held_out, torch.cat(test))))


def _pools(kept: list[int], protocol: Protocol) -> list[tuple[list[int], float]]:
    """Groups classes whose test nodes are drawn together, with their share, by label."""
    share = protocol.test_share
    shares = [share] * len(kept) if isinstance(share, float) else list(share)
    if len(shares) != len(kept):
        raise InputError(
            f"Expected 'test_share' as one number or {len(kept)}, one per kept class "
            f"(got {len(shares)}); correct the list."
        )
    arrival = sorted(range(len(kept)), key=lambda position: kept[position])
    by_label = list(zip(arrival, shares, strict=True))
    if not protocol.pooled:
        return [([position], value) for position, value in by_label]
    return [
        ([position for position, other in by_label if other == value], value)
        for value in dict.fromkeys(shares)
    ]
