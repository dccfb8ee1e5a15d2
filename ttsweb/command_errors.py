"""Say to a person, or to a program that reads JSON, why a command failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError, OutputWrapper
from django.db import DatabaseError, InterfaceError


class StepError(Exception):
    """A step of a command failed: `code` is stable, the text says what to do."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def errors_told(stdout: OutputWrapper, *, as_json: bool) -> Iterator[None]:
    """Turn what ends a command into one line and exit code 1; with JSON also into one object.

    Raises:
        CommandError: `code: sentence`, instead of a StepError or a database's error.
    """
    try:
        yield
    except StepError as error:
        code, message = error.code, str(error)
        cause: Exception = error
    except (DatabaseError, InterfaceError) as error:
        code = "database_unavailable"
        message = f"The database cannot be used: {str(error).strip()}. ./tts doctor says more."
        cause = error
    else:
        return
    if as_json:
        stdout.write(json.dumps({"error": {"code": code, "message": message}}))
    raise CommandError(f"{code}: {message}") from cause
