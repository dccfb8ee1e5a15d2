"""Have a book read in a bounded child process."""

from __future__ import annotations

import errno
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synth.books.book import BookRejectedError

LOOK_SECONDS = 0.5
PROJECT_DIR = Path(__file__).resolve().parents[2]
_ENVIRONMENT = {"PYTHONHASHSEED": "0"}
_MEMORY, _TIME = "book_import_memory", "book_import_timeout"
_SENTENCES = {
    _MEMORY: (
        "Reading the book needs more memory than is allowed (TTS_BOOK_IMPORT_MEGABYTES); split "
        "the book, or remove its pictures."
    ),
    _TIME: (
        "Reading the book takes longer than is allowed (TTS_BOOK_IMPORT_SECONDS); split the book."
    ),
    "book_unreadable": "The book cannot be read: it is damaged, or its name has a wrong extension.",
}
_MAX_JSON_PER_CHAR = 64  # blocks and escapes of a text that is all short lines


@dataclass(frozen=True, slots=True)
class BookLimits:
    """Bound one reading: seconds of wall time, MiB of memory, characters of the book."""

    wall_seconds: float
    megabytes: int
    max_chars: int


@dataclass(frozen=True, slots=True)
class ReadFiles:
    """Hold where a book's JSON lies and where its cover, if it has one; `facts` is its answer.

    `facts` has title, authors, language, cover_type (empty without a cover) and source_chars.
    """

    book: Path
    cover: Path | None
    facts: dict[str, Any]


def read_in_child(
    source: Path,
    filename: str,
    folder: Path,
    limits: BookLimits,
    *,
    check_wanted: Callable[[], None] = lambda: None,
) -> ReadFiles:
    """Read the book in `source`, and write its parts into `folder`.

    Args:
        filename: what the upload was called; its ending helps where the content does not tell.
        check_wanted: called twice a second; what it raises ends the child and is raised here.

    Raises:
        BookRejectedError: the file is no book that can be read.
        OSError: there is no room, or no process could be started; try again later.
    """
    book, cover = folder / "book.json", folder / "cover"
    request = {
        "input": str(source),
        "filename": filename,
        "output": str(book),
        "cover": str(cover),
        "max_chars": limits.max_chars,
        "memory_bytes": limits.megabytes << 20,
        "cpu_seconds": math.ceil(limits.wall_seconds),
        "output_bytes": limits.max_chars * _MAX_JSON_PER_CHAR + (64 << 20),
    }
    facts = _read_answer(_run(json.dumps(request).encode(), limits.wall_seconds, check_wanted))
    return ReadFiles(book, cover if facts["cover_type"] else None, facts)


def _run(
    request: bytes, wall_seconds: float, check_wanted: Callable[[], None]
) -> subprocess.CompletedProcess[bytes]:
    """Return how the child ended and what it wrote; it is killed once it takes too long."""
    command = [sys.executable, "-E", "-s", "-B", "-m", "workers.books.child"]
    deadline, unsent = time.monotonic() + wall_seconds, request
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=PROJECT_DIR,
        env=_ENVIRONMENT,
    ) as child:
        try:
            while True:
                left = deadline - time.monotonic()
                try:
                    answer, report = child.communicate(unsent, timeout=min(LOOK_SECONDS, left))
                except subprocess.TimeoutExpired:
                    unsent = b""
                    if time.monotonic() >= deadline:
                        raise _error(_TIME) from None
                    check_wanted()
                else:
                    return subprocess.CompletedProcess(command, child.returncode, answer, report)
        except BaseException:
            child.kill()
            raise


def _read_answer(ended: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    """Return the child's answer; name what a child died of that could not answer any more."""
    if ended.returncode != 0:
        report = ended.stderr[-20_000:]
        if b"No space left on device" in report or b"Errno 28" in report:
            raise OSError(errno.ENOSPC, "no space left for a book")
        if ended.returncode == -24:  # SIGXCPU
            raise _error(_TIME)
        is_memory = b"MemoryError" in report or b"Cannot allocate memory" in report
        raise _error(_MEMORY if is_memory else "book_unreadable")
    answer: dict[str, Any] = json.loads(ended.stdout)
    if "error" in answer:
        code = str(answer["error"])
        raise BookRejectedError(code, answer["message"] or _SENTENCES[code])
    return answer


def _error(code: str) -> BookRejectedError:
    return BookRejectedError(code, _SENTENCES[code])
