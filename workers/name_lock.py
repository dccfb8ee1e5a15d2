"""Give a worker process a name that no other living process on this host has."""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")


class NameTakenError(Exception):
    """Another living worker has the name, or it cannot be one."""


class NameLock:
    """Hold a worker's name by a locked file; the lock ends with the process, however it ends."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name, self._descriptor = name, descriptor

    def release(self) -> None:
        """Give the name up."""
        os.close(self._descriptor)


def lock_name(folder: Path, name: str, *, is_fixed: bool) -> NameLock:
    """Lock `name`, or, if it may change, the first free one of name, name-2, name-3 and so on.

    A name that stays the same over restarts lets a worker free what it held before a crash.

    Raises:
        NameTakenError: a fixed name is taken, or has other characters than A-Z a-z 0-9 . _ @ -
    """
    if not _NAME.fullmatch(name):
        raise NameTakenError(
            f"{name!r} cannot be a worker's name: use letters, digits and . _ @ - (100 at most)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        candidate = name if number == 1 else f"{name}-{number}"
        descriptor = os.open(folder / f"{candidate}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            if is_fixed:
                raise NameTakenError(
                    f"a worker named {name!r} runs already: stop it, or give this one another name"
                ) from None
            number += 1
            continue
        return NameLock(candidate, descriptor)
