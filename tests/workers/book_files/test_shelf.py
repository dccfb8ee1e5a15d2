"""A book lies where Audiobookshelf looks for it, with a cover that is checked or made."""

from __future__ import annotations

import dataclasses
import json
import struct
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from synth.books.book import image_size
from synth.formats import numbered_name, safe_name
from tests.workers.book_files.made_books import FACTS, RATE, book, make_m4b
from workers.book_files.book_audio import BookFacts, BookFileError
from workers.book_files.chapter_encodes import Encoder
from workers.book_files.cover import KEPT_PIXELS, book_cover, can_write, check_cover, draw_cover
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


def test_sidecar_cover_and_file_lie_together(work: Encoder, tmp_path: Path) -> None:
    path = tmp_path / "book.m4b"
    made = make_m4b(path, book(3), work)
    folder = put_on_shelf(tmp_path / "library", FACTS, [path], book_cover(None, FACTS), made)
    assert sorted(path.name for path in folder.iterdir()) == [
        "book.m4b", "cover.jpg", "metadata.json"
    ]  # fmt: skip
    sidecar = json.loads((folder / "metadata.json").read_text())
    assert sidecar["title"] == FACTS.title
    assert sidecar["series"] == ["Scientific Romances #2"]
    assert (sidecar["publishedYear"], sidecar["isbn"]) == ("1895", None)
    assert (sidecar["authors"], sidecar["narrators"]) == (list(FACTS.authors), ["A Narrator"])
    ends = [one["end"] for one in sidecar["chapters"]]
    assert ends == pytest.approx([mark.end / RATE for mark in marks_of(made)], abs=1e-6)


@pytest.mark.parametrize(("form", "mark"), [("srt", ","), ("vtt", ".")])
def test_subtitles_run_on_through_the_book(
    form: str, mark: str, work: Encoder, tmp_path: Path
) -> None:
    made = make_m4b(tmp_path / "book.m4b", book(2), work)
    write_book_subtitles(tmp_path / f"book.{form}", made, form)
    whole = (tmp_path / f"book.{form}").read_text()
    assert f"00:00:00{mark}750 --> 00:00:02{mark}250\nChapter 1" in whole
    start = marks_of(made)[1].start / RATE + 0.75
    assert f"00:00:{int(start):02d}{mark}{round(1000 * start) % 1000:03d} --> " in whole


def encoded(width: int, height: int, codec: str) -> bytes:
    """Return a picture of noise by FFmpeg's encoder."""
    pixels = np.random.default_rng(1).integers(0, 255, (height, width, 3), dtype=np.uint8)
    kind = {"mjpeg": "yuvj420p", "png": "rgb24"}[codec]
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format=kind)
    encoder: Any = av.CodecContext.create(codec, "w")
    encoder.width, encoder.height, encoder.pix_fmt = width, height, kind
    encoder.time_base = Fraction(1)
    frame.pts = 0
    return b"".join(map(bytes, [*encoder.encode(frame), *encoder.encode(None)]))


def huge_png(width: int, height: int) -> bytes:
    """Return a small file that unpacks to a picture of this size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        body = kind + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes((width // 8 + 1) * 64), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(("codec", "form"), [("mjpeg", "jpeg"), ("png", "png")])
def test_a_cover_of_usual_size_is_kept_as_it_is(codec: str, form: str) -> None:
    given = encoded(322, 418, codec)
    assert image_size(given) == (form, 322, 418)
    assert check_cover(given) == (f"image/{form}", given)


def test_a_large_cover_is_shrunk_to_a_jpeg() -> None:
    found = check_cover(encoded(KEPT_PIXELS + 600, 1200, "png"))
    assert found.media_type == "image/jpeg"
    assert image_size(found.content) == ("jpeg", 2400, 800)


def test_a_picture_of_30000_pixels_is_refused_before_it_is_decoded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("workers.book_files.cover.av", None)  # nothing of it may be asked
    with pytest.raises(BookFileError) as caught:
        check_cover(huge_png(30_000, 30_000))
    assert caught.value.code == "cover_too_large"
    assert "30000 x 30000" in caught.value.message


@pytest.mark.parametrize(
    "content",
    [b"", b"GIF89a" + bytes(50), b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0\x00", b"<svg/>" * 10,
     encoded(200, 200, "png")[:60], huge_png(0, 10), huge_png(640, 480)[:-60],
     b"\xff\xd8\xff\xc0\x00\x11\x08\x01\x00\x01\x00\x03" + bytes(40)],
)  # fmt: skip
def test_what_cannot_be_decoded_is_refused(content: bytes) -> None:
    with pytest.raises(BookFileError) as caught:
        check_cover(content)
    assert caught.value.code == "cover_unreadable"


def test_a_made_cover_is_a_jpeg_with_the_title() -> None:
    found = book_cover(None, BookFacts("Ça ira: Œuvre d'été", authors=("É. Zola",)))
    assert image_size(found.content) == ("jpeg", 1400, 1400)
    assert check_cover(found.content) == found


def test_titles_differ_in_what_is_drawn() -> None:
    first, again, other = (draw_cover(title, "A") for title in ("One", "One", "Two"))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    lettered = draw_cover("One", "A")[260:960] == np.array((245, 238, 220))
    assert lettered.all(axis=2).any()


@pytest.mark.parametrize(
    ("title", "is_written"),
    [("Straße nach Ångström", True), ("Łódź", True), ("三国演义", False), ("", False),
     ("\0", False), ("\ud800", False), ("w" * 3000, True), ("a " * 900, True)],
)  # fmt: skip
def test_titles_of_any_length_and_script_stay_on_the_page(title: str, is_written: bool) -> None:
    assert can_write(title) is is_written
    assert draw_cover(title, "Someone").shape == (1400, 1400, 3)
