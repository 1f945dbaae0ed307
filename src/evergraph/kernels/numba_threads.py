"""What the numba kernels share: threads, precision and views of tensors."""

from __future__ import annotations

import threading
from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

#: What compiled code is given: views of tensors, and numbers of their precision.
Array = np.ndarray[Any, np.dtype[Any]]
Number = Any  # NumPy's scalars have no common type that arithmetic keeps

#: Reordering inside a row is allowed; infinities and NaN keep their meaning.
FAST = {"contract", "reassoc", "nsz", "arcp"}
#: numba's own thread pool serves one caller at a time.
_pool = threading.Lock()
_told = threading.local()  # how many threads numba was told to use, which it keeps by thread
_MOST_THREADS: int = vars(numba.config)["NUMBA_NUM_THREADS"]


def run(kernel: Any, *arguments: Any) -> None:
    """Calls a compiled kernel with as many threads as PyTorch uses."""
    threads = torch.get_num_threads()
    with _pool:
        if getattr(_told, "threads", None) != threads:
            numba.set_num_threads(min(threads, _MOST_THREADS))
            _told.threads = threads
        kernel(*arguments)
    if torch.get_num_threads() != threads:
        # Both may share one OpenMP, whose number of threads numba sets when it starts.
        torch.set_num_threads(threads)


def view(tensor: Tensor) -> Any:
    """Shares a tensor's memory with the compiled code."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    return tensor.contiguous().numpy()


def scalar(value: float, like: Tensor) -> Any:
    """Gives a number the precision of the rows, so that nothing is computed wider."""
    return np.float64(value) if like.dtype == torch.float64 else np.float32(value)
