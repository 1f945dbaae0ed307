"""Team: the workers that share one job, and what they tell each other.

Every worker runs the same program and meets the others here: sums, rows that another one holds,
decisions of the first. A team of one answers itself, so that nothing else asks how many there are.
PyTorch's process groups do the work; what they carry are tensors, never pickled objects.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor

from evergraph.errors import InputError
from evergraph.files import pack, unpack
from evergraph.launch import RESTART, VERDICT


class Rows(Protocol):
    """Whatever gives rows like a tensor."""

    def __getitem__(self, rows: Any, /) -> Tensor: ...


#: How long workers wait for each other; one that died is noticed earlier.
PATIENCE = timedelta(minutes=30)


@dataclass(frozen=True)
class Team:
    """One of ``size`` workers; the first one, 0, leads: it decides, writes and speaks."""

    rank: int = 0
    size: int = 1

    @classmethod
    def join(cls, environment: Mapping[str, str] = os.environ) -> Team:
        """Joins the workers that were started together, as ``torchrun`` tells; alone without."""
        size = int(environment.get("WORLD_SIZE", "1"))
        if size == 1:
            return ALONE
        dist: Any = torch.distributed
        from torch.distributed.rendezvous import rendezvous  # noqa: PLC0415 - for several workers

        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            try:
                found, rank, size = next(rendezvous("env://", timeout=PATIENCE))
                # Addresses of workers that were lost may still be there: each attempt has its own.
                store = dist.PrefixStore(f"attempt {environment.get(RESTART, '0')}", found)
                how = {"store": store, "rank": rank, "world_size": size}
                dist.init_process_group(backend, timeout=PATIENCE, **how)
            except (RuntimeError, ValueError) as error:
                if VERDICT in environment:
                    raise  # whoever started the workers tries again
                place = f"{environment.get('MASTER_ADDR')}:{environment.get('MASTER_PORT')}"
                reason = str(error).partition("\n")[0]
                raise InputError(
                    f"Expected to meet {size - 1} other workers at '{place}' (got: {reason}); "
                    "check the address and that all workers were started."
                ) from None
        return cls(dist.get_rank(), dist.get_world_size())

    def leave(self) -> None:
        """Waits for the others before this process ends: without it the last ones would be lost.

        All work is done by then, so that it is no fault if another one is gone already. The process
        group ends with the process: to destroy it, or to let Python do so, may abort.
        """
        if self.size > 1:
            with suppress(RuntimeError):
                torch.distributed.barrier()

    @property
    def leads(self) -> bool:
        """Whether this worker is the first."""
        return self.rank == 0

    def wait(self) -> None:
        """Waits until all workers are here."""
        self.sum(torch.zeros(1))

    def sum(self, tensor: Tensor) -> Tensor:
        """Adds up what all workers have, in place."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def pick(self, rows: Rows, at: Tensor) -> Tensor:
        """Returns rows that one worker each holds: ``at`` is their place here, −1 elsewhere."""
        if self.size == 1:
            return rows[at]
        own = rows[at[here := at >= 0]]
        found = own.new_zeros(at.numel(), *own.shape[1:])
        found[here] = own
        return self.sum(found)

    def gather(self, rows: Tensor) -> Tensor:
        """Puts the rows of all workers one below the other, ``[sum of m, ...]``."""
        if self.size == 1:
            return rows
        counts = torch.zeros(self.size, dtype=torch.int64, device=rows.device)
        counts[self.rank] = rows.shape[0]
        numbers = self.sum(counts).tolist()
        most = max(numbers)  # all send as many
        sent = torch.cat([rows, rows.new_zeros(most - rows.shape[0], *rows.shape[1:])])
        parts = [torch.empty_like(sent) for _ in numbers]
        torch.distributed.all_gather(parts, sent)
        return torch.cat([part[:count] for part, count in zip(parts, numbers, strict=True)])

    def tell(self, content: Any, teller: int = 0) -> Any:
        """Returns what one worker has to say, nested tensors and plain values, to all of them."""
        if self.size == 1:
            return content
        said = torch.empty(0, dtype=torch.uint8)
        if self.rank == teller:
            said = torch.frombuffer(bytearray(pack(content)), dtype=torch.uint8)
        length = torch.tensor([said.numel()])
        torch.distributed.broadcast(length, teller)
        said = said if self.rank == teller else said.new_empty(int(length))
        torch.distributed.broadcast(said, teller)
        return content if self.rank == teller else unpack(said.numpy().tobytes())

    def ask(self, owners: Tensor, rows: Tensor, answer: Callable[[Tensor], Tensor]) -> Tensor:
        """Asks the owner of each row for it; ``answer`` gives the rows that others ask for.

        All workers ask at the same time, each as much as it likes.
        """
        if self.size == 1:
            return answer(rows)
        exchange, order = torch.distributed.all_to_all_single, torch.argsort(owners, stable=True)
        asked = torch.bincount(owners, minlength=self.size)
        wanted = torch.empty_like(asked)
        exchange(wanted, asked)
        theirs = rows.new_empty(int(wanted.sum()))
        exchange(theirs, rows[order], wanted.tolist(), asked.tolist())
        given = answer(theirs).contiguous()
        found = given.new_empty(rows.numel(), *given.shape[1:])
        exchange(found, given, asked.tolist(), wanted.tolist())
        back = torch.empty_like(found)
        back[order] = found
        return back

    def share(self, rows: Tensor) -> Tensor:
        """Returns this worker's share of rows that all have, in order."""
        return rows.tensor_split(self.size)[self.rank]


#: Nobody else.
ALONE = Team()
