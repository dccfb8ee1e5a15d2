"""Read a PDF with embedded text as a book: paragraphs again, without running heads."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from pypdfium2 import PdfDocument, PdfiumError

from synth.books.book import (
    Block,
    BlockKind,
    Book,
    BookRejectedError,
    Document,
    Metadata,
    TocEntry,
    count_chars,
)
from synth.books.documents.html import check_complete, toc_of
from synth.books.documents.labels import is_bare_number, is_label
from synth.books.documents.markup import is_ornament
from synth.books.documents.pdf_lines import SOFT_HYPHEN, Page, WordLine, find_running, read_page
from synth.books.txt.headings import Heading, find_heading, normalised
from synth.books.txt.lines import Group, Layout, Line, join_lines, polish
from ttsweb.refusals import counted

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


class PageBlock(NamedTuple):
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
    lines: list[WordLine]
    role: str = ""
    is_apart: bool = False  # a wide gap comes before


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
    found: set[str] = set()  # whole words of the text: a line's end cuts some
    is_cut = False
    for line in text_lines:
        words = _WORDS.findall(line.text)[1 if is_cut else 0 :]
        is_cut = line.text.endswith((SOFT_HYPHEN, "-"))
        found.update(word.lower() for word in (words[:-1] if is_cut else words))
    layout = Layout(0, soft_hyphens=True, words=frozenset(found))
    pieces = _pieces(pages, running, _notes(pages, running, measures), measures)
    return list(_blocks(pieces, measures, layout))


def _furniture(line: WordLine) -> Block:
    return Block(BlockKind.FURNITURE, _clean(line.text), count_chars(line.text), role="pagebreak")


def _measure(pages: list[Page], lines: list[WordLine]) -> _Measures:
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
        below: WordLine | None = None
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
        before: WordLine | None = None
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
            before = line
            if open_piece is not None and not is_new:
                open_piece.lines.append(line)
                continue
            yield from [*([open_piece] if open_piece else []), *aside]
            open_piece, aside = _Piece(page.number, [line], is_apart=is_apart), []
    yield from [*([open_piece] if open_piece else []), *aside]


def _begins(
    piece: _Piece | None, before: WordLine | None, line: WordLine, measures: _Measures
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
        if is_large and gap >= -measures.gap:  # in the same column
            return False, False
    if last.text.endswith((SOFT_HYPHEN, "-")):
        return False, False
    is_indented = line.left - measures.left > _INDENT and line.left - last.left > _INDENT
    ends = bool(_FULL_STOP.search(last.text))
    is_short = last.right < measures.left + 0.85 * (measures.right - measures.left)
    if before is None:
        return (is_indented and ends) or (ends and is_short), False
    return (is_indented and (ends or is_short)) or (is_short and ends), False


def _blocks(pieces: Iterator[_Piece], measures: _Measures, layout: Layout) -> Iterator[PageBlock]:
    num_headings = 0
    for piece in pieces:
        chars = sum(count_chars(line.text) for line in piece.lines)
        lines = (line.text.replace(SOFT_HYPHEN, "-") for line in piece.lines)
        text = polish(join_lines(lines, layout))
        if piece.role == _NOTE:
            block = Block(BlockKind.NOTE, text, chars, role=_NOTE)
        elif piece.role:
            block = _furniture(piece.lines[0])
        elif is_ornament(text):
            block = Block(BlockKind.BREAK, text, chars)
        elif level := _heading_level(piece, text, measures):
            num_headings += 1
            anchors = (f"h{num_headings}",)
            block = Block(BlockKind.HEADING, text, chars, level=level, anchors=anchors)
        else:
            block = Block(BlockKind.PARAGRAPH, text, chars)
        yield PageBlock(block, piece.page)


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


def _clean(text: str) -> str:
    return " ".join(text.replace(SOFT_HYPHEN, "-").split())


_TEXTS = frozenset({BlockKind.PARAGRAPH, BlockKind.HEADING})


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Hold an entry of the outline: its title, level from 1 and page from 0."""

    title: str
    level: int
    page: int


def link_contents(
    blocks: list[PageBlock], bookmarks: list[Bookmark], path: str
) -> tuple[list[PageBlock], tuple[TocEntry, ...]]:
    """Return the blocks with anchors for the outline, and the contents that the outline is.

    An entry leads to the block on its page that says the same, else to the first that begins on
    it.
    """
    blocks = list(blocks)
    places: dict[int, list[int]] = {}
    for index, (block, page) in enumerate(blocks):
        if block.kind in _TEXTS:
            places.setdefault(page, []).append(index)
    entries: list[TocEntry] = []
    for number, mark in enumerate(bookmarks, start=1):
        place, is_title = _target(blocks, places, mark)
        if place is None:
            continue
        (block, page), anchor = blocks[place], f"outline-{number}"
        if is_title:
            block = replace(block, kind=BlockKind.HEADING, level=min(mark.level, 6))
        blocks[place] = PageBlock(replace(block, anchors=(*block.anchors, anchor)), page)
        entries.append(TocEntry(mark.title, path, anchor, mark.level))
    return blocks, tuple(entries)


def _target(
    blocks: list[PageBlock], places: dict[int, list[int]], mark: Bookmark
) -> tuple[int | None, bool]:
    title = normalised(mark.title)
    on_page = places.get(mark.page, [])
    for index in on_page:
        block = blocks[index].block
        said = normalised(block.text)
        is_part = len(said) >= 3 and (title.endswith(f" {said}") or said.endswith(f" {title}"))
        if said == title or (is_part and block.kind is BlockKind.HEADING):
            return index, True
    if on_page:
        return on_page[0], False
    later = [page for page in places if page > mark.page]
    return (places[min(later)][0], False) if later else (None, False)


MAX_PAGES = 5_000
MAX_CHARS = 20_000_000
_MAX_SECONDS = 240.0
_MIN_CHARS_A_PAGE = 10  # scanned books often carry a stamp of text on each page
_PASSWORD_ERROR, _SECURITY_ERROR = 4, 5  # FPDF_ERR_PASSWORD, FPDF_ERR_SECURITY


def read_pdf(raw: bytes, filename: str) -> Book:
    """Return the book that a PDF holds.

    Raises:
        BookRejectedError: `book_broken`, `book_encrypted`, `book_drm`, `book_too_large`,
            `pdf_without_text`.
    """
    try:
        with contextlib.closing(PdfDocument(raw)) as document:
            pages = _read_pages(document)
            bookmarks = _bookmarks(document)
            metadata = _metadata(document)
    except PdfiumError as error:
        raise _refusal_of(error) from error
    chars = sum(page.source_chars for page in pages)
    letters = sum(c.isalpha() for page in pages for line in page.lines for c in line.text)
    if letters == 0 or (len(pages) >= 3 and chars < _MIN_CHARS_A_PAGE * len(pages)):
        raise BookRejectedError(
            "pdf_without_text",
            "The PDF has pictures of pages but no text. Run text recognition (OCR) on it "
            "first, or send an EPUB.",
        )
    blocks, toc = link_contents(blocks_of_pages(pages), bookmarks, filename)
    read = Document(filename, tuple(block for block, _ in blocks), chars)
    check_complete(read)
    toc = toc if bookmarks else toc_of(read)
    title = metadata.title or filename.rpartition(".")[0] or filename
    return Book(replace(metadata, title=title), (read,), toc, warnings=_warnings(pages))


def _refusal_of(error: PdfiumError) -> BookRejectedError:
    code, message = getattr(error, "err_code", None), str(error).lower()
    if code == _PASSWORD_ERROR or "password" in message:
        return BookRejectedError(
            "book_encrypted",
            "The PDF is protected by a password; save an unprotected copy and send that.",
        )
    if code == _SECURITY_ERROR or "security" in message:
        return BookRejectedError(
            "book_drm", "The PDF is protected by DRM and cannot be read; send a file without DRM."
        )
    return BookRejectedError(
        "book_broken", f"The PDF is damaged ({error}). Print it to a new PDF and send that."
    )


def _read_pages(document: PdfDocument) -> list[Page]:
    pages: list[Page] = []
    num_chars, started = 0, time.monotonic()
    what = f"{len(document)} pages; at most {MAX_PAGES} are allowed"
    if len(document) <= MAX_PAGES:
        for number in range(len(document)):
            if time.monotonic() - started > _MAX_SECONDS:
                what = f"pages that take more than {_MAX_SECONDS:.0f} seconds to read"
                break
            pages.append(read_page(document, number))
            num_chars += pages[-1].source_chars
            if num_chars > MAX_CHARS:
                what = f"more than {MAX_CHARS} characters"
                break
        else:
            return pages
    raise BookRejectedError("book_too_large", f"The PDF has {what}. Split it into parts.")


def _warnings(pages: list[Page]) -> tuple[str, ...]:
    warnings = ["Paragraphs and headings of a PDF are guessed, so check the plan."]
    empty = [page.number + 1 for page in pages if not page.source_chars]
    if empty:
        shown = ", ".join(map(str, empty[:10])) + (" ..." if len(empty) > 10 else "")
        warnings.append(f"{counted(len(empty), 'page')} without text: {shown}")
    unknown = sum(page.num_unknown for page in pages)
    if unknown:
        warnings.append(
            f"The PDF has {counted(unknown, 'character')} that no letter is known for: its "
            "fonts are unusual."
        )
    return tuple(warnings)


def _bookmarks(document: PdfDocument) -> list[Bookmark]:
    found: list[Bookmark] = []
    try:
        for item in document.get_toc(max_depth=6):
            title = " ".join(re.sub("[\0\ud800-\udfff]", "", item.get_title() or "").split())
            target = item.get_dest()
            page = target.get_index() if target is not None else None
            if title and page is not None:
                found.append(Bookmark(title, item.level + 1, page))
            if len(found) >= 5_000:
                break
    except (PdfiumError, UnicodeError, ValueError):
        return found
    return found


def _metadata(document: PdfDocument) -> Metadata:
    try:
        found = document.get_metadata_dict(skip_empty=True)
    except (PdfiumError, UnicodeError):
        return Metadata()
    clean = {key: " ".join(value.replace("\0", "").split()) for key, value in found.items()}
    date = re.match(r"D:(\d{4})(\d\d)?(\d\d)?", clean.get("CreationDate", ""))
    return Metadata(
        title=clean.get("Title", ""),
        authors=tuple(a.strip() for a in clean.get("Author", "").split(";") if a.strip()),
        date="-".join(part for part in date.groups() if part) if date else "",
        subjects=tuple(s.strip() for s in clean.get("Keywords", "").split(",") if s.strip()),
    )
