"""Read the lines of a PDF's page with their places, and tell running heads from text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from statistics import median

from pypdfium2 import PdfDocument, PdfTextPage
from pypdfium2 import raw as pdfium

from synth.books.book import count_chars

SOFT_HYPHEN = "\u00ad"  # stands for a hyphen that the typesetter put at a line's end
_LINE_HYPHENS = frozenset({0x02, 0xFFFE})  # PDFium's for a hyphen and the line end after it
_LIGATURES = str.maketrans(
    {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"}
)
_MAX_CHARS_A_PAGE = 200_000
_NUMBER = re.compile(r"\d+|\b[ivxlc]+\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(
    r"[\[(—–-]*\s*(?:(?:page|seite|p\.|s\.)\s*)?(\d{1,4}|[ivxlc]{1,7})"  # noqa: RUF001
    r"(?:\s*(?:/|of|von|de|sur)\s*\d{1,4})?\s*[\])—–-]*\Z",  # noqa: RUF001
    re.IGNORECASE,
)
_EDGE_LINES = 3  # how many lines at the top and the bottom may be running heads
_MIN_RETURNS = 3
_NEAR = 4.0  # points between the places of the same running head on two pages


@dataclass(frozen=True, slots=True)
class PdfLine:
    """Hold one line: its text and, in points, its edges, middle and height."""

    text: str
    left: float
    right: float
    middle: float
    height: float


@dataclass(frozen=True, slots=True)
class Page:
    """Hold the lines of a page, top down as the file has them, and its height in points."""

    number: int
    lines: tuple[PdfLine, ...]
    height: float
    num_unknown: int = 0  # characters that the file's fonts give no letter for

    @property
    def source_chars(self) -> int:
        """Return the characters that are no blanks."""
        return sum(count_chars(line.text) for line in self.lines)


def read_page(document: PdfDocument, number: int) -> Page:
    """Return a page's lines.

    Raises:
        pypdfium2.PdfiumError: the page is damaged.
    """
    page = document[number]
    text = page.get_textpage()
    try:
        lines, num_unknown = _lines(text)
        return Page(number, tuple(lines), float(page.get_height()), num_unknown)
    finally:
        text.close()
        page.close()


def _lines(text: PdfTextPage) -> tuple[list[PdfLine], int]:
    lines: list[PdfLine] = []
    parts: list[str] = []
    places: list[int] = []
    num_unknown = 0
    for index in range(min(text.count_chars(), _MAX_CHARS_A_PAGE)):
        code = int(pdfium.FPDFText_GetUnicode(text, index))
        if code in (0x0A, 0x0D):
            lines += _line(text, parts, places)
            parts, places = [], []
        elif code in _LINE_HYPHENS:
            lines += _line(text, [*parts, SOFT_HYPHEN], places)
            parts, places = [], []
        elif code == 0 or 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
            num_unknown += 1
        else:
            character = chr(code)
            is_control = unicodedata.category(character) == "Cc"
            parts.append(" " if is_control else character)
            num_unknown += character == "\ufffd" or unicodedata.category(character) == "Co"
            if not character.isspace():
                places.append(index)
    return lines + _line(text, parts, places), num_unknown


def _line(text: PdfTextPage, parts: list[str], places: list[int]) -> list[PdfLine]:
    joined = unicodedata.normalize("NFC", "".join(parts).translate(_LIGATURES)).strip()
    if not joined or not places:
        return []
    left, low, _, high = text.get_charbox(places[0], loose=True)
    right = text.get_charbox(places[-1], loose=True)[2]
    return [PdfLine(joined, left, right, (low + high) / 2, abs(high - low))]


def find_running(pages: list[Page]) -> set[tuple[int, int]]:
    """Return (number of page, of line) of running heads and feet and page numbers.

    A head stands at the same height with the same words, numbers aside, on several pages. A page
    number grows with the pages, or stands alone at the very bottom or top.
    """
    seen: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    found: set[tuple[int, int]] = set()
    numbers: list[tuple[int, int, int]] = []
    for page in pages:
        for place in _edges(page):
            line = page.lines[place]
            key = _NUMBER.sub("#", line.text.casefold())
            seen[key].append((page.number, place, line.middle))
            match = _PAGE_NUMBER.match(line.text)
            if match is not None:
                numbers.append((page.number, place, _value(match[1]) - page.number))
    for places in seen.values():
        if len(places) < _MIN_RETURNS:
            continue
        middle = median(height for _, _, height in places)
        near = [place for place in places if abs(place[2] - middle) <= _NEAR]
        if len(near) >= _MIN_RETURNS:
            found |= {(number, place) for number, place, _ in near}
    offsets = Counter(offset for _, _, offset in numbers)
    for number, place, offset in numbers:
        page = next(page for page in pages[number : number + 1])
        is_outermost = place in (0, len(page.lines) - 1) and len(page.lines) > 1
        if is_outermost and (offsets[offset] > 1 or _is_at_edge(page, page.lines[place])):
            found.add((number, place))
    return found


def _edges(page: Page) -> list[int]:
    """Return the lines nearest to the top and the bottom of a page."""
    order = sorted(range(len(page.lines)), key=lambda place: -page.lines[place].middle)
    return sorted({*order[:_EDGE_LINES], *order[-_EDGE_LINES:]})


def _is_at_edge(page: Page, line: PdfLine) -> bool:
    return not 0.1 * page.height < line.middle < 0.9 * page.height


def _value(word: str) -> int:
    if word.isdigit():
        return int(word)
    values = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
    digits = [values[letter] for letter in word.lower()]
    pairs = zip(digits, [*digits[1:], 0], strict=True)
    return sum(-one if one < following else one for one, following in pairs)
