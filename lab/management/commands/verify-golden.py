"""Check the engine against a folder of golden vectors: `manage.py verify-golden DIR`."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ttsweb.commands.base import BaseCommand, CommandError
from ttsweb.refusals import counted


class Command(BaseCommand):
    """Print one line per case and `N cases, M failed`; exit 1 on any miss."""

    help = "Compare the engine with every file and case of a golden folder."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the folder and the form of the output."""
        parser.add_argument("folder", type=Path, help="a folder with vectors/ and tiny-s2/")
        parser.add_argument(
            "--path",
            default="plain",
            help=(
                "the engine's path: plain (every file), batched (the language model in shared "
                "slots, with reused prefixes), streamed (the codec in chunks), or compiled (frames "
                "and audio by compiled code)"
            ),
        )
        parser.add_argument(
            "--json", action="store_true", help="print one JSON object instead of text"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the checks; exit 1 when a case failed, 2 when the folder is no golden folder."""

        from workers.process.engine_host import set_spinning

        set_spinning()
        # The engine is imported here so that listing commands does not load torch.
        from lab.golden.case import CaseResult, GoldenFolderError
        from lab.golden.runner import UnknownPathError, render_table, run_golden

        results: list[CaseResult] = []
        try:
            num_cases, num_failed = run_golden(
                options["folder"], report=results.append, path=options["path"]
            )
        except (GoldenFolderError, UnknownPathError) as error:
            raise CommandError(str(error), returncode=2) from error
        if options["json"]:
            content = {
                "path": options["path"],
                "cases": num_cases,
                "failed": num_failed,
                "results": [asdict(result) for result in results],
            }
            self.stdout.write(json.dumps(content, ensure_ascii=False))
        else:
            self.stdout.write(render_table(results))
            self.stdout.write(f"{counted(num_cases, 'case')}, {num_failed} failed")
        if num_failed:
            sys.exit(1)
