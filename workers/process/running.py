"""Name the one worker process that this interpreter is, for the tasks that messages start."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

_current: list[WorkerProcess] = []


def set_current(process: WorkerProcess | None) -> None:
    """Declare what this interpreter is; None takes it back."""
    _current[:] = [] if process is None else [process]


def current() -> WorkerProcess | None:
    """Return the worker process, or None, with a line in the log, outside of `./tts worker`."""
    if not _current:
        logger.error("message dropped; start workers with `./tts worker`, not with celery itself")
        return None
    return _current[0]
