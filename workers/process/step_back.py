"""Let the threads that serve an engine leave the processor to its own where both want it."""

from __future__ import annotations

import enum
import os
import sys
import threading
from contextlib import suppress


class Nicer(enum.IntEnum):
    """By how much a thread is nicer than its process."""

    SERVING = 10  # a tenth of a core at least, on a machine with as much to do as it can
    SPARE = 19  # next to nothing there: somebody has to help


def step_back(nicer: Nicer) -> None:
    """Make the calling thread nicer than its process; where threads cannot be, nothing happens.

    Not for threads that must be on time, such as the heartbeat, nor for such as start others, which
    begin as nice as they. One that holds the interpreter gets its time nevertheless: an engine's
    thread that waits for the interpreter sleeps, and so frees its core.
    """
    if sys.platform != "linux":  # elsewhere this number is the whole process's
        return
    niceness = os.getpriority(os.PRIO_PROCESS, os.getpid()) + nicer  # of the main thread
    with suppress(OSError):  # a sandbox may forbid it, and storing goes on all the same
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
