"""Read a single HTML file as a book."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from synth.books.book import Book, Metadata, count_chars
from synth.books.documents import markup
from synth.books.documents.markup import Element
from synth.books.documents.markup_book import book_of_tree, parse_text
from synth.books.txt.decoding import decode_text

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
_SECTIONS = frozenset({"section", "blockquote", "figure", "table"})
_BOXES = frozenset({"a", "div", "section", "ul", "p", "table", "span", "aside", "header", "footer"})
_ROLES = frozenset({"banner", "contentinfo", "complementary"})
_FRAME_NAMES = re.compile(
    r"(?:site|page|main|global|top|blog|wiki|mw)?[-_]?(?:header|footer|head|foot|masthead|navbar|"
    r"navigation|nav|menu|sidebar|breadcrumbs?|topbar|toolbar|skip-?link|siteinfo|colophon)"
    r"(?:[-_](?:wrapper|container|bar|inner|area|content|main|menu|links?|widget))?|"
    r"(?:copyright|secondary)(?:[-_]\w+)*"
)
_BANNER_NAMES = re.compile(
    r"(?:\w+[-_])*(?:cookies?|consent|gdpr)(?:[-_]?\w+)*\Z|"
    r"(?:related|share|sharing|social|comments?|newsletter|subscribe|adverts?|ads|advertisement|"
    r"pagination|pager)(?:[-_]\w+)*\Z"
)
_MIN_LINKS = 3
_MAX_FRAME_SHARE = 0.4
_SMALL_PAGE_CHARS = 600  # of so little the frame may be the larger part


def read_html(raw: bytes, filename: str) -> Book:
    """Return the book that an HTML file holds.

    Raises:
        BookRejectedError: `book_empty`, `book_not_text`, `book_charset_unknown`.
    """
    decoded = decode_text(raw)
    root, lost = parse_text(decoded.text)
    _set_site_apart(root)
    return book_of_tree(root, filename, _metadata(root), warnings=(*decoded.warnings, *lost))


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
    """Give what frames the page of a site a role: head, foot, side, banners, forms.

    Where the page says where its text is, that is all but what holds it; else only what stands
    outside of sections, is called so, and is no title or large part of the text.
    """
    texts = [e for e in root.iter() if markup.name_of(e) in {"main", "article"}]
    # The elements themselves: lxml makes a new object, with a new id(), each time it is asked.
    inside = {element for text in texts for element in text.iter()}
    around = {element for text in texts for element in text.iterancestors()}
    sections = {
        element for e in root.iter() if markup.name_of(e) in _SECTIONS for element in e.iter()
    }
    titles = [e for e in root.iter() if markup.name_of(e) == "h1"]
    total = count_chars(markup.text_of(markup.text_root(root)))
    passed = set()
    for element in root.iter():
        passed.add(element)
        if element in around or not markup.name_of(element):
            continue
        if element in inside:
            is_frame = _is_banner(element)
        elif texts:
            is_frame = _is_frame(element) or _is_banner(element)
        else:
            is_frame = _is_banner(element) or (
                _is_frame(element)
                and element not in sections
                and not _is_title(element, titles)
                and not (titles and titles[0] in passed and _heads_part(element))
            )
        share = count_chars(markup.text_of(element)) / max(total, 1)
        if is_frame and (texts or share <= _MAX_FRAME_SHARE or total < _SMALL_PAGE_CHARS):
            if markup.name_of(element) != "nav" and markup.known_role(markup.types_of(element)):
                continue
            element.set("role", markup.SITE)


def _is_frame(element: Element) -> bool:
    """Say whether an element is called, or named, a part of a site and not of its text."""
    if markup.name_of(element) in _SITE or _ROLES & set(markup.types_of(element)):
        return True
    return markup.name_of(element) in _BOXES and any(
        _FRAME_NAMES.fullmatch(name) for name in _names(element)
    )


def _is_banner(element: Element) -> bool:
    """Say whether an element asks for something: consent, an address, a search."""
    if markup.name_of(element) in {"form", "dialog"}:
        return True
    if {"dialog", "alertdialog", "search"} & set(markup.types_of(element)):
        return True
    return markup.name_of(element) in _BOXES and any(
        _BANNER_NAMES.match(name) for name in _names(element)
    )


def _is_title(element: Element, titles: list[Element]) -> bool:
    """Say whether a head holds the title of the text, and neither links nor a list of places.

    Args:
        titles: the headings of level 1 of the whole page; where one is outside, that is the title.
    """
    inside = set(element.iterdescendants())
    if any(title not in inside for title in titles):
        return False
    names = [markup.name_of(inner) for inner in inside]
    is_head = any(name in {"h1", "h2", "hgroup"} for name in names)
    return is_head and not {"nav", "form", "button"} & set(names) and names.count("a") < _MIN_LINKS


def _heads_part(element: Element) -> bool:
    """Say whether a head, after the title of the text, holds a heading and nothing of a site."""
    names = {markup.name_of(inner) for inner in element.iterdescendants()}
    is_head = markup.name_of(element) == "header" and bool(names & {"h2", "h3", "h4", "h5", "h6"})
    return is_head and not names & {"nav", "form", "button", "a"}


def _names(element: Element) -> list[str]:
    return [(element.get("id") or "").lower(), *markup.classes_of(element)]
