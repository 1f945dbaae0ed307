"""Pattern: which rows a row reads, prepared once in the forms that kernels want."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

#: Shares of about equal work that threads take rows in.
BLOCKS = 64
#: Most edges that one GPU program sums; longer rows are cut.
CHUNK = 256


@dataclass(frozen=True)
class Pattern:
    """CSR: row ``i`` reads ``columns[indptr[i]:indptr[i + 1]]``."""

    indptr: Tensor  # [n + 1] int64
    columns: Tensor  # [E] int32

    @property
    def num_rows(self) -> int:
        """Counts the rows."""
        return self.indptr.numel() - 1

    @cached_property
    def blocks(self) -> Tensor:
        """Cuts the rows into runs of about equally many edges and rows, ``[BLOCKS + 1]``."""
        n = self.num_rows
        work = self.indptr + torch.arange(n + 1, device=self.indptr.device)
        shares = torch.arange(BLOCKS + 1, device=self.indptr.device) * int(work[-1]) // BLOCKS
        return torch.searchsorted(work, shares)

    @cached_property
    def chunks(self) -> Chunks:
        """Cuts long rows for GPU programs; see :class:`Chunks`."""
        device = self.indptr.device
        begin, degree = self.indptr[:-1], self.indptr[1:] - self.indptr[:-1]
        counts = torch.div(degree + CHUNK - 1, CHUNK, rounding_mode="floor").clamp_(min=1)
        owner = torch.repeat_interleave(torch.arange(self.num_rows, device=device), counts)
        rank = (
            torch.arange(owner.numel(), device=device) - (torch.cumsum(counts, 0) - counts)[owner]
        )
        first = begin[owner] + CHUNK * rank
        last = torch.minimum(first + CHUNK, self.indptr[1:][owner])
        cut = counts > 1
        part_of = cut[owner]
        slot = torch.where(part_of, torch.cumsum(part_of, 0) - 1, -1)
        hubs = torch.nonzero(cut).flatten()
        parts = torch.zeros(hubs.numel() + 1, dtype=torch.int64, device=device)
        torch.cumsum(counts[hubs], 0, out=parts[1:])
        return Chunks(first, last, owner, slot, hubs, parts, int(parts[-1]))


@dataclass(frozen=True)
class Chunks:
    """Rows cut into chunks of at most :data:`CHUNK` edges; a row without edges has an empty one.

    A row of one chunk is finished by the program that sums it. The chunks of longer rows
    ("hubs") are summed side by side into slots, and a second program adds a hub's slots up.
    """

    first: Tensor  # [c] first edge
    last: Tensor  # [c] one past the last edge
    owner: Tensor  # [c] row
    slot: Tensor  # [c] where the part of a hub goes, -1 for a row of one chunk
    hubs: Tensor  # [k] rows of several chunks
    parts: Tensor  # [k + 1] pointer of hubs into slots
    num_slots: int
