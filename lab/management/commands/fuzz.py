"""Fuzz the readers of strangers' files: `./tts fuzz --minutes N`."""

from __future__ import annotations

import dataclasses
import json
from argparse import ArgumentParser
from importlib.util import find_spec
from typing import Any

from ttsweb.commands.base import BaseCommand, CommandError


class Command(BaseCommand):
    help = "Feed the readers of audio, books, JSONL and voice files with what no program writes."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        from lab.fuzz import TARGETS

        parser.add_argument("--minutes", type=float, default=1.0, help="for each target")
        parser.add_argument(
            "--target", choices=tuple(TARGETS), action="append", help="default: all"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Fuzz target after target.

        Raises:
            CommandError: something was found; the files are where the tests look for them.
        """
        from django.conf import settings

        from lab.fuzz import SEEDS, TARGETS, FuzzingError, fuzz

        guided = find_spec("atheris") is not None
        if not guided:
            self.stderr.write("atheris is not installed: mutations by chance, not by coverage")
        try:
            results = [
                fuzz(target, options["minutes"], settings.DATA_DIR / "fuzz", self.stderr.write)
                for target in options["target"] or TARGETS
            ]
        except FuzzingError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps({
                "guided": guided, "targets": [dataclasses.asdict(one) for one in results],
            }))  # fmt: skip
        else:
            for one in results:
                self.stdout.write(
                    f"{one.target:6} {one.minutes:5.1f} min {one.inputs:8} inputs "
                    f"{one.edges or '-':>6} edges {len(one.findings)} findings"
                )
        if any(one.findings for one in results):
            raise CommandError(f"something was found; the files are in {SEEDS}")
