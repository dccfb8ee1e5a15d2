"""Draw a plain cover with a book's title: letters of five by seven points, in numpy alone."""

from __future__ import annotations

import hashlib
import unicodedata

import numpy as np
import numpy.typing as npt

from workers.book_files.cover_letters import GLYPHS, MARKS

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
    drawn = _points(text)
    return bool(text.strip()) and all(base in GLYPHS for base, _ in drawn)


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
        fits = len(lines) <= min(_MAX_LINES, height // (_LETTER[1] * scale))
        if fits:
            break
    else:
        lines = lines[: min(_MAX_LINES, height // (_LETTER[1] * scale))]
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
