"""Triton kernels of a decode step, each beside the plain torch form that specifies it.

Nothing here imports triton: a module with kernels is imported only where `is_available` says yes.
"""

from synth.engine.kernels.launch import is_available, why_unavailable

__all__ = ["is_available", "why_unavailable"]
