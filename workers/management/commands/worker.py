"""`./tts worker`: encode voices, render segments and make files until told to stop."""

from __future__ import annotations

import logging
import os
import platform
import sys
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from workers.name_lock import NameTakenError, lock_name
from workers.run_worker import QUEUES, run_worker
from workers.worker_process import WorkerProcess


class Command(BaseCommand):
    """Run one worker in this process; it does not fork."""

    help = "Run a worker: role gpu encodes and renders, cpu makes files, all does both."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options; what is not given comes from the settings."""
        parser.add_argument("--role", choices=tuple(QUEUES), default="all", help="default: all")
        parser.add_argument(
            "--concurrency",
            type=int,
            default=settings.WORKER_THREADS,
            help="messages handled at once; default: TTS_WORKER_THREADS",
        )
        parser.add_argument(
            "--name",
            default=settings.WORKER_NAME,
            help="unique and stable over restarts; default: TTS_WORKER_NAME, else host and role",
        )
        parser.add_argument(
            "--queues", default="", help="comma-separated; default: the queues of the role"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Work until SIGTERM or SIGINT, then end the process whatever its threads do."""
        role = options["role"]
        queues = _queues(options["queues"], role)
        if options["concurrency"] < 1:
            raise CommandError("--concurrency must be at least 1")
        default_name = f"{platform.node().split('.')[0] or 'worker'}-{role}"
        try:
            lock = lock_name(
                settings.DATA_DIR / "workers",
                options["name"] or default_name,
                is_fixed=bool(options["name"]),
            )
        except NameTakenError as error:
            raise CommandError(str(error)) from error
        status = run_worker(
            WorkerProcess(name=lock.name, role=role),
            queues=queues,
            concurrency=options["concurrency"],
            announce=self._announce,
        )
        logging.shutdown()
        sys.stdout.flush()
        os._exit(status)  # threads that hang, in a broker or an engine, must not hold it up

    def _announce(self, line: str) -> None:
        self.stdout.write(line)
        self.stdout.flush()


def _queues(given: str, role: str) -> list[str]:
    """Return the queues to consume, which must be some of the role's."""
    queues = [name.strip() for name in given.split(",") if name.strip()] or list(QUEUES[role])
    unknown = sorted(set(queues) - set(QUEUES[role]))
    if unknown:
        raise CommandError(
            f"role {role} does not serve {', '.join(unknown)}: its queues are "
            f"{', '.join(QUEUES[role])}"
        )
    return queues
