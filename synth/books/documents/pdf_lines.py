"""Read the lines of a PDF's page with their places, and tell running heads from text."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import median

from pypdfium2 import PdfDocument, PdfTextPage
from pypdfium2 import raw as pdfium

from synth.books.book import count_chars
from synth.books.documents.labels import is_bare_number, is_label
from synth.text.numbers import sum_numeral

_MIN_LINES = 4  # that stand side by side
_MIN_CHARS = 10  # of the lines of a column, in the median; fewer are cells and page numbers
_MIN_WIDTH = 0.18  # of a column, of the width of the text
_MAX_CROSSING = 0.34  # of the lines: heads and titles over all columns
_MIN_GAP = 0.7  # of the height of letters; words of one line stand closer
_MAX_CANDIDATES = 24
_SLACK = 1.0  # points


@dataclass(frozen=True, slots=True)
class Word:
    """Hold a word of a line and its edges, in points."""

    text: str
    left: float
    right: float


@dataclass(frozen=True)
class WordLine:
    """Hold the words of one line, their height and the middle of the line, in points."""

    words: tuple[Word, ...]
    middle: float
    height: float

    @cached_property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @cached_property
    def left(self) -> float:
        return self.words[0].left

    @cached_property
    def right(self) -> float:
        return max(word.right for word in self.words)

    def cut(self, place: float) -> tuple[WordLine | None, WordLine | None] | None:
        """Return the parts on both sides of a place; None where words stand over it."""
        left = tuple(word for word in self.words if word.right <= place + _SLACK)
        right = self.words[len(left) :]
        if any(word.left < place - _SLACK for word in right):
            return None
        if left and right and right[0].left - left[-1].right < _MIN_GAP * self.height:
            return None
        return (
            replace(self, words=left) if left else None,
            replace(self, words=right) if right else None,
        )


def in_reading_order(lines: Sequence[WordLine]) -> list[WordLine] | None:
    """Return the lines of all columns, one column after the other; None for a page of one column.

    Lines over all columns part what is above them from what is below. Columns are moved to where
    the first of them begins, so that the edges of their lines can be compared.
    """
    place = _gutter(lines)
    if place is None:
        return None
    ordered: list[WordLine] = []
    columns: tuple[list[WordLine], list[WordLine]] = ([], [])
    for line in sorted(lines, key=lambda line: -line.middle):
        if not _put(line, place, columns):
            ordered += [*_columns(*columns), line]
            columns = ([], [])
    return ordered + _columns(*columns)


def _put(line: WordLine, place: float, columns: tuple[list[WordLine], list[WordLine]]) -> bool:
    """Append the parts of a line to two columns; False where it stands over both."""
    parts = line.cut(place)
    for part, column in zip(parts or (), columns, strict=False):
        column += [part] if part is not None else []
    return parts is not None


def _columns(lefts: list[WordLine], rights: list[WordLine]) -> list[WordLine]:
    """Return the lines of two columns, each of which may be two itself."""
    first = in_reading_order(lefts) or lefts
    second = in_reading_order(rights) or rights
    if not (first and second):
        return [*first, *second]
    by = min(line.left for line in second) - min(line.left for line in first)
    moved = (
        (line, tuple(Word(word.text, word.left - by, word.right - by) for word in line.words))
        for line in second
    )
    return [*first, *(replace(line, words=words) for line, words in moved)]


def _gutter(lines: Sequence[WordLine]) -> float | None:
    """Return where the gap between two columns ends, if there are any."""
    if len(lines) < _MIN_LINES:
        return None
    low, high = min(line.left for line in lines), max(line.right for line in lines)
    width = high - low
    # Where a line, or something in it behind a wide gap, begins.
    starts: Counter[int] = Counter()
    for line in lines:
        gaps = ((one.right, other.left) for one, other in pairwise(line.words))
        wide = [start for end, start in gaps if start - end >= _MIN_GAP * line.height]
        starts.update(round(x) for x in (line.left, *wide) if x > low + _MIN_WIDTH * width)
    best: tuple[int, float] | None = None
    for start, _ in starts.most_common(_MAX_CANDIDATES):
        place = start - 2.0
        crossing = _count_crossing(lines, place, width)
        if crossing is not None and (best is None or crossing < best[0]):
            best = (crossing, place)
    return None if best is None else best[1]


def _count_crossing(lines: Sequence[WordLine], place: float, width: float) -> int | None:
    """Return how many lines stand over a place; None where there are no columns beside it."""
    columns: tuple[list[WordLine], list[WordLine]] = ([], [])
    crossing = sum(not _put(line, place, columns) for line in lines)
    if crossing > _MAX_CROSSING * (sum(map(len, columns)) + crossing):
        return None
    if min(map(len, columns)) < _MIN_LINES:
        return None
    for column, other in (columns, columns[::-1]):
        bottom, top = min(one.middle for one in other), max(one.middle for one in other)
        beside = [one for one in column if bottom - one.height <= one.middle <= top + one.height]
        if (
            len(beside) < _MIN_LINES
            or median(len(one.text) for one in beside) < _MIN_CHARS
            or median(one.right - one.left for one in beside) < _MIN_WIDTH * width
        ):
            return None
    return crossing


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
_MARGIN = 0.06  # of a page's height; text does not reach so far
_LARGEST = 1.25  # how much higher than the text a running head may be
_NEAR = 4.0  # points between the places of the same running head on two pages


@dataclass(frozen=True, slots=True)
class Page:
    """Hold the lines of a page, top down as the file has them, and its height in points."""

    number: int
    lines: tuple[WordLine, ...]
    height: float
    num_unknown: int = 0  # characters that the file's fonts give no letter for

    @property
    def source_chars(self) -> int:
        return sum(count_chars(line.text) for line in self.lines)


@dataclass(frozen=True, slots=True)
class _Edge:
    """Hold a line near the top or the bottom of a page."""

    page: Page
    place: int
    line: WordLine


def read_page(document: PdfDocument, number: int) -> Page:
    """Return a page's lines.

    Raises:
        pypdfium2.PdfiumError: the page is damaged.
    """
    page = document[number]
    text = page.get_textpage()
    try:
        lines, num_unknown = _lines(text)
        return Page(
            number, tuple(in_reading_order(lines) or lines), float(page.get_height()), num_unknown
        )
    finally:
        text.close()
        page.close()


def _lines(text: PdfTextPage) -> tuple[list[WordLine], int]:
    lines: list[WordLine] = []
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


def _line(text: PdfTextPage, parts: list[str], places: list[int]) -> list[WordLine]:
    """Return the line of these characters, as words.

    Args:
        places: where the characters that are no blanks are in the page's text.
    """
    joined = unicodedata.normalize("NFC", "".join(parts).translate(_LIGATURES)).strip()
    if not joined or not places:
        return []
    _, low, _, high = text.get_charbox(places[0], loose=True)
    words: list[Word] = []
    start = 0
    for word in "".join(parts).split():
        # A hyphen at the line's end is no character of the page.
        end = min(start + len(word), len(places))
        if start >= end:
            words[-1] = replace(words[-1], text=words[-1].text + word)
            break
        left = text.get_charbox(places[start], loose=True)[0]
        right = text.get_charbox(places[end - 1], loose=True)[2]
        said = unicodedata.normalize("NFC", word.translate(_LIGATURES))
        words.append(Word(said, left, right))
        start = end
    return [WordLine(tuple(words), (low + high) / 2, abs(high - low))]


def find_running(pages: list[Page]) -> set[tuple[int, int]]:
    """Return (number of page, of line) of running heads and feet and page numbers.

    A head stands at the same height with the same words on several pages; numbers in it must be
    the same, too, or grow with the pages, for "Chapter 3" stands there as well. What is larger
    than the text is a heading. Of two pages, only a line in the margin of both is a head.
    """
    is_pair = len(pages) == 2
    heights = [line.height for page in pages for line in page.lines for _ in line.text[:100]]
    largest = _LARGEST * median(heights) if heights else 0.0
    seen: dict[str, list[_Edge]] = defaultdict(list)
    numbers: list[tuple[_Edge, int]] = []
    for page in pages:
        order = sorted(range(len(page.lines)), key=lambda place: -page.lines[place].middle)
        for place in sorted({*order[:_EDGE_LINES], *order[-_EDGE_LINES:]}):
            line = page.lines[place]
            if line.height > largest:
                continue
            edge = _Edge(page, place, line)
            margin = _MARGIN * page.height
            if not is_pair or not margin < line.middle < page.height - margin:
                seen[_NUMBER.sub("#", line.text.casefold())].append(edge)
            match = _PAGE_NUMBER.match(line.text)
            if match is not None:
                numbers.append((edge, _value(match[1]) - page.number))
    least = 2 if is_pair else _MIN_RETURNS
    found = {place for edges in seen.values() for place in _find_returning(edges, least)}
    offsets = Counter(offset for _, offset in numbers)
    for edge, offset in numbers:
        page = edge.page
        is_outermost = edge.place in (0, len(page.lines) - 1) and len(page.lines) > 1
        is_at_edge = not 0.1 * page.height < edge.line.middle < 0.9 * page.height
        if is_outermost and (offsets[offset] > 1 or is_at_edge):
            found.add((page.number, edge.place))
    return found


def _find_returning(edges: list[_Edge], least: int) -> Iterator[tuple[int, int]]:
    """Yield the places of those of lines with the same words that are one running head."""
    # Lines of several columns are on one page.
    if len({edge.page.number for edge in edges}) < least:
        return
    middle = median(edge.line.middle for edge in edges)
    near = [edge for edge in edges if abs(edge.line.middle - middle) <= _NEAR]
    said = Counter(edge.line.text.casefold() for edge in near)
    numbers = [[_value(n) for n in _NUMBER.findall(edge.line.text)] for edge in near]
    grown: set[int] = set()
    for values in zip(*numbers, strict=False):
        offsets = [value - edge.page.number for value, edge in zip(values, near, strict=True)]
        counts = Counter(offsets)
        grown |= {i for i, offset in enumerate(offsets) if counts[offset] >= least}
    for index, edge in enumerate(near):
        text = edge.line.text
        # "Chapter 3" grows with the pages, too, in a book of short ones.
        is_grown = index in grown and (not is_label(text) or is_bare_number(text))
        if is_grown or said[text.casefold()] >= least:
            yield edge.page.number, edge.place


def _value(word: str) -> int:
    return int(word) if word.isdigit() else sum_numeral(word.upper())
