"""Let threads that compute for files leave the processor to the engine's where both want it."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress

_NICER = 10


def step_back() -> None:
    """Make the calling thread nicer than its process; where threads cannot be, nothing happens.

    For threads that compute in libraries without holding the interpreter: one that held it and got
    no time would stop the engine as well.
    """
    if sys.platform != "linux":  # elsewhere this number is the whole process's
        return
    own = threading.get_native_id()
    with suppress(OSError):  # a sandbox may forbid it, and storing goes on all the same
        os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + _NICER)
