"""A disk that fills up leaves what was there before, and nothing half made."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workers.book_files.made_books import book, encoder
from workers.book_files.chapter_encodes import Encoding
from workers.book_files.chapter_files import make_chapter_files, make_one_file
from workers.book_files.m4b import make_m4b
from workers.book_files.read_along import make_read_along

MAKERS: dict[str, Callable[[Path], object]] = {
    "m4b": lambda at: make_m4b(at / "book.m4b", book(2), encoder(at)),
    "mp3": lambda at: make_chapter_files(at / "out", book(2), encoder(at), Encoding("mp3")),
    "flac": lambda at: make_chapter_files(at / "out", book(2), encoder(at), Encoding("flac")),
    "wav": lambda at: make_chapter_files(at / "out", book(2), encoder(at), Encoding("wav")),
    "one": lambda at: make_one_file(at / "b.opus", book(2), encoder(at), Encoding("opus")),
    "epub": lambda at: make_read_along(at / "book.epub", book(2), encoder(at)),
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
def test_nothing_half_made_is_left(form: str, room: int, tmp_path: Path) -> None:
    said = with_room_for(room, lambda: MAKERS[form](tmp_path))

    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert said == "OSError True"
    assert not [path for path in left if tmp_path / "cache" not in path.parents]
    assert not [path for path in left if path.name.startswith(".")]
    MAKERS[form](tmp_path)  # what was kept, if anything, is whole


def test_an_older_file_stays_when_there_is_no_room_for_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "book.m4b").write_bytes(b"older")

    said = with_room_for(60_000, lambda: MAKERS["m4b"](tmp_path))

    assert said == "OSError True"
    assert (tmp_path / "book.m4b").read_bytes() == b"older"
