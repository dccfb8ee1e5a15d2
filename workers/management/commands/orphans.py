"""Show the objects in the storage that no row names, or remove them."""

from __future__ import annotations

from argparse import ArgumentParser

from ttsweb.commands.base import BaseCommand


class Command(BaseCommand):
    help = (
        "List the objects in the storage that no row of the database names and that are "
        "older than TTS_ORPHAN_HOURS. Workers remove such objects by themselves unless "
        "TTS_ORPHAN_HOURS is 0."
    )
    work = "workers.orphans:run"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--delete", action="store_true", help="remove these objects")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
