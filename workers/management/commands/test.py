"""Run the tests with pytest; replaces Django's own `test` command.

`./tts test` installs what the tests need before it comes here.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Any

from ttsweb.commands.base import BaseCommand
from ttsweb.commands.errors import CommandError
from ttsweb.configuration.env import PROJECT_DIR

# A file's tests stay in one process, which its fixtures are made for.
PROCESSES = ("--numprocesses=auto", "--maxprocesses=8", "--dist=loadfile")
_IN_ONE_PROCESS = (
    "-n",
    "--numprocesses",
    "--pdb",
    "--trace",
    "--collect-only",
    "--co",
    "-h",
    "--version",
    "-V",
)


class Command(BaseCommand):
    """Hand all arguments to pytest."""

    help = "Run the tests; takes pytest's arguments, paths relative to the project's folder."
    needs_django = False

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

    A run of everything takes a process for each core, up to eight, unless `-n` says otherwise.

    Raises:
        CommandError: pytest is not installed.
    """
    if importlib.util.find_spec("pytest") is None:
        raise CommandError("pytest is not installed: run ./tts test, which installs it")
    os.chdir(PROJECT_DIR)
    own = [*arguments] if _chooses(arguments) else [*PROCESSES, *arguments]
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *own])


def _chooses(arguments: Sequence[str]) -> bool:
    """Say whether tests, or the number of processes, are chosen; `-k` and `-m` come with a word."""
    return any(one.startswith(_IN_ONE_PROCESS) or one[:1] != "-" for one in arguments)
