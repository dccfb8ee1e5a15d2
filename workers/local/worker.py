"""Run a worker until a signal, and look whether this host's worker lives."""

from __future__ import annotations

import datetime as dt
import logging
import os
import sys
from functools import partial
from typing import Any

from django.conf import settings

from synth.jobs.work import ROLES
from synth.models import WorkerStatus
from ttsweb import leases
from ttsweb.commands.base import BaseCommand
from ttsweb.commands.errors import CommandError
from ttsweb.pages.health import HEARTBEAT_SECONDS
from workers.process.name_lock import FOLDER, NameTakenError, default_name, lock_name
from workers.process.run_worker import run_worker
from workers.process.worker_process import WORKER_THREADS, WorkerProcess


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    """Work until SIGTERM or SIGINT, then end the process whatever its threads do."""
    role = options["role"]
    queues = _queues(options["queues"], role)
    concurrency = options["concurrency"]
    if concurrency is None:
        concurrency = WORKER_THREADS
    if concurrency < 1:
        raise CommandError("--concurrency must be at least 1")
    try:
        lock = lock_name(
            settings.DATA_DIR / FOLDER,
            options["name"] or default_name(role),
            is_fixed=bool(options["name"]),
        )
    except NameTakenError as error:
        raise CommandError(str(error)) from error
    process = WorkerProcess(name=lock.name, role=role)
    process.status.note_start = lock.note
    status = run_worker(
        process, queues=queues, concurrency=concurrency, announce=partial(_announce, command)
    )
    logging.shutdown()
    sys.stdout.flush()
    os._exit(status)  # threads that hang, in a broker or an engine, must not hold it up


def _announce(command: BaseCommand, line: str) -> None:
    command.stdout.write(line)
    command.stdout.flush()


def _queues(given: str, role: str) -> list[str]:
    """Return the queues to consume, which must be some of the role's."""
    queues = [name.strip() for name in given.split(",") if name.strip()] or list(ROLES[role])
    unknown = sorted(set(queues) - set(ROLES[role]))
    if unknown:
        raise CommandError(
            f"the role {role} does not serve {', '.join(unknown)}; its queues are "
            f"{', '.join(ROLES[role])}"
        )
    return queues


def check_alive(command: BaseCommand, options: dict[str, Any]) -> None:
    """Print the worker's state.

    Raises:
        CommandError: no such worker was seen within the time of a heartbeat, or it failed.
    """
    since = leases.database_now() - dt.timedelta(seconds=HEARTBEAT_SECONDS)
    prefix = default_name(options["role"])
    workers = WorkerStatus.objects.filter(name__startswith=prefix, role=options["role"])
    worker = workers.filter(last_seen_at__gte=since).order_by("-last_seen_at").first()
    if worker is None:
        raise CommandError(
            f"No worker with the role {options['role']} and a name that begins with "
            f"{prefix} has reported for {HEARTBEAT_SECONDS} s."
        )
    if worker.state == WorkerStatus.State.FAILED:
        raise CommandError(f"{worker.name} failed. {worker.detail}")
    command.stdout.write(f"{worker.name} is {worker.state}")
