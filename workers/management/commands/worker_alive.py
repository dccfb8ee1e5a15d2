"""Answer a supervisor's probe: does the worker of this host say that it lives?"""

from __future__ import annotations

import datetime as dt
from argparse import ArgumentParser
from typing import Any

from ttsweb.commands.base import BaseCommand
from ttsweb.commands.errors import CommandError


class Command(BaseCommand):
    """Look for a heartbeat of this host's worker in the database."""

    help = "Exit with 0 if a worker of this host and role reported lately, else with 1."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the role; a host may run one worker of each."""
        parser.add_argument("--role", choices=("gpu", "cpu", "all"), required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        """Print the worker's state.

        Raises:
            CommandError: no such worker was seen within the time of a heartbeat, or it failed.
        """
        from synth.models import WorkerStatus
        from ttsweb import leases
        from ttsweb.pages.health import HEARTBEAT_SECONDS
        from workers.process.name_lock import default_name

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
        self.stdout.write(f"{worker.name} is {worker.state}")
