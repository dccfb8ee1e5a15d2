"""Make sure that a worker is there for as long as a command needs one.

A worker that runs already is used. Otherwise one is started as a child process, the very same
`manage.py worker` as anywhere else. A lock in the data folder lets one command own that child;
the child shares it, so that the lock outlives a command that was killed.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import time
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, models

from synth.models import WorkerStatus
from ttsweb import leases
from ttsweb.commands.errors import StepError
from ttsweb.terminal.progress import Progress
from workers.local.embedded import Child, last_line, open_log, stop_all
from workers.process.name_lock import default_name

LOCK_NAME = "worker.lock"
LOOK_EVERY_SECONDS = 1.0
LIVE_SECONDS = 20.0  # a living worker writes its row every 5 s
POLL_SECONDS = 0.1
LIVE = (WorkerStatus.State.STARTING, WorkerStatus.State.WARMING, WorkerStatus.State.READY)


class LocalWorker:
    """The worker of this command, or somebody else's that does the same."""

    def __init__(self, *, log_path: Path | None = None) -> None:
        """Start nothing yet; `log_path` takes the child's log, else it goes to standard error."""
        self.name = default_name("embedded")
        self._log_path = log_path
        self.log = open_log(log_path) if log_path else None
        self._lock: int | None = None
        self.child: Child | None = None
        self._spawned_at = dt.datetime.min.replace(tzinfo=dt.UTC)
        self._next_look_at = 0.0

    def keep(self) -> None:
        """Call often: start a worker when none is there, start ours again when it died."""
        if self.child is not None:
            self.child.restart_if_dead()
            return
        if time.monotonic() < self._next_look_at:
            return
        self._next_look_at = time.monotonic() + LOOK_EVERY_SECONDS
        try:
            if self._take_lock() and not self._others_serve():
                self._start()
        except (DatabaseError, InterfaceError):
            connection.close()  # away for now; the next look opens another connection
            self._drop_lock()

    def is_ready(self) -> bool:
        """Return whether a worker with a warm engine has been seen lately."""
        rows = _seen_lately().filter(state=WorkerStatus.State.READY, role__in=("gpu", "all"))
        if self.child is not None:
            # The row of an earlier run under our name may still be there.
            rows = rows.filter(pk=self.name, started_at__gte=self._spawned_at)
        return rows.exists()

    def wait_ready(self, progress: Progress) -> None:
        """Return once a worker is ready.

        Raises:
            StepError: worker_failed, when our worker ended before it was ready.
        """
        started = time.monotonic()
        self.keep()  # first of all: a row that says ready may be that of a killed worker
        while not self.is_ready():
            if self.child is None:
                self.keep()
            elif self.child.exit_code is not None:  # to start it again would fail the same way
                raise StepError("worker_failed", self._why_ended(self.child.exit_code))
            progress.update(f"warming up, {time.monotonic() - started:.0f} s")
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End our worker, if there is one; what it holds is finished or handed back."""
        if self.child is not None:
            stop_all([self.child])
        self.close()

    def close(self) -> None:
        """Give back the lock and the log file of a worker that has ended."""
        self.child = None
        self._drop_lock()
        if self.log is not None:
            self.log.close()

    def _start(self) -> None:
        self._spawned_at = leases.database_now()
        self.child = Child(
            "worker",
            "manage",
            ["worker", "--role", "all", "--name", self.name],
            descriptors=[self._lock] if self._lock is not None else [],
            log=self.log,
        )
        self.child.start()

    def _take_lock(self) -> bool:
        """Return whether this process may own the embedded worker of this data folder."""
        if self._lock is not None:
            return True
        settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(settings.DATA_DIR / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._lock = descriptor
        return True

    def _drop_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _others_serve(self) -> bool:
        """Return whether other workers do all that ours would; then the lock is given back."""
        rows = _seen_lately().filter(state__in=LIVE).exclude(pk=self.name)
        roles = set(rows.values_list("role", flat=True))
        found = "all" in roles or roles >= {"gpu", "cpu"}
        if found:
            self._drop_lock()
        return found

    def _why_ended(self, exit_code: int) -> str:
        row = WorkerStatus.objects.filter(pk=self.name, started_at__gte=self._spawned_at).first()
        detail = row.detail if row else ""
        if not detail and self._log_path is not None:
            detail = last_line(self._log_path)
        where = f" Its log is {self._log_path}." if self._log_path else ""
        return f"The worker ended before it was ready (exit code {exit_code}): {detail}{where}"


def live_workers() -> list[WorkerStatus]:
    """Return what living workers last said of themselves."""
    return list(_seen_lately().filter(state__in=LIVE))


def _seen_lately() -> models.QuerySet[WorkerStatus]:
    """Return the workers that have shown a sign of life a moment ago."""
    since = leases.database_now() - dt.timedelta(seconds=LIVE_SECONDS)
    return WorkerStatus.objects.filter(last_seen_at__gt=since)
