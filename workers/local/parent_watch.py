"""Run a module of ours in a process that ends when its parent does, however the parent ended.

As `python -m workers.local.parent_watch PARENT_PID GRACE_SECONDS MODULE ARGUMENTS...`. One that is
killed can't stop its children; here the child looks whether it still has the parent it was made by.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import time

LOOK_EVERY_SECONDS = 0.5


def main() -> None:
    """Run the module that the arguments name, as its own command line would."""
    parent, grace_seconds, module = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    threading.Thread(
        target=_end_with_parent, args=(parent, grace_seconds), name="parent watch", daemon=True
    ).start()
    sys.argv = [module, *sys.argv[4:]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with_parent(parent: int, grace_seconds: float) -> None:
    """Ask this process to stop once `parent` is gone, and end it when it did not in time."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    os._exit(1)


if __name__ == "__main__":
    main()
