"""Run the tests with pytest; replaces Django's own `test` command.

`./tts test` installs what the tests need before it comes here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from ttsweb.env import PROJECT_DIR


class Command(BaseCommand):
    """Hand all arguments to pytest."""

    help = "Run the tests; takes pytest's arguments, paths relative to the project's folder."
    requires_system_checks = ()

    def run_from_argv(self, argv: list[str]) -> None:
        """Become pytest: Django's parser does not know its options, so it never sees them."""
        try:
            run_pytest(argv[2:])
        except CommandError as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(1)

    def handle(self, *args: Any, **options: Any) -> None:
        """Run all tests, when called from code."""
        run_pytest(())


def run_pytest(arguments: Sequence[str]) -> None:
    """Replace this process by pytest, in the project's folder.

    Raises:
        CommandError: pytest is not installed.
    """
    if importlib.util.find_spec("pytest") is None:
        raise CommandError("pytest is not installed: run ./tts test, which installs it")
    os.chdir(PROJECT_DIR)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *arguments])
