"""Keep what is generated from the settings, two tables and `.env.example`, up to date."""

from __future__ import annotations

from argparse import ArgumentParser

from ttsweb.commands.base import BaseCommand


class Command(BaseCommand):
    help = "Write or check the tables of settings and .env.example."
    needs_django = False
    work = "ttsweb.configuration.tables:write_or_check"

    def add_arguments(self, parser: ArgumentParser) -> None:
        way = parser.add_mutually_exclusive_group(required=True)
        way.add_argument("--write", action="store_true", help="write the files that differ")
        way.add_argument("--check", action="store_true", help="exit with 1 if a file differs")
