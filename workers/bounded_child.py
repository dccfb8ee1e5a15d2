"""What child processes share that read the files of strangers: limits, and what ended them.

A child imports this module, so it imports nothing large.
"""

from __future__ import annotations

import contextlib
import errno
import json
import resource
import subprocess
from collections.abc import Callable
from typing import Any

_SIGXCPU = 24


def set_limits(memory_bytes: int, cpu_seconds: int, output_bytes: int, *, open_files: int) -> None:
    """Bound this process: address space, processor time, size of a written file, open files."""
    with contextlib.suppress(ValueError, OSError):  # macOS has no limit of address space
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (output_bytes, output_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))


def read_answer(
    ended: subprocess.CompletedProcess[bytes],
    refuse: Callable[[str, str], Exception],
    *,
    memory: str,
    timeout: str,
    unreadable: str,
) -> dict[str, Any]:
    """Return a child's answer; name what a child died of that could not answer any more.

    Args:
        refuse: makes an error of a code and a message, which may be empty.
        memory, timeout, unreadable: the codes of what a child may die of.

    Raises:
        OSError: the disk is full.
        Exception: what `refuse` makes.
    """
    if ended.returncode != 0:
        report = ended.stderr[-20_000:]
        if b"No space left on device" in report or b"Errno 28" in report:
            raise OSError(errno.ENOSPC, "no space left for what a child process writes")
        if ended.returncode == -_SIGXCPU:
            raise refuse(timeout, "")
        is_memory = b"MemoryError" in report or b"Cannot allocate memory" in report
        raise refuse(memory if is_memory else unreadable, "")
    answer: dict[str, Any] = json.loads(ended.stdout)
    if "error" in answer:
        raise refuse(str(answer["error"]), answer["message"])
    return answer
