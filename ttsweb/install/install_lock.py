"""Run a command while holding a lock, so that two first runs of `./tts` do not mix.

Usage: install_lock.py LOCK_FILE PROGRAM [ARGUMENTS]. Only the standard library is imported.
"""

import fcntl
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def lock_and_run(lock_file: Path, command: Sequence[str]) -> None:
    """Wait for the lock, then become `command`, which keeps it until it and its children end.

    The kernel frees the lock when its last holder ends, however that happens; a lock file that
    lies about means nothing.
    """
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.stderr.write("Waiting for another installation to finish\n")
        sys.stderr.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
    os.set_inheritable(lock, True)
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    lock_and_run(Path(sys.argv[1]), sys.argv[2:])
