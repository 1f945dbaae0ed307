"""Attention, dropout, sparse products, distances: plain, and compiled for CPU and CUDA.

``ops`` and ``attention`` are what other packages call. ``cpu`` holds
numba's kernels, ``cuda`` launches those of ``triton_kernels``; both are imported when first needed.
"""

from evergraph.kernels.ops import has_kernels, kernels

__all__ = ["has_kernels", "kernels"]
