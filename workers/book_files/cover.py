"""Prepare a book's cover: checked before it is decoded, shrunk where it is large, or made."""

from __future__ import annotations

import hashlib
import unicodedata
from fractions import Fraction
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from synth.books.book import MAX_COVER_BYTES, MAX_COVER_PIXELS, Cover, ImageSize, image_size
from workers.book_files.book_audio import BookFacts, BookFileError

_ROWS = """
A 0E 11 11 1F 11 11 11|B 1E 11 11 1E 11 11 1E|C 0E 11 10 10 10 11 0E|D 1E 11 11 11 11 11 1E
E 1F 10 10 1E 10 10 1F|F 1F 10 10 1E 10 10 10|G 0E 11 10 17 11 11 0F|H 11 11 11 1F 11 11 11
I 0E 04 04 04 04 04 0E|J 07 02 02 02 02 12 0C|K 11 12 14 18 14 12 11|L 10 10 10 10 10 10 1F
M 11 1B 15 15 11 11 11|N 11 19 19 15 13 13 11|O 0E 11 11 11 11 11 0E|P 1E 11 11 1E 10 10 10
Q 0E 11 11 11 15 12 0D|R 1E 11 11 1E 14 12 11|S 0F 10 10 0E 01 01 1E|T 1F 04 04 04 04 04 04
U 11 11 11 11 11 11 0E|V 11 11 11 11 11 0A 04|W 11 11 11 15 15 1B 11|X 11 11 0A 04 0A 11 11
Y 11 11 0A 04 04 04 04|Z 1F 01 02 04 08 10 1F|0 0E 11 13 15 19 11 0E|1 04 0C 04 04 04 04 0E
2 0E 11 01 06 08 10 1F|3 1E 01 01 0E 01 01 1E|4 02 06 0A 12 1F 02 02|5 1F 10 1E 01 01 11 0E
6 06 08 10 1E 11 11 0E|7 1F 01 02 04 08 08 08|8 0E 11 11 0E 11 11 0E|9 0E 11 11 0F 01 02 0C
. 00 00 00 00 00 0C 0C|, 00 00 00 00 0C 04 08|: 00 0C 0C 00 0C 0C 00|; 00 0C 0C 00 0C 04 08
! 04 04 04 04 04 00 04|? 0E 11 01 02 04 00 04|- 00 00 00 0E 00 00 00|' 04 04 08 00 00 00 00
( 02 04 08 08 08 04 02|) 08 04 02 02 02 04 08|& 0C 12 14 08 15 12 0D|/ 01 01 02 04 08 10 10
" 0A 0A 0A 00 00 00 00|+ 00 04 04 1F 04 04 00|= 00 00 1F 00 1F 00 00|* 00 15 0E 1F 0E 15 00
# 0A 0A 1F 0A 1F 0A 0A|% 18 19 02 04 08 13 03|[ 0E 08 08 08 08 08 0E|] 0E 02 02 02 02 02 0E
\u00c6 0F 14 14 1F 14 14 17|\u00d8 0F 11 13 15 19 11 1E|\u0152 0F 14 14 17 14 14 0F
\u0141 08 08 0A 0C 18 08 0F|\u0110 0E 09 09 1D 09 09 0E|\u00de 10 1E 11 11 1E 10 10
\u2013 00 00 00 1F 00 00 00|\u2014 00 00 00 1F 00 00 00|\u2019 04 04 08 00 00 00 00
\u2018 04 04 02 00 00 00 00|\u201c 0A 0A 0A 00 00 00 00|\u201d 0A 0A 0A 00 00 00 00
\u00ab 00 05 0A 14 0A 05 00|\u00bb 00 14 0A 05 0A 14 00|\u201e 00 00 00 00 0A 0A 14
\u00bf 04 00 04 08 10 11 0E|\u00a1 04 00 04 04 04 04 04
"""

GLYPHS = {
    cell[0]: tuple(int(row, 16) for row in cell[1:].split())
    for cell in _ROWS.strip().replace("\n", "|").split("|")
} | {" ": (0,) * 7}

# Points (row, column) of accents; rows 0 and 1 lie above a letter, row 9 below it.
MARKS = {
    "\u0300": ((0, 1), (1, 2)),
    "\u0301": ((0, 3), (1, 2)),
    "\u0302": ((0, 2), (1, 1), (1, 3)),
    "\u030c": ((0, 1), (0, 3), (1, 2)),
    "\u0303": ((0, 1), (0, 2), (1, 3), (0, 4), (1, 0)),
    "\u0308": ((0, 1), (0, 3)),
    "\u030b": ((0, 2), (0, 4), (1, 1), (1, 3)),
    "\u030a": ((0, 2), (1, 1), (1, 3)),
    "\u0304": ((0, 1), (0, 2), (0, 3)),
    "\u0306": ((0, 1), (0, 3), (1, 2)),
    "\u0307": ((0, 2),),
    "\u0327": ((9, 2),),
    "\u0328": ((9, 3),),
    "\u0326": ((9, 2),),
    "\u0323": ((9, 2),),
}


SIDE = 1400  # pixels: what stores ask for at least
_MARGIN = 120
_LETTER = (6, 10)  # columns and rows with the gaps; two rows above are for accents
_MAX_LINES = 7
_SCALES = (24, 20, 16, 13, 10, 8)  # pixels of a point, the largest that fits is taken

Pixels = npt.NDArray[np.uint8]


def draw_cover(title: str, author: str) -> Pixels:
    """Return a square picture, uint8 [SIDE, SIDE, 3], with the colours of the title's digest.

    A text in a script without letters here is left out, and the pattern stands for it.
    """
    digest = hashlib.sha256(title.encode(errors="replace")).digest()
    picture = _background(digest)
    if can_write(title):
        _write(picture, title, top=260, height=700, scales=_SCALES)
    if can_write(author):
        _write(picture, author, top=1120, height=160, scales=_SCALES[3:])
    return picture


def can_write(text: str) -> bool:
    """Whether every character of a text has a shape here, and there is one to see."""
    return bool(text.strip()) and all(base in GLYPHS for base, _ in _points(text))


def _background(digest: bytes) -> Pixels:
    """Return a dark gradient with two rules and a row of bars that no other title has."""
    hue = np.array([40 + digest[0] % 60, 40 + digest[1] % 60, 60 + digest[2] % 70], np.float64)
    shade = np.linspace(1.25, 0.55, SIDE)[:, None, None]
    picture = np.clip(np.broadcast_to(hue * shade, (SIDE, SIDE, 3)), 0, 255).astype(np.uint8)
    for top in (180, 1040):
        picture[top : top + 8, _MARGIN : SIDE - _MARGIN] = (226, 205, 150)
    width = (SIDE - 2 * _MARGIN) // len(digest)
    for index, value in enumerate(digest):
        left = _MARGIN + index * width
        picture[1060 : 1066 + value // 8, left : left + width - 8] = (150, 140, 120)
    return picture


def _write(picture: Pixels, text: str, *, top: int, height: int, scales: tuple[int, ...]) -> None:
    """Write centred lines at the largest scale that leaves none out."""
    room = SIDE - 2 * _MARGIN
    for scale in scales:
        lines = _lines(text, room // (_LETTER[0] * scale))
        most = min(_MAX_LINES, height // (_LETTER[1] * scale))
        if len(lines) <= most:
            break
    else:
        lines = lines[:most]
        lines[-1] = lines[-1][:-3] + "..."
    for number, line in enumerate(lines):
        points = _points(line)
        left = (SIDE - len(points) * _LETTER[0] * scale) // 2
        for place, (base, marks) in enumerate(points):
            shape = np.kron(_shape(base, marks), np.ones((scale, scale), bool))
            x, y = left + place * _LETTER[0] * scale, top + number * _LETTER[1] * scale
            picture[y : y + shape.shape[0], x : x + shape.shape[1]][shape] = (245, 238, 220)


def _lines(text: str, columns: int) -> list[str]:
    """Return a text cut between words into lines of so many letters; a long word is cut."""
    lines = [""]
    for word in text.split():
        for start in range(0, len(word), columns):
            piece = word[start : start + columns]
            joined = f"{lines[-1]} {piece}".strip()
            if len(joined) <= columns and start == 0:
                lines[-1] = joined
            else:
                lines.append(piece)
    return [line for line in lines if line]


def _points(text: str) -> list[tuple[str, str]]:
    """Return capital letters with their accents."""
    found: list[tuple[str, str]] = []
    folded = unicodedata.normalize("NFKD", " ".join(text.split()).upper())
    for character in folded:
        if unicodedata.combining(character) and found:
            base, marks = found[-1]
            found[-1] = (base, marks + character)
        else:
            found.append((character, ""))
    return found


def _shape(base: str, marks: str) -> npt.NDArray[np.bool_]:
    """Return a letter's points, bool [10, 5]: two rows of accents, seven of letter, one below."""
    shape = np.zeros((10, 5), bool)
    shape[2:9] = [[int(bit) for bit in f"{row:05b}"] for row in GLYPHS[base]]
    for mark in marks:
        for row, column in MARKS.get(mark, ()):
            shape[row, column] = True
    return shape


KEPT_PIXELS = 3000  # a side up to this is kept as it came
_SHRUNK_PIXELS = 2400
_CODECS = {"jpeg": "mjpeg", "png": "png", "webp": "webp"}
_MEDIA_TYPES = {"jpeg": "image/jpeg", "png": "image/png"}
_JPEG_QUALITY = 3  # of 2 (best) to 31


def book_cover(given: bytes | None, facts: BookFacts) -> Cover:
    """Return the cover of a book: the given one, or one with its title where there is none.

    Raises:
        BookFileError: the given one is no image that can be used; the message says why.
    """
    if given is not None:
        return check_cover(given)
    pixels = draw_cover(facts.title, ", ".join(facts.authors))
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    return Cover("image/jpeg", _encode_jpeg(frame.reformat(format="yuvj420p")))


def cover_name(cover: Cover) -> str:
    return "cover.png" if cover.media_type == "image/png" else "cover.jpg"


def check_cover(content: bytes) -> Cover:
    """Return a cover as files carry it, JPEG or PNG; its header is checked before it is decoded.

    Raises:
        BookFileError: `cover_unreadable` or `cover_too_large`.
    """
    size = image_size(content)
    if size is None or size.width == 0 or size.height == 0:
        raise BookFileError(
            "cover_unreadable", "The cover is not a JPEG, PNG or WebP image; use a JPEG."
        )
    if len(content) > MAX_COVER_BYTES or size.width * size.height > MAX_COVER_PIXELS:
        raise BookFileError(
            "cover_too_large",
            f"The cover has {size.width} x {size.height} pixels and {len(content)} bytes; "
            f"at most {MAX_COVER_PIXELS} pixels and {MAX_COVER_BYTES} bytes are allowed. "
            "Use a smaller image.",
        )
    frame = _decode_image(content, size)
    if size.format in _MEDIA_TYPES and max(size.width, size.height) <= KEPT_PIXELS:
        return Cover(_MEDIA_TYPES[size.format], content)
    scale = min(1.0, _SHRUNK_PIXELS / max(frame.width, frame.height))
    width, height = (max(2, round(side * scale / 2) * 2) for side in (frame.width, frame.height))
    small = frame.reformat(width=width, height=height, format="yuvj420p")
    return Cover("image/jpeg", _encode_jpeg(small))


def _decode_image(content: bytes, size: ImageSize) -> Any:
    """Return the image as a frame; the decoder itself is bounded too, should the header lie."""
    decoder: Any = av.CodecContext.create(_CODECS[size.format], "r")
    decoder.options = {"max_pixels": str(MAX_COVER_PIXELS)}
    try:
        return [*decoder.decode(av.Packet(content)), *decoder.decode(None)][0]
    except (av.FFmpegError, ValueError, IndexError) as error:  # the last: there is no picture
        raise BookFileError(
            "cover_unreadable",
            "The cover is damaged: its image cannot be decoded. Upload it again.",
        ) from error


def _encode_jpeg(frame: Any) -> bytes:
    encoder: Any = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "yuvj420p"
    encoder.time_base = Fraction(1)
    encoder.options = {"qmin": "2", "qmax": str(_JPEG_QUALITY)}
    frame.pts = 0
    packets = [*encoder.encode(frame), *encoder.encode(None)]
    return b"".join(map(bytes, packets))
