"""Run child processes that read the files of strangers: bounded, asked and answering in JSON.

A child imports this module, so it imports nothing large.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from synth.contract import CodedError

PROJECT_DIR = Path(__file__).resolve().parents[1]
LOOK_SECONDS = 0.5
# Of the seconds that a child may take. One that had less of the processor in its time was kept from
# it by others; files that can be read take a twentieth.
LEAST_PROCESSOR_SHARE = 0.5
_SIGXCPU = 24
# One thread: every OpenBLAS thread would reserve address space, which is what we limit.
_ENVIRONMENT = {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class StarvedError(CodedError):
    """A child's time was over and it had hardly had the processor: another attempt may pass."""

    retryable = True

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Limits(NamedTuple):
    """Bound a child: seconds of wall and processor time, MiB of memory, bytes of a written file."""

    seconds: float
    megabytes: int
    output_bytes: int


class Ends(NamedTuple):
    """Say what is told of a child that could not answer: a code and a sentence for each end."""

    memory: tuple[str, str]
    timeout: tuple[str, str]
    unreadable: tuple[str, str]


def run_child(
    module: str,
    request: dict[str, Any],
    limits: Limits,
    ends: Ends,
    refuse: Callable[[str, str], Exception],
    *,
    check_wanted: Callable[[], object] = lambda: None,
) -> dict[str, Any]:
    """Return what a module answers to a request in a process of its own, without an environment.

    Args:
        refuse: makes an error of a code and a message.
        check_wanted: called twice a second; what it raises ends the child and is raised here.

    Raises:
        OSError: the disk is full, or no process could be started; try again later.
        StarvedError: it was too slow since others had the processor; code and message of a timeout.
        Exception: what `refuse` makes.
    """
    bounds = {
        "memory_bytes": limits.megabytes << 20,
        "cpu_seconds": math.ceil(limits.seconds),
        "output_bytes": limits.output_bytes,
    }
    ended = _run(module, json.dumps(request | bounds).encode(), limits.seconds, check_wanted)
    if isinstance(ended, float):
        is_starved = ended < LEAST_PROCESSOR_SHARE * limits.seconds
        raise (StarvedError if is_starved else refuse)(*ends.timeout)
    if ended.returncode != 0:
        report = ended.stderr[-20_000:]
        if b"No space left on device" in report or b"Errno 28" in report:
            raise OSError(errno.ENOSPC, "no space left for what a child process writes")
        if ended.returncode == -_SIGXCPU:
            raise refuse(*ends.timeout)
        is_memory = b"MemoryError" in report or b"Cannot allocate memory" in report
        raise refuse(*(ends.memory if is_memory else ends.unreadable))
    answer: dict[str, Any] = json.loads(ended.stdout)
    if "error" in answer:
        code = str(answer["error"])
        raise refuse(code, answer["message"] or dict(ends)[code])
    return answer


def _run(
    module: str, request: bytes, seconds: float, check_wanted: Callable[[], object]
) -> subprocess.CompletedProcess[bytes] | float:
    """Return how the child ended and what it wrote.

    Of one that was killed at its time, the seconds of the processor that it had.
    """
    command = [sys.executable, "-E", "-s", "-B", "-m", module]
    deadline, unsent = time.monotonic() + seconds, request
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PROJECT_DIR,
        env=_ENVIRONMENT,
    ) as child:
        try:
            while True:
                left = deadline - time.monotonic()
                try:
                    answer, report = child.communicate(unsent, timeout=min(LOOK_SECONDS, left))
                except subprocess.TimeoutExpired:
                    unsent = b""
                    if time.monotonic() >= deadline:
                        return _kill(child)
                    check_wanted()
                else:
                    return subprocess.CompletedProcess(command, child.returncode, answer, report)
        except BaseException:
            child.kill()
            raise


def _kill(child: subprocess.Popen[bytes]) -> float:
    """End a child and return the seconds of the processor that it had."""
    child.kill()
    _, status, usage = os.wait4(child.pid, 0)  # what `wait` finds does not say
    child.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def answer_request(answer: Callable[[dict[str, Any]], dict[str, Any]], *, open_files: int) -> int:
    """Answer the request on stdin, within its bounds; return the exit status."""
    request = json.load(sys.stdin)
    memory, seconds, output = (
        int(request[name]) for name in ("memory_bytes", "cpu_seconds", "output_bytes")
    )
    with contextlib.suppress(ValueError, OSError):  # macOS has no limit of address space
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (output, output))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    sys.stdout.write(json.dumps(answer(request)))
    return 0
