"""A book lies where Audiobookshelf looks for it, under names that every disk takes."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from synth.books.file_names import numbered_name, safe_name
from tests.workers.book_files.made_books import FACTS, RATE, book, encoder, make_m4b
from workers.book_files.book_audio import BookFacts
from workers.book_files.cover import book_cover
from workers.book_files.m4b import marks_of
from workers.book_files.sidecars import put_on_shelf, shelf_folder, write_book_subtitles


def test_folders_name_author_series_and_title() -> None:
    plain = BookFacts("Title", authors=("Author",))

    assert str(shelf_folder(plain)) == "Author/Title"
    assert str(shelf_folder(dataclasses.replace(plain, series="S", series_index="3", date="1999",
                                                narrators=("N",)))) == (
        "Author/S/3 - 1999 - Title {N}"
    )  # fmt: skip
    assert str(shelf_folder(BookFacts(""))) == "Unknown author/Untitled"


@pytest.mark.parametrize(
    ("text", "name"),
    [("../../etc/passwd", "etc passwd"), ("a/b\\c", "a b c"), ("..", "Default"), ("nul", "_nul"),
     ("x" * 400, "x" * 150), ("ü" * 100, "ü" * 75), ("\ud800\0", "Default"), ("What?", "What"),
     ("trailing. ", "trailing")],
)  # fmt: skip
def test_names_cannot_leave_their_folder(text: str, name: str) -> None:
    assert safe_name(text, "Default") == name


def test_numbers_of_chapters_sort_in_reading_order() -> None:
    names = [numbered_name(index, 600, f"{600 - index}") for index in range(600)]

    assert names == sorted(names)


def test_sidecar_cover_and_file_lie_together(tmp_path: Path) -> None:
    path = tmp_path / "book.m4b"
    made = make_m4b(path, book(3), encoder(tmp_path))

    folder = put_on_shelf(tmp_path / "library", FACTS, [path], book_cover(None, FACTS), made)

    assert sorted(path.name for path in folder.iterdir()) == [
        "book.m4b", "cover.jpg", "metadata.json"
    ]  # fmt: skip
    sidecar = json.loads((folder / "metadata.json").read_text())
    assert sidecar["title"] == FACTS.title
    assert sidecar["series"] == ["Scientific Romances #2"]
    assert (sidecar["publishedYear"], sidecar["isbn"]) == ("1895", "9780000000002")
    assert (sidecar["authors"], sidecar["narrators"]) == (list(FACTS.authors), ["A Narrator"])
    ends = [one["end"] for one in sidecar["chapters"]]
    assert ends == pytest.approx([mark.end / RATE for mark in marks_of(made)], abs=1e-6)


@pytest.mark.parametrize(("form", "mark"), [("srt", ","), ("vtt", ".")])
def test_subtitles_run_on_through_the_book(form: str, mark: str, tmp_path: Path) -> None:
    made = make_m4b(tmp_path / "book.m4b", book(2), encoder(tmp_path))

    write_book_subtitles(tmp_path / f"book.{form}", made, form)

    whole = (tmp_path / f"book.{form}").read_text()
    assert f"00:00:00{mark}750 --> 00:00:02{mark}250\nChapter 1" in whole
    start = marks_of(made)[1].start / RATE + 0.75
    assert f"00:00:{int(start):02d}{mark}{round(1000 * start) % 1000:03d} --> " in whole
