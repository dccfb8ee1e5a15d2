"""Give a worker process a name that no other living process on this host has, and tell by it
which processes of this host have ended.
"""

from __future__ import annotations

import fcntl
import os
import platform
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

FOLDER = "workers"  # in the data folder
TRIES, TRY_SECONDS = 40, 0.05  # whoever frees what an ended process held has its lock meanwhile
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,100}")


class NameTakenError(Exception):
    """Another living worker has the name, or it cannot be one."""


class NameLock:
    """Hold a worker's name by a locked file; the lock ends with the process, however it ends."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name, self._descriptor = name, descriptor

    def note(self, start: str) -> None:
        """Write which start of the worker holds the name, for `held_if_ended`."""
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, start.encode(), 0)

    def release(self) -> None:
        """Give the name up."""
        os.close(self._descriptor)


def default_name(role: str) -> str:
    """Return the name of this host's first worker of a role; `TTS_WORKER_NAME` names the host."""
    host = settings.WORKER_NAME or platform.node().split(".")[0] or "worker"
    return f"{host}-{role}"


def lock_name(folder: Path, name: str, *, is_fixed: bool) -> NameLock:
    """Lock `name`, or, if it may change, the first free one of name, name-2, name-3 and so on.

    A name that stays the same over restarts lets a worker free what it held before a crash.

    Raises:
        NameTakenError: a fixed name is taken, or has other characters than A-Z a-z 0-9 . _ @ -
    """
    if not _NAME.fullmatch(name):
        raise NameTakenError(
            f"{name!r} is not a valid name of a worker; use letters, digits and . _ @ - (at "
            "most 100 characters)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        candidate = name if number == 1 else f"{name}-{number}"
        descriptor = os.open(folder / f"{candidate}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        if _is_locked(descriptor, tries=TRIES if is_fixed else 1):
            return NameLock(candidate, descriptor)
        os.close(descriptor)
        if is_fixed:
            raise NameTakenError(
                f"a worker named {name!r} is already running; stop it, or give this one "
                "another name"
            )
        number += 1


@contextmanager
def held_if_ended(folder: Path, name: str, start: str) -> Iterator[bool]:
    """Give whether the process that noted this start under its name ran here and is gone.

    If so, no other process gets the name before the `with` block ends. False may also mean that it
    ran on another host.
    """
    try:
        descriptor = os.open(folder / f"{name}.lock", os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        yield _is_free(descriptor, start)
    finally:
        os.close(descriptor)


def _is_free(descriptor: int, start: str) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return os.read(descriptor, 200).decode(errors="replace") == start


def _is_locked(descriptor: int, *, tries: int) -> bool:
    """Lock a file; False where another process has it."""
    for attempt in range(tries):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt < tries - 1:
                time.sleep(TRY_SECONDS)
    return False
