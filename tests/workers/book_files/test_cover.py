"""Covers are checked before they are decoded; a book without one gets one with its title."""

from __future__ import annotations

import struct
import zlib
from fractions import Fraction
from typing import Any

import av
import numpy as np
import pytest

from synth.books.book import image_size
from workers.book_files.book_audio import BookFacts, BookFileError
from workers.book_files.cover import KEPT_PIXELS, book_cover, can_write, check_cover, draw_cover


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
def test_size_is_read_from_the_header(codec: str, form: str) -> None:
    assert image_size(encoded(322, 418, codec)) == (form, 322, 418)


@pytest.mark.parametrize(("codec", "kind"), [("mjpeg", "image/jpeg"), ("png", "image/png")])
def test_a_cover_of_usual_size_is_kept_as_it_is(codec: str, kind: str) -> None:
    given = encoded(600, 800, codec)
    assert check_cover(given) == (kind, given)


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
     ("\0", False), ("\ud800", False)],
)  # fmt: skip
def test_scripts_without_letters_get_a_pattern(title: str, is_written: bool) -> None:
    assert can_write(title) is is_written
    assert draw_cover(title, "").shape == (1400, 1400, 3)


@pytest.mark.parametrize("title", ["w" * 3000, "a " * 900, "An ordinary title of some length"])
def test_titles_of_any_length_stay_on_the_page(title: str) -> None:
    assert draw_cover(title, "Someone").shape == (1400, 1400, 3)
