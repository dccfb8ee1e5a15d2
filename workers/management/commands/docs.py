"""Keep what is generated from the settings, two tables and `.env.example`, up to date."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from ttsweb.commands.base import BaseCommand
from ttsweb.commands.errors import CommandError
from ttsweb.configuration.env import PROJECT_DIR


class Command(BaseCommand):
    """Compare the generated documentation with the settings, or write it."""

    help = "Write or check the tables of settings and .env.example."
    needs_django = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take one of the two ways."""
        way = parser.add_mutually_exclusive_group(required=True)
        way.add_argument("--write", action="store_true", help="write the files that differ")
        way.add_argument("--check", action="store_true", help="exit with 1 if a file differs")

    def handle(self, *args: Any, **options: Any) -> None:
        """Name the files that differed; with `--check` they are an error."""
        import ttsweb.settings  # noqa: F401  # its readers fill the list that is documented
        from ttsweb.configuration.tables import MissingBlockError, stale_files

        try:
            stale = stale_files(PROJECT_DIR, write=options["write"])
        except OSError as error:
            raise CommandError(f"{Path(str(error.filename)).name}: {error}") from error
        except MissingBlockError as error:
            raise CommandError(str(error)) from error
        if stale and options["check"]:
            raise CommandError(f"{' and '.join(stale)} differ: run ./tts docs --write")
        self.stdout.write(f"written: {', '.join(stale)}" if stale else "up to date")
