"""Read a single HTML file as a book."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from synth.books import markup
from synth.books.book import Book, Metadata
from synth.books.decoding import decode_text
from synth.books.markup import Element
from synth.books.markup_book import book_of_tree, parse_text

_GUTENBERG_TITLE = re.compile(
    r"(?:The )?Project Gutenberg(?:['\N{RIGHT SINGLE QUOTATION MARK}]s)?\s+"
    r"(?:e-?(?:book|text) of\s+)?(?P<title>.+?)(?:,? by (?P<author>[^,]+))?\.?\Z",
    re.IGNORECASE,
)
_AUTHORS = frozenset({"author", "dc.creator", "dcterms.creator", "creator"})
_DETAILS = {
    "description": "description",
    "dc.description": "description",
    "dc.publisher": "publisher",
    "dcterms.publisher": "publisher",
    "dc.date": "date",
    "dcterms.date": "date",
    "dcterms.created": "date",
    "date": "date",
    "dc.rights": "rights",
    "dcterms.rights": "rights",
    "dc.identifier": "identifier",
    "dcterms.source": "identifier",
}
_SITE = frozenset({"aside", "footer", "header"})


def read_html(raw: bytes, filename: str) -> Book:
    """Return the book that an HTML file holds.

    Raises:
        BookRejectedError: `book_empty`, `book_not_text`, `book_charset_unknown`.
    """
    decoded = decode_text(raw)
    root = parse_text(decoded.text)
    _set_site_apart(root)
    return book_of_tree(root, filename, _metadata(root), warnings=decoded.warnings)


def _metadata(root: Element) -> Metadata:
    title = markup.squeeze(next(map(markup.text_of, root.iter("{*}title", "title")), ""))
    authors: list[str] = []
    details: dict[str, Any] = {}
    language = markup.language_of(root) or ""
    for name, content in _meta(root):
        if name in _AUTHORS and content not in authors:
            authors.append(content)
        elif name in _DETAILS:
            details.setdefault(_DETAILS[name], content)
        elif name in {"dc.language", "dcterms.language", "content-language", "language"}:
            language = language or content.split(",")[0].strip()
    gutenberg = _GUTENBERG_TITLE.match(title)
    if gutenberg is not None:
        title = gutenberg["title"].strip()
        if gutenberg["author"] and not authors:
            authors = [gutenberg["author"].strip()]
    return Metadata(title=title, authors=tuple(authors), language=language, **details)


def _meta(root: Element) -> Iterator[tuple[str, str]]:
    for element in root.iter("{*}meta", "meta"):
        name = element.get("name") or element.get("property") or element.get("http-equiv") or ""
        content = markup.squeeze(element.get("content") or "")
        if content:
            yield name.strip().lower().replace(":", "."), content


def _set_site_apart(root: Element) -> None:
    """Give what frames the page of a site a role, if the page says where its text is."""
    texts = [e for e in root.iter() if markup.name_of(e) in {"main", "article"}]
    if not texts:
        return
    # The elements themselves: lxml makes a new object, with a new id(), each time it is asked.
    inside = {element for text in texts for element in text.iter()}
    for element in root.iter():
        is_frame = markup.name_of(element) in _SITE and element not in inside
        holds_text = any(markup.name_of(e) in {"main", "article"} for e in element.iter())
        if is_frame and not holds_text and not element.get("role"):
            element.set("role", "navigation")
