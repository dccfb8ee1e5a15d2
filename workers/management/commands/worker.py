"""`./tts worker`: encode voices, render segments and make files until told to stop."""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentParser
from typing import Any

from ttsweb.commands.base import BaseCommand
from ttsweb.commands.errors import CommandError


class Command(BaseCommand):
    """Run one worker in this process; it does not fork."""

    help = (
        "Run a worker. The role gpu encodes clips and renders segments, the role cpu makes "
        "files, and the role all does both."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options; what is not given comes from the settings."""
        parser.add_argument(
            "--role", choices=("gpu", "cpu", "all"), default="all", help="default: all"
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            help="tasks that run at once; default: TTS_WORKER_THREADS",
        )
        parser.add_argument(
            "--name",
            default="",
            help=(
                "unique name that stays the same after a restart; default: TTS_WORKER_NAME or "
                "the host's name, with the role"
            ),
        )
        parser.add_argument(
            "--queues",
            default="",
            help="queues, separated by commas; default: the queues of the role",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Work until SIGTERM or SIGINT, then end the process whatever its threads do."""
        from django.conf import settings

        from workers.process.name_lock import FOLDER, NameTakenError, default_name, lock_name
        from workers.process.run_worker import run_worker
        from workers.process.worker_process import WorkerProcess

        role = options["role"]
        queues = _queues(options["queues"], role)
        concurrency = options["concurrency"]
        if concurrency is None:
            concurrency = settings.WORKER_THREADS
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
            process,
            queues=queues,
            concurrency=concurrency,
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
    from synth.jobs.work import ROLES

    queues = [name.strip() for name in given.split(",") if name.strip()] or list(ROLES[role])
    unknown = sorted(set(queues) - set(ROLES[role]))
    if unknown:
        raise CommandError(
            f"the role {role} does not serve {', '.join(unknown)}; its queues are "
            f"{', '.join(ROLES[role])}"
        )
    return queues
