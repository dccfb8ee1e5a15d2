"""Make a book of one element tree, as HTML, Markdown and DOCX come down to."""

from __future__ import annotations

from dataclasses import replace

from synth.books.book import Block, BlockKind, Book, Document, Metadata, TocEntry
from synth.books.book import BookRejectedError as Rejected
from synth.books.documents import markup
from synth.books.documents.labels import is_label
from synth.books.documents.markup import Element
from synth.books.documents.notes import mark_notes
from synth.books.documents.parsing import parse_document
from synth.books.documents.xhtml import document_of
from synth.books.txt import gutenberg as txt_gutenberg

_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_NO_CONTENTS = frozenset({"toc", "navigation", "pg-header", "pg-footer", "hidden"})
_APART = frozenset({BlockKind.FURNITURE, BlockKind.BREAK, BlockKind.ALT_TEXT})
_CREDITS = 8  # blocks below a Gutenberg header that may say who made the file
_UTF8_MARK = b"\xef\xbb\xbf"  # what is parsed has been decoded: no tag in it may say otherwise


def parse_text(text: str) -> tuple[Element, tuple[str, ...]]:
    """Return the tree of HTML that has been decoded, whatever state it is in, and warnings."""
    parsed = parse_document(_UTF8_MARK + text.encode("utf-8", "replace"))
    lost = parsed.lost
    return parsed.root, (f"{lost[:1].upper()}{lost[1:]}.",) if lost else ()


def book_of_tree(
    root: Element,
    name: str,
    metadata: Metadata,
    *,
    before: tuple[Block, ...] = (),
    warnings: tuple[str, ...] = (),
) -> Book:
    """Return the book of one document, its contents made from its headings.

    Args:
        name: the file's name, which the document is called by.
        before: blocks that the tree does not hold, put first.

    Raises:
        BookRejectedError: `book_empty`, `book_incomplete`.
    """
    _name_headings(root)
    document = document_of(root, name, language=metadata.language)
    (document,), note_warnings = mark_notes((document,))
    document = _with_gutenberg(document)
    chars = document.source_chars + sum(block.source_chars for block in before)
    document = replace(document, blocks=(*before, *document.blocks), source_chars=chars)
    if not any(block.text for block in document.blocks if block not in before):
        raise Rejected("book_empty", "The file has no text; send a book with words in it.")
    check_complete(document)
    if not metadata.title and (title := _only_title(document)) is not None:
        metadata = replace(metadata, title=document.blocks[title].text)
        document = _with_title_page(document, title)
    metadata = _completed(metadata, document, name)
    return Book(metadata, (document,), toc_of(document), warnings=(*warnings, *note_warnings))


def _only_title(document: Document) -> int | None:
    """Return the place of the one heading of level 1 that stands above all others, if there is one.

    A label such as "Chapter 1" is the title of no book.
    """
    headings = [
        (place, block)
        for place, block in enumerate(document.blocks)
        if block.kind is BlockKind.HEADING and block.role not in _NO_CONTENTS
    ]
    if len(headings) < 2 or [block.level for _, block in headings].count(1) != 1:
        return None
    place, first = headings[0]
    return place if first.level == 1 and not is_label(first.text) else None


def _with_title_page(document: Document, title: int) -> Document:
    """Return a document of which the title is a title page, where nothing is told below it."""
    below = next((b for b in document.blocks[title + 1 :] if b.text and b.kind not in _APART), None)
    if below is None or below.kind is not BlockKind.HEADING:
        return document
    blocks = list(document.blocks)
    blocks[title] = replace(blocks[title], role=blocks[title].role or "titlepage")
    return replace(document, blocks=tuple(blocks))


def toc_of(document: Document) -> tuple[TocEntry, ...]:
    """Return the contents that the headings of a document make."""
    return tuple(
        TocEntry(block.text, document.path, block.anchors[0], block.level)
        for block in document.blocks
        if block.kind is BlockKind.HEADING and block.anchors and block.role not in _NO_CONTENTS
    )


def check_complete(document: Document) -> None:
    """Refuse a document whose blocks do not hold each of its characters once.

    Raises:
        BookRejectedError: `book_incomplete`; a fault of the reader, never a silent loss.
    """
    held = sum(block.source_chars for block in document.blocks)
    if held != document.source_chars:
        raise Rejected(
            "book_incomplete",
            f"{document.path} has {document.source_chars} characters, but only {held} were "
            "read. Please report this file as a defect, and send the book as EPUB or UTF-8 "
            "text if you can.",
        )


def _name_headings(root: Element) -> None:
    """Give each heading an id, so that the contents can lead to it."""
    for number, element in enumerate(root.iter(), start=1):
        if markup.name_of(element) in _HEADINGS and not element.get("id"):
            element.set("id", f"heading-{number}")


def _with_gutenberg(document: Document) -> Document:
    """Set header and licence of Project Gutenberg apart where no role names them."""
    blocks = list(document.blocks)
    if any(block.role in {"pg-header", "pg-footer"} for block in blocks):
        return document
    first, last = txt_gutenberg.find_marks([block.text for block in blocks])
    for index, block in enumerate(blocks):
        if first is not None and index <= first:
            blocks[index] = _aside(block, "pg-header")
        elif last is not None and index >= last:
            blocks[index] = _aside(block, "pg-footer")
        elif (
            first is not None and index < first + _CREDITS and txt_gutenberg.is_credits(block.text)
        ):
            blocks[index] = _aside(block, "pg-header")
    return replace(document, blocks=tuple(blocks))


def _aside(block: Block, role: str) -> Block:
    return replace(block, kind=BlockKind.FURNITURE, role=role, level=0)


def _completed(metadata: Metadata, document: Document, name: str) -> Metadata:
    """Fill what the file says of itself by what a Gutenberg header and the language tell."""
    header = "\n".join(block.text for block in document.blocks if block.role == "pg-header")
    found = txt_gutenberg.read_header(header)
    title = found.title or metadata.title or name.rpartition(".")[0] or name
    return replace(
        metadata,
        title=title,
        authors=metadata.authors or found.authors,
        language=metadata.language or document.language or found.language,
        publisher=metadata.publisher or found.publisher,
        identifier=metadata.identifier or found.identifier,
        date=metadata.date or found.date,
    )
