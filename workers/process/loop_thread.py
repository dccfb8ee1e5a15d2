"""Run one short step again and again in a thread that no error ends."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db import connection

from workers.process.outages import DATABASE_AWAY

logger = logging.getLogger(__name__)


class LoopThread(threading.Thread):
    """Call `step` every `seconds`, or sooner when `wake` is set, until `stop` is set.

    A database that is away is waited for. The thread has a database connection of its own.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], None],
        *,
        seconds: float,
        stop: threading.Event,
        wake: threading.Event | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._step, self._seconds, self._stopper, self._wake = step, seconds, stop, wake
        self.failures = 0  # in a row
        self.failing_since = 0.0  # monotonic clock; meaningful while `failures` is above 0

    def has_failed_for(self, seconds: float) -> bool:
        """Return whether every step of at least that long failed, or the thread is gone.

        Several failures are asked for, since a process that was stopped for a while fails once.
        """
        if not self.is_alive():
            return not self._stopper.is_set()
        return self.failures > 3 and time.monotonic() - self.failing_since > seconds

    def run(self) -> None:
        """Loop; see the class."""
        while not self._stopper.is_set():
            self._run_step()
            if self._wake is None:
                self._stopper.wait(self._seconds)
            else:
                self._wake.wait(self._seconds)
                self._wake.clear()
        connection.close()

    def _run_step(self) -> None:
        try:
            self._step()
        except Exception as error:
            if not self.failures:
                self.failing_since = time.monotonic()
            self.failures += 1
            if isinstance(error, DATABASE_AWAY):
                logger.warning(
                    "%s: the database does not answer: %s", self.name, str(error).strip()
                )
            else:
                logger.exception("%s failed; it continues", self.name)
            connection.close()
        else:
            self.failures = 0
