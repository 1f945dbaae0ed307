"""When nodes and edges came: times as stored become steps from 0, checked against the graph."""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.errors import InputError


def to_steps(
    name: str,
    time: Tensor,
    edge_time: Tensor | None,
    times: tuple[str, ...],
    *,
    stored: Tensor,
    clean: Tensor,
) -> tuple[Tensor, Tensor, tuple[str, ...]]:
    """Returns the step of every node ``[n]`` and clean edge ``[E]``, and what steps are called.

    An edge that is stored more than once is there from the earliest on; without ``edge_time``, from
    its later end on.

    Args:
        name: The graph's name, for errors.
        time: Places among ``times``, or any whole numbers without them.
        edge_time: The same of every stored edge.
        times: Names of the steps; () makes a step of each different number, and names it so.
        stored: Edges as stored, ``[2, S]``.
        clean: Edges without loops and copies, smaller end first, sorted, ``[2, E]``.
    """
    n, ends = int(time.numel()), time[stored.long()].amax(dim=0)
    edge_time = ends if edge_time is None else edge_time
    if edge_time.shape != ends.shape:
        raise InputError(
            f"Expected 'edge_time' with one time per stored edge, {ends.numel()} (got "
            f"{edge_time.numel()}); fix the times of '{name}'."
        )
    early = int((edge_time < ends).sum())
    if early:
        raise InputError(
            f"Expected every edge of '{name}' to come no earlier than both its ends (got {early} "
            "that do); correct 'edge_time'."
        )
    if not times:
        numbers, time = torch.unique(time, return_inverse=True)
        edge_time = torch.searchsorted(numbers, edge_time)  # what comes between comes with the next
        times = tuple(map(str, numbers.tolist()))
    for key, steps in (("time", time), ("edge_time", edge_time)):
        low, high = (int(steps.min()), int(steps.max())) if steps.numel() else (0, 0)
        if low < 0 or high >= len(times):
            raise InputError(
                f"Expected '{key}' of '{name}' in [0, {len(times) - 1}], a step that 'times' names "
                f"and that has nodes (got {low} to {high}); correct it."
            )
    first, second = stored.long().amin(dim=0), stored.long().amax(dim=0)
    proper = first != second
    place = torch.searchsorted(clean[0] * n + clean[1], (first * n + second)[proper])
    latest = torch.full((clean.shape[1],), len(times))
    return time, latest.scatter_reduce(0, place, edge_time[proper], "amin"), times
