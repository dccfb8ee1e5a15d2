"""Check Python, PyTorch, device, database, broker, storage, checkpoint, memory, workers, port."""

from __future__ import annotations

from argparse import ArgumentParser

from ttsweb.commands.base import BaseCommand


class Command(BaseCommand):
    help = (
        "Check everything that a working installation needs, and show the remedy for what is "
        "missing."
    )
    work = "workers.local.doctor:run"
    requires_system_checks = ()  # what they would stop at is reported here, with the rest

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")
