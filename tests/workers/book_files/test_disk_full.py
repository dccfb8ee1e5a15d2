"""A disk that fills up is told, and leaves no half of a chapter for later."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workers.book_files.made_books import AAC, book, encoder, make_m4b
from workers.book_files.chapter_encodes import Encoder, Encoding
from workers.book_files.chapter_files import make_chapter_files, make_one_file
from workers.book_files.read_along import make_read_along

MAKERS: dict[str, Callable[[Path, Encoder], object]] = {
    "m4b": lambda at, work: make_m4b(at / "book.m4b", book(2), work),
    "mp3": lambda at, work: make_chapter_files(at / "out", book(2), work, Encoding("mp3")),
    "flac": lambda at, work: make_chapter_files(at / "out", book(2), work, Encoding("flac")),
    "wav": lambda at, work: make_chapter_files(at / "out", book(2), work, Encoding("wav")),
    "one": lambda at, work: make_one_file(at / "b.opus", book(2), work, Encoding("opus")),
    "epub": lambda at, work: make_read_along(at / "book.epub", book(2), work, AAC),
}


def with_room_for(num_bytes: int, make: Callable[[], object]) -> str:
    """Make files in a child process whose files cannot grow beyond this; return what it raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, num_bytes))
        try:
            make()
            found = "nothing"
        except OSError as error:
            found = f"OSError {error.errno is not None}"
        except BaseException as error:  # noqa: BLE001
            found = repr(error)
        os.write(writing, found.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return said.read()


@pytest.mark.parametrize("form", MAKERS)
@pytest.mark.parametrize("room", [4_000, 60_000])
def test_a_full_disk_is_told_and_nothing_half_encoded_is_kept(
    form: str, room: int, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()

    said = with_room_for(room, lambda: MAKERS[form](first, encoder(tmp_path)))

    assert said == "OSError True"
    assert not [path for path in (tmp_path / "cache").rglob(".*") if path.is_file()]
    MAKERS[form](second, encoder(tmp_path))  # what was kept, if anything, is whole
