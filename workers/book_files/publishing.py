"""Publish files at once or not at all: a full disk or a killed process leaves nothing half made."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ttsweb.storage import TEMPORARY_SUFFIX


@contextmanager
def publish_file(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`, which gets the file if nothing went wrong.

    Raises:
        OSError: there is no room for it; what was at `path` before is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def publish_folder(folder: Path) -> Iterator[Path]:
    """Give a temporary folder, whose files move into `folder` after the last is complete.

    Raises:
        OSError: there is no room for them; none of them appears.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
    temporary.mkdir()
    try:
        yield temporary
        made = sorted(path for path in temporary.rglob("*") if path.is_file())
        for path in made:
            with path.open("rb") as file:
                os.fsync(file.fileno())
        for path in made:
            target = folder / path.relative_to(temporary)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
