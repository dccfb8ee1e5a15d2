"""Answer a supervisor's probe: does the worker of this host say that it lives?"""

from __future__ import annotations

from ttsweb.commands.base import BaseCommand, argument


class Command(BaseCommand):
    help = "Exit with 0 if a worker of this host and role reported lately, else with 1."
    requires_system_checks = ()
    arguments = (argument("--role", choices=("gpu", "cpu", "all"), required=True),)
    work = "workers.process.run_worker:check_alive"
