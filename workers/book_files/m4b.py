"""Make an M4B: one file with chapter marks, cover and tags, spliced from encoded chapters."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from workers.book_files.book_audio import BookAudio
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.cover import book_cover
from workers.book_files.publishing import published
from workers.mp4.file import Mark, write_mp4


class MadeBook(NamedTuple):
    """Hold what became of a book: its chapters as encoded, and where they lie in the file."""

    path: Path
    chapters: list[ChapterFile]
    marks: list[Mark]
    sample_rate: int


def make_m4b(
    path: Path, book: BookAudio, encoder: Encoder, encoding: Encoding | None = None
) -> MadeBook:
    """Encode what was not encoded before, then write the book to `path` at once.

    New tags, another cover or title encode nothing: only the file is written.

    Raises:
        OSError: the disk is full; what was at `path` before is still there.
        BookFileError: the cover cannot be used, or there is no chapter.
        EncodeUnwantedError: nobody waits for it any more.
    """
    cover = book_cover(book.cover, book.facts)
    chapters = list(encoder.chapters(book, encoding or Encoding("aac")))
    with published(path) as temporary:
        marks = write_mp4(temporary, chapters, book.facts, cover)
    return MadeBook(path, chapters, marks, chapters[0].sample_rate)
