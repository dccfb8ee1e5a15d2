"""Say when memory that was freed goes back to the system."""

from __future__ import annotations

import ctypes
import os


def trim_heap() -> None:
    """Return the heap's free pages to the system; does nothing where the C library cannot.

    Weights up to 32 MB come from the C library's heap, and what a layer frees while it takes its
    final form is cut up by what follows: without this a third of a small model is held for nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names for them
_KEPT_BYTES = 128 * 2**20  # free at a heap's end
_MAPPED_BYTES = 32 * 2**20  # the largest bound there is: what takes more is mapped by itself
_OWN_CHOICES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def keep_heap() -> None:
    """Let this process keep what its heaps free, up to a bound; nothing where that is set already.

    Tensors between two layers are made and let go of all the time. By itself the C library gives
    their pages back and gets them anew, zeroed, each time: of the codec's time on a CPU that took a
    tenth, and while one thread waits for pages so do the others.
    """
    if any(os.environ.get(name) for name in _OWN_CHOICES):
        return
    choose = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc alone
    if choose is not None:
        choose(_TRIM_THRESHOLD, _KEPT_BYTES)
        choose(_MMAP_THRESHOLD, _MAPPED_BYTES)
