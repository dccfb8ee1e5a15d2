"""Train the built-in demo checkpoint: `manage.py train-demo`."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser
from typing import Any

from ttsweb.commands.base import BaseCommand


class Command(BaseCommand):
    """Run the recipe of `lab.training`; exit 1 when a stage fails or misses its gate."""

    help = "Train the demo checkpoint by its recipe, or a small version of it (--check)."
    needs_django = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take the recipe's own options."""
        from lab.training.arguments import add_arguments

        add_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        """Train; progress goes to standard error."""
        # torch is imported here so that listing commands does not load it.
        from lab.training.main import run

        code = run(argparse.Namespace(**options))
        if code:
            sys.exit(code)
