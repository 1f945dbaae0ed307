"""CUDA graphs: a step that always launches the same work is recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor

#: Steps that run as written before the recording: they allocate what later ones reuse.
WARM_UP = 3


@cache
def side_stream(device: torch.device) -> Any:
    """The one stream of a device that steps are recorded on.

    The matrix library keeps a workspace of 32 MB for every stream that has ever used it.
    """
    make_stream: Any = torch.cuda.Stream  # PyTorch leaves it without types
    return make_stream(device)


class RecordedStep:
    """Calls a step again and again; after a few calls CUDA replays it without Python.

    A small graph's step is some hundred kernels of microseconds each, so that launching them
    one by one costs far more than running them. The step must launch the same work on the same
    tensors every time, never wait for the device, and draw from the given generators alone.
    """

    def __init__(
        self,
        step: Callable[[], Tensor],
        device: torch.device,
        generators: Callable[[], Iterable[torch.Generator]],
    ) -> None:
        self.step = step
        self.device = device
        self.generators = generators
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.loss: Tensor | None = None

    def __call__(self) -> Tensor:
        """Does one step; the loss returned is overwritten by the next one."""
        self.calls += 1
        if self.calls <= WARM_UP:
            return self._warm_up()
        if self.graph is None:
            self._record()
        assert self.graph is not None
        assert self.loss is not None
        self.graph.replay()
        return self.loss

    def _warm_up(self) -> Tensor:
        """Runs the step on the stream that will record."""
        stream = side_stream(self.device)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self.step()
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _record(self) -> None:
        """Records the step; nothing runs until it is replayed."""
        graph = torch.cuda.CUDAGraph()
        for generator in self.generators():
            graph.register_generator_state(generator)
        with torch.cuda.graph(graph, stream=side_stream(self.device)):
            self.loss = self.step()
        self.graph = graph
