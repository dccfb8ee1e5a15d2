"""Chapters are read in reading order, and what is not the story is left out."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from lab.bench.service.e2e import read_chapters
from ttsweb.commands.base import StepError

BOOK = Path(__file__).resolve().parents[3] / "data/books/the-time-machine_standardebooks.epub"


def test_first_chapter_is_the_story_and_not_the_title_page() -> None:
    (text,) = read_chapters(BOOK, count=1)

    paragraphs = text.split("\n\n")
    assert paragraphs[0] == "I"
    assert paragraphs[1].startswith("The Time Traveller (for so it will be convenient")
    assert text.endswith("and he winked at me solemnly.")
    assert "<" not in text


def test_chapters_come_in_the_order_of_the_spine_without_front_and_back_matter() -> None:
    chapters = read_chapters(BOOK, count=13)
    assert [text.split("\n\n")[0] for text in chapters[:3]] == ["I", "II", "III"]
    assert chapters[12].startswith("Epilogue")
    assert not any("Standard Ebooks" in text for text in chapters)


def test_book_with_fewer_chapters_is_refused_with_their_number() -> None:
    with pytest.raises(StepError, match="has only 13 chapters, not 14") as caught:
        read_chapters(BOOK, count=14)
    assert caught.value.code == "book_too_short"


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_file_that_is_no_book_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "book.epub"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(StepError) as caught:
        read_chapters(path, count=1)

    assert caught.value.code == "book_not_read"


def test_archive_that_lacks_what_an_epub_has_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "book.epub"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("hello.txt", "Hello.")
    with pytest.raises(StepError, match="not a readable EPUB"):
        read_chapters(path, count=1)
