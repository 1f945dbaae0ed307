r"""Drift: how far the nodes seen before have moved since, on average.

When a graph grows, the rows of old nodes change and what was kept of them does not. The mean row
of all nodes seen, with or without a label, is taken at every task; at the next one the same nodes'
mean row is what it is on the larger graph. The difference is how far a row of arrival lies behind.
"""

from __future__ import annotations

import torch
from torch import Tensor

from evergraph.closed_form.features import RowSource


class Drift:
    """The mean row of the nodes seen by the last task; nothing of single nodes.

    Args:
        dtype: Precision that is kept.
    """

    def __init__(self, dtype: torch.dtype = torch.float64) -> None:
        self.dtype = dtype
        self.mean: Tensor | None = None  # [d]

    def since(self, source: RowSource, num_seen: int) -> Tensor | None:
        """Returns how far the nodes seen by then have moved, ``[d]``; None if it is not known."""
        if self.mean is None:
            return None
        return mean_row(source, num_seen) - self.mean.double()

    def look(self, source: RowSource, num_nodes: int) -> None:
        """Takes the mean row of all nodes seen by now."""
        self.mean = mean_row(source, num_nodes).to(self.dtype)

    def memory_bytes(self) -> int:
        """Counts the bytes of the mean."""
        return 0 if self.mean is None else self.mean.numel() * self.mean.element_size()


def mean_row(source: RowSource, count: int) -> Tensor:
    """Averages the rows of the first ``count`` nodes, ``[d]`` in double precision."""
    parts = {
        place.start: block[:count].mean(dim=0, dtype=torch.float64)
        for place, block in source.blocks()
    }
    return torch.cat([parts[start] for start in sorted(parts)])
