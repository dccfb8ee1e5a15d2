"""Answer a supervisor's probe: does the worker of this host say that it lives?"""

from __future__ import annotations

from argparse import ArgumentParser

from ttsweb.commands.base import BaseCommand


class Command(BaseCommand):
    """Look for a heartbeat of this host's worker in the database."""

    help = "Exit with 0 if a worker of this host and role reported lately, else with 1."
    requires_system_checks = ()
    work = "workers.process.run_worker:check_alive"

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the role; a host may run one worker of each."""
        parser.add_argument("--role", choices=("gpu", "cpu", "all"), required=True)
