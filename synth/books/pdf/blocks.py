"""Join the lines of a PDF to paragraphs again, over lines and pages, and find its headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from synth.books.book import Block, BlockKind, count_chars
from synth.books.documents.labels import is_bare_number, is_label
from synth.books.documents.markup import is_ornament
from synth.books.pdf.lines import SOFT_HYPHEN, Page, PdfLine, find_running
from synth.books.txt.headings import Heading, find_heading
from synth.books.txt.lines import Group, Layout, Line, join_lines, polish

_WORDS = re.compile(r"[^\W\d_]+(?:[-\u2010'\u2019][^\W\d_]+)*")
_FULL_STOP = re.compile(r"[.!?…:»”\"\u2019)\]]\Z")
_LARGE = 1.15  # how much higher than the text a heading's letters are
_WIDE = 1.45  # how much wider than between lines the gap between paragraphs is
_INDENT = 6.0  # points
_SMALL = 0.88  # how high the letters of a footnote are at most, of those of the text
_NOTE_MARK = re.compile(r"(?:\[?\d{1,3}[\].)]?|[*†‡§¶]{1,3})\s*[^\W\d_\"'(“‘«]?[\w\"'(“‘«]")  # noqa: RUF001
_NOTE = "footnote"
_MAX_HEADING_LINES = 4
_MAX_HEADING_CHARS = 200


@dataclass(frozen=True, slots=True)
class PageBlock:
    """Hold a block and the page that it begins on, counted from 0."""

    block: Block
    page: int


@dataclass(frozen=True, slots=True)
class _Measures:
    """Hold what is usual: heights of letters, gaps of lines, edges of the text, in points."""

    height: float
    gap: float
    left: float
    right: float


@dataclass(slots=True)
class _Piece:
    """Hold lines that belong together; `role` is set for what is no text."""

    page: int
    lines: list[PdfLine]
    role: str = ""
    is_apart: bool = False  # a wide gap comes before
    layout: Layout = field(default_factory=lambda: Layout(0))


def blocks_of_pages(pages: list[Page]) -> list[PageBlock]:
    """Return the blocks of all pages; each character of each line is in one block."""
    running = find_running(pages)
    text_lines = [
        line
        for page in pages
        for place, line in enumerate(page.lines)
        if (page.number, place) not in running
    ]
    if not text_lines:
        return [PageBlock(_furniture(line), page.number) for page in pages for line in page.lines]
    measures = _measure(pages, text_lines)
    layout = Layout(0, soft_hyphens=True, words=_whole_words(text_lines))
    pieces = _pieces(pages, running, _notes(pages, running, measures), measures)
    return list(_blocks(pieces, measures, layout))


def _whole_words(lines: list[PdfLine]) -> frozenset[str]:
    """Return the words of the text, lower case, without those that a line's end cuts."""
    found: set[str] = set()
    is_cut = False
    for line in lines:
        words = _WORDS.findall(line.text)[1 if is_cut else 0 :]
        is_cut = line.text.endswith((SOFT_HYPHEN, "-"))
        found.update(word.lower() for word in (words[:-1] if is_cut else words))
    return frozenset(found)


def _furniture(line: PdfLine) -> Block:
    return Block(BlockKind.FURNITURE, _clean(line.text), count_chars(line.text), role="pagebreak")


def _measure(pages: list[Page], lines: list[PdfLine]) -> _Measures:
    gaps = [
        one.middle - other.middle
        for page in pages
        for one, other in pairwise(page.lines)
        if 0 < one.middle - other.middle < 5 * max(one.height, 1.0)
    ]
    # Long lines are those of the text; by their number of characters they outweigh headings.
    long = sorted(lines, key=lambda line: -len(line.text))[: max(1, len(lines) // 2)]
    rights = sorted(line.right for line in long)
    return _Measures(
        height=median(line.height for line in long),
        gap=median(gaps) if gaps else 0.0,
        left=median(line.left for line in long),
        right=rights[int(0.9 * (len(rights) - 1))],
    )


def _notes(
    pages: list[Page], running: set[tuple[int, int]], measures: _Measures
) -> set[tuple[int, int]]:
    """Return (number of page, of line) of footnotes: small lines below a column, from a mark on."""
    found: set[tuple[int, int]] = set()
    for page in pages:
        below: PdfLine | None = None
        small: list[int] = []
        is_note = True  # nothing but what is small has followed in this column
        for place in reversed(range(len(page.lines))):
            line = page.lines[place]
            if (page.number, place) in running:
                continue
            if below is None or below.middle > line.middle:  # the last line of a column
                is_note, small = True, []
            below = line
            is_note = is_note and line.height <= _SMALL * measures.height
            if not is_note:
                continue
            small.append(place)
            if _NOTE_MARK.match(line.text):
                found |= {(page.number, one) for one in small}
                small = []
    return found


def _pieces(
    pages: list[Page],
    running: set[tuple[int, int]],
    notes: set[tuple[int, int]],
    measures: _Measures,
) -> Iterator[_Piece]:
    """Yield pieces in order; a paragraph that a page's end cuts is one piece."""
    open_piece: _Piece | None = None
    aside: list[_Piece] = []
    for page in pages:
        before: PdfLine | None = None
        for place, line in enumerate(page.lines):
            if (page.number, place) in running:
                aside.append(_Piece(page.number, [line], "pagebreak"))
                continue
            if (page.number, place) in notes:
                if _NOTE_MARK.match(line.text) or not aside or aside[-1].role != _NOTE:
                    aside.append(_Piece(page.number, [], _NOTE))
                aside[-1].lines.append(line)
                continue
            is_new, is_apart = _begins(open_piece, before, line, measures)
            if open_piece is not None and not is_new:
                open_piece.lines.append(line)
            else:
                if open_piece is not None:
                    yield open_piece
                yield from aside
                aside = []
                open_piece = _Piece(page.number, [line], is_apart=is_apart)
            before = line
    if open_piece is not None:
        yield open_piece
    yield from aside


def _begins(
    piece: _Piece | None, before: PdfLine | None, line: PdfLine, measures: _Measures
) -> tuple[bool, bool]:
    """Return whether a line begins a paragraph, and whether a wide gap says so.

    Args:
        before: the line above on the same page; None for a page's first.
    """
    if piece is None:
        return True, True
    last = piece.lines[-1]
    if abs(line.height - last.height) > (_LARGE - 1) * measures.height:
        return True, True
    if before is None and is_label(line.text) and not is_bare_number(line.text):
        return True, True
    is_large = line.height > _LARGE * measures.height
    if before is not None:
        gap = before.middle - line.middle
        if gap > _WIDE * measures.gap:
            # A heading's lines stand wider apart than those of the text.
            return not (is_large and gap < 2.2 * line.height), True
        if gap < -measures.gap:
            is_apart = False  # another column
        elif is_large:
            return False, False
    is_apart = False
    if last.text.endswith((SOFT_HYPHEN, "-")):
        return False, is_apart
    is_indented = line.left - measures.left > _INDENT and line.left - last.left > _INDENT
    ends = bool(_FULL_STOP.search(last.text))
    is_short = last.right < measures.left + 0.85 * (measures.right - measures.left)
    if before is None:
        return (is_indented and ends) or (ends and is_short), False
    return (is_indented and (ends or is_short)) or (is_short and ends), is_apart


def _blocks(pieces: Iterator[_Piece], measures: _Measures, layout: Layout) -> Iterator[PageBlock]:
    num_headings = 0
    for piece in pieces:
        chars = sum(count_chars(line.text) for line in piece.lines)
        text = _joined(piece.lines, layout)
        if piece.role == _NOTE:
            yield PageBlock(Block(BlockKind.NOTE, text, chars, role=_NOTE), piece.page)
        elif piece.role:
            yield PageBlock(_furniture(piece.lines[0]), piece.page)
        elif is_ornament(text):
            yield PageBlock(Block(BlockKind.BREAK, text, chars), piece.page)
        elif level := _heading_level(piece, text, measures):
            num_headings += 1
            anchors = (f"h{num_headings}",)
            block = Block(BlockKind.HEADING, text, chars, level=level, anchors=anchors)
            yield PageBlock(block, piece.page)
        else:
            yield PageBlock(Block(BlockKind.PARAGRAPH, text, chars), piece.page)


def _heading_level(piece: _Piece, text: str, measures: _Measures) -> int:
    """Return the level of a heading, by its height and words, or 0."""
    if len(piece.lines) > _MAX_HEADING_LINES or len(text) > _MAX_HEADING_CHARS:
        return 0
    if not any(c.isalnum() for c in text):
        return 0
    height = max(line.height for line in piece.lines) / max(measures.height, 0.1)
    if height > _LARGE:
        return 1 if height > 1.4 else 2
    lines = [Line(_clean(line.text), 0) for line in piece.lines]
    found: Heading | None = find_heading(Group(lines, 2)) if piece.is_apart else None
    return 2 if found is not None and found.rank not in {"numeral", "titled"} else 0


def _joined(lines: list[PdfLine], layout: Layout) -> str:
    text = join_lines((line.text.replace(SOFT_HYPHEN, "-") for line in lines), layout)
    return polish(text)


def _clean(text: str) -> str:
    return " ".join(text.replace(SOFT_HYPHEN, "-").split())
