"""Check Python, PyTorch, device, database, broker, storage, checkpoint, memory, workers, port."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ttsweb.commands.base import BaseCommand

if TYPE_CHECKING:
    from workers.doctor.findings import Finding


class Command(BaseCommand):
    """Print one line per finding; exit 1 when something would keep a job from being rendered."""

    help = (
        "Check everything that a working installation needs, and show the remedy for what is "
        "missing."
    )
    requires_system_checks = ()  # what they would stop at is reported here, with the rest

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the form of the answer."""
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look at everything, then exit 1 if anything failed."""
        found: list[Finding] = []
        for finding in look():
            found.append(finding)
            if not options["json"]:
                self.stdout.write(finding.line())
        failed = sum(finding.level == "fail" for finding in found)
        if options["json"]:
            self.stdout.write(
                json.dumps({"failed": failed, "findings": [each.as_json() for each in found]})
            )
        if failed:
            sys.exit(1)


def look() -> Iterator[Finding]:
    """Yield the findings, those that need torch last."""
    from workers.doctor import system
    from workers.doctor.findings import Finding, run_checks

    yield from run_checks(system.CHECKS)
    try:
        from workers.doctor import engine, memory
    except (ImportError, OSError) as error:
        reason = str(error).splitlines()[0]
        yield Finding(
            "fail", "torch", f"cannot be imported: {reason}", "remove .venv and run ./tts doctor"
        )
        return
    yield from run_checks((*engine.CHECKS, *memory.CHECKS))
