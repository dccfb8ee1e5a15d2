"""Run a part in a process of its own, and go on without the step that breaks or stops it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from lab.gpu_check.records import FAILED, Records

DEVICE_LOST = 75  # exit code of a process whose CUDA context answers no more
_LOOK_SECONDS = 0.2
_START_SECONDS = 120  # imports, and the device's own start, before a step is begun


def watch(command: Sequence[str], records: Records, *, run: str, deadline: float) -> str | None:
    """Run `command`, over and over while it ends in the middle of a step; that step has failed.

    The command runs the steps that this run has not begun yet and ends with 0 behind the last.

    Args:
        run: the name of the run, as it stands in its records.
        deadline: of time.monotonic; a process that has begun no step by then is stopped.

    Returns:
        None, or what ended a process before it began any step.
    """
    while True:
        code, stopped = _run_once(command, records, run, deadline)
        if code == 0:
            return None
        record = records.begun(run)
        why = "took too long and was stopped" if stopped else _ending(code)
        if record is None and code == DEVICE_LOST:
            continue  # the step has said itself why it failed
        if record is None:
            return f"the process that runs the steps {why}"
        records.write({**record, "status": FAILED, "reason": why})


def _run_once(
    command: Sequence[str], records: Records, run: str, deadline: float
) -> tuple[int, bool]:
    """Return the exit code of one process and whether it was stopped for its time."""
    latest = max(deadline, time.monotonic()) + _START_SECONDS
    with _group(command) as child:
        while child.poll() is None:
            record = records.begun(run)
            if time.monotonic() > (record["ends_by"] if record else latest):
                return -signal.SIGKILL, True
            time.sleep(_LOOK_SECONDS)
        return child.returncode, False


@contextmanager
def _group(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process in a group of its own; however this ends, none of the group is left."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    child = subprocess.Popen(command, start_new_session=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        signal.signal(signal.SIGTERM, before)


def _ending(code: int) -> str:
    if code < 0:
        return f"ended the process with {signal.Signals(-code).name}"
    return f"ended the process with exit code {code}"
