"""Give memory that was freed in between back to the system."""

from __future__ import annotations

import ctypes


def trim_heap() -> None:
    """Return the heap's free pages to the system; does nothing where the C library cannot.

    Weights up to 32 MB come from the C library's heap, and what a layer frees while it takes its
    final form is cut up by what follows: without this a third of a small model is held for nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)
