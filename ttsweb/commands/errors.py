"""Say to a person, or to a program that reads JSON, why a command failed; let signals end it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ttsweb.commands.base import Output
import signal
from collections.abc import Callable
from types import FrameType
from typing import NoReturn


class CommandError(Exception):
    """A command cannot go on: its text is for a person, `returncode` for a program.

    `is_formatted` texts are printed as they are, without the word CommandError before them.
    """

    def __init__(self, message: str, *, returncode: int = 1, is_formatted: bool = False) -> None:
        super().__init__(message)
        self.returncode, self.is_formatted = returncode, is_formatted


class StepError(Exception):
    """A step of a command failed: `code` is stable, the text says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def reporting_errors(stdout: Output, *, as_json: bool) -> Iterator[None]:
    """Turn what ends a command into one line and exit code 1; with JSON also into one object.

    Raises:
        CommandError: `code: sentence`, instead of a StepError or a database's error.
    """
    try:
        yield
    except StepError as error:
        code, message = error.code, str(error)
        cause: Exception = error
    except Exception as error:
        if not _is_of_database(error):
            raise
        code = "database_unavailable"
        message = (
            f"The database cannot be used: {str(error).strip()}. Run ./tts doctor for details."
        )
        cause = error
    else:
        return
    if as_json:
        stdout.write(json.dumps({"error": {"code": code, "message": message}}))
    raise CommandError(f"{code}: {message}") from cause


def _is_of_database(error: Exception) -> bool:
    database = sys.modules.get("django.db")  # not loaded, it cannot have failed
    return database is not None and isinstance(
        error, (database.DatabaseError, database.InterfaceError)
    )


ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130  # as a shell reports a command that Ctrl-C ended


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that its clean-up runs."""
    with _handled_by(_interrupt):
        yield


@contextmanager
def signals_held() -> Iterator[None]:
    """Let a signal wait for the block's end: for what has to be known of once it is done.

    A second one ends the block at once: the person does not want to wait.
    """
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    try:
        with _handled_by(note):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in ENDING}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
