"""Run the tests with pytest; replaces Django's own `test` command.

`./tts test` installs what the tests need before it comes here.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import sys
from collections.abc import Sequence
from typing import Any

from ttsweb.commands.base import BaseCommand, CommandError
from ttsweb.configuration.env import PROJECT_DIR

# The variable that manage.py sets comes before pytest's own setting of the same.
SETTINGS = "--ds=tests.settings"
# A file's tests stay in one process, which its fixtures are made for. tests/conftest.py puts the
# files with long tests first: begun last, one of them would run while the other processes idle.
_CORES = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
PROCESSES = (
    f"--numprocesses={min(_CORES + 1, 8)}",  # tests that wait for others leave a core free
    *("--dist=loadfile", "--no-loadscope-reorder"),
)
# What a run leaves to `--all`: long tests, and those that need more than Python.
LEFT_TO_ALL = ("thorough", "redis", "postgres", "browser", "clients", "node_clients")
SELECTION = ("-m", f"not ({' or '.join(LEFT_TO_ALL)})")
_OWN_PROCESSES = ("-n", "--numprocesses", "--pdb", "--trace", "--co", "-h", "--version", "-V")


class Command(BaseCommand):
    help = (
        "Run the tests, with --all those as well that take long or need Redis, PostgreSQL or a "
        "browser; takes pytest's arguments, paths relative to the project's folder."
    )
    needs_django = False

    def run_from_argv(self, argv: list[str]) -> None:
        """Become pytest: Django's parser does not know its options, so it never sees them."""
        try:
            run_pytest(argv[2:])
        except CommandError as error:
            sys.stderr.write(f"{error}\n")
            sys.exit(1)

    def handle(self, *args: Any, **options: Any) -> None:
        run_pytest(())


def run_pytest(arguments: Sequence[str]) -> None:
    """Replace this process by pytest, in the project's folder.

    Where no tests are named, a run takes those of `SELECTION`, or all with `--all`, and a process
    more than there are cores, at most eight, unless `-n` says otherwise.

    Raises:
        CommandError: pytest is not installed.
    """
    if importlib.util.find_spec("pytest") is None:
        raise CommandError("pytest is not installed: run ./tts test, which installs it")
    os.chdir(PROJECT_DIR)
    given = [one for one in arguments if one != "--all"]
    own = [SETTINGS]
    if "--all" in arguments:
        os.environ.setdefault("TTS_TEST_EXAMPLES", "3")  # generated requests of an operation
    # Tests are named by files, or by `-k` and `-m`, which come with a word.
    is_named = any(
        one[:1] != "-" and before not in ("-n", "--numprocesses")
        for before, one in itertools.pairwise(["", *given])
    )
    if not is_named:
        if not any(one.startswith(_OWN_PROCESSES) for one in given):
            own += PROCESSES
        if "--all" not in arguments:
            own += SELECTION
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *own, *given])
