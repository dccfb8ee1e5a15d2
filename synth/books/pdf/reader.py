"""Read a PDF with embedded text as a book: paragraphs again, without running heads."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, replace

from pypdfium2 import PdfDocument, PdfiumError

from synth.books.book import BlockKind, Book, BookRejectedError, Document, Metadata, TocEntry
from synth.books.documents.markup_book import check_complete
from synth.books.pdf.blocks import PageBlock, blocks_of_pages
from synth.books.pdf.lines import Page, read_page
from synth.books.txt.headings import normalised
from ttsweb.counted import counted

_TEXTS = frozenset({BlockKind.PARAGRAPH, BlockKind.HEADING})


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Hold an entry of the outline: its title, level from 1 and page from 0."""

    title: str
    level: int
    page: int


def with_contents(
    blocks: list[PageBlock], bookmarks: list[Bookmark], path: str
) -> tuple[list[PageBlock], tuple[TocEntry, ...]]:
    """Return the blocks with anchors for the contents, and the contents.

    An entry leads to the block on its page that says the same, else to the first that begins on
    it. Without an outline the headings are the contents.
    """
    blocks = list(blocks)
    if not bookmarks:
        return blocks, tuple(
            TocEntry(found.block.text, path, found.block.anchors[0], found.block.level)
            for found in blocks
            if found.block.kind is BlockKind.HEADING
        )
    places: dict[int, list[int]] = {}
    for index, found in enumerate(blocks):
        if found.block.kind in _TEXTS:
            places.setdefault(found.page, []).append(index)
    entries: list[TocEntry] = []
    for number, mark in enumerate(bookmarks, start=1):
        place, is_title = _target(blocks, places, mark)
        if place is None:
            continue
        block, anchor = blocks[place].block, f"outline-{number}"
        if is_title:
            block = replace(block, kind=BlockKind.HEADING, level=min(mark.level, 6))
        block = replace(block, anchors=(*block.anchors, anchor))
        blocks[place] = replace(blocks[place], block=block)
        entries.append(TocEntry(mark.title, path, anchor, mark.level))
    return blocks, tuple(entries)


def _target(
    blocks: list[PageBlock], places: dict[int, list[int]], mark: Bookmark
) -> tuple[int | None, bool]:
    """Return which block an entry leads to, and whether that is its title."""
    title = normalised(mark.title)
    on_page = places.get(mark.page, [])
    for index in on_page:
        said = normalised(blocks[index].block.text)
        is_part = len(said) >= 3 and (title.endswith(f" {said}") or said.endswith(f" {title}"))
        is_heading = blocks[index].block.kind is BlockKind.HEADING
        if said == title or (is_part and is_heading):
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
    document = _open(raw)
    try:
        num_pages = len(document)
        if num_pages > MAX_PAGES:
            raise _too_large(f"{num_pages} pages; at most {MAX_PAGES} are allowed")
        pages = _read_pages(document, num_pages)
        bookmarks = _bookmarks(document)
        metadata = _metadata(document)
    except PdfiumError as error:
        raise _broken(error) from error
    finally:
        document.close()
    _check_text(pages)
    blocks = blocks_of_pages(pages)
    blocks, toc = with_contents(blocks, bookmarks, filename)
    chars = sum(page.source_chars for page in pages)
    read = Document(filename, tuple(block.block for block in blocks), chars)
    check_complete(read)
    title = metadata.title or filename.rpartition(".")[0] or filename
    return Book(replace(metadata, title=title), (read,), toc, warnings=_warnings(pages))


def _open(raw: bytes) -> PdfDocument:
    try:
        return PdfDocument(raw)
    except PdfiumError as error:
        code = getattr(error, "err_code", None)
        if code == _PASSWORD_ERROR or "password" in str(error).lower():
            raise BookRejectedError(
                "book_encrypted",
                "The PDF is protected by a password; save an unprotected copy and send that.",
            ) from error
        if code == _SECURITY_ERROR or "security" in str(error).lower():
            raise BookRejectedError(
                "book_drm",
                "The PDF is protected by DRM and cannot be read; send a file without DRM.",
            ) from error
        raise _broken(error) from error


def _broken(error: PdfiumError) -> BookRejectedError:
    return BookRejectedError(
        "book_broken", f"The PDF is damaged ({error}). Print it to a new PDF and send that."
    )


def _too_large(what: str) -> BookRejectedError:
    return BookRejectedError("book_too_large", f"The PDF has {what}. Split it into parts.")


def _read_pages(document: PdfDocument, num_pages: int) -> list[Page]:
    pages: list[Page] = []
    num_chars, started = 0, time.monotonic()
    for number in range(num_pages):
        if time.monotonic() - started > _MAX_SECONDS:
            raise _too_large(f"pages that take more than {_MAX_SECONDS:.0f} seconds to read")
        pages.append(read_page(document, number))
        num_chars += pages[-1].source_chars
        if num_chars > MAX_CHARS:
            raise _too_large(f"more than {MAX_CHARS} characters")
    return pages


def _check_text(pages: list[Page]) -> None:
    chars = sum(page.source_chars for page in pages)
    letters = sum(c.isalpha() for page in pages for line in page.lines for c in line.text)
    if letters == 0 or (len(pages) >= 3 and chars < _MIN_CHARS_A_PAGE * len(pages)):
        raise BookRejectedError(
            "pdf_without_text",
            "The PDF has pictures of pages but no text. Run text recognition (OCR) on it "
            "first, or send an EPUB.",
        )


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
