"""Make a book of one element tree, as HTML, Markdown and DOCX come down to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.footnote import footnote_plugin
from mdit_py_plugins.front_matter import front_matter_plugin

from synth.books.book import (
    ASIDES,
    Block,
    BlockKind,
    Book,
    Document,
    Metadata,
    TocEntry,
    count_chars,
)
from synth.books.book import BookRejectedError as Rejected
from synth.books.documents import markup
from synth.books.documents.labels import is_label
from synth.books.documents.markup import Element, squeeze
from synth.books.documents.notes import mark_notes
from synth.books.documents.parsing import parse_document
from synth.books.documents.xhtml import document_of
from synth.books.txt import decoding as txt_gutenberg
from synth.books.txt.decoding import decode_text
from synth.books.txt.headings import find_heading
from synth.books.txt.lines import Group, Line

_NO_CONTENTS = frozenset({"toc", "navigation", "pg-header", "pg-footer", "hidden"})
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
    for number, element in enumerate(root.iter(), start=1):
        if markup.name_of(element) in markup.HEADINGS and not element.get("id"):
            element.set("id", f"heading-{number}")  # so that the contents can lead to it
    document = document_of(root, name, language=metadata.language)
    (document,), note_warnings = mark_notes((document,))
    blocks = [*before, *_set_gutenberg_apart(document.blocks)]
    if not any(block.text for block in blocks if block not in before):
        raise Rejected("book_empty", "The file has no text; send a book with words in it.")
    chars = document.source_chars + sum(block.source_chars for block in before)
    if not metadata.title:
        metadata = replace(metadata, title=_take_title(blocks))
    document = replace(document, blocks=tuple(blocks), source_chars=chars)
    check_complete(document)
    metadata = _complete_metadata(metadata, document, name)
    return Book(metadata, (document,), toc_of(document), warnings=(*warnings, *note_warnings))


def _take_title(blocks: list[Block]) -> str:
    """Return the one heading of level 1 that stands above all others, if there is one.

    It becomes a title page, in place, where nothing is told below it. "Chapter 1", with a title
    or without, and "Prologue" are titles of parts of a book.
    """
    places = [place for place, block in enumerate(blocks) if _is_listed(block)]
    levels = [blocks[place].level for place in places]
    if (
        len(places) < 2
        or levels[0] != 1
        or levels.count(1) != 1
        or _names_part(blocks[places[0]].text)
    ):
        return ""
    title = blocks[places[0]]
    below = (b for b in blocks[places[0] + 1 :] if b.text and b.kind not in ASIDES)
    following = next(below, None)
    if following is not None and following.kind is BlockKind.HEADING:
        blocks[places[0]] = replace(title, role=title.role or "titlepage")
    return title.text


def _names_part(text: str) -> bool:
    if is_label(text):
        return True
    found = find_heading(Group([Line(text, 0)]))
    # "1. The Bell", and a title in capitals, may be a book's.
    return found is not None and found.rank not in {"numeral", "numbered", "titled"}


def _is_listed(block: Block) -> bool:
    return block.kind is BlockKind.HEADING and block.role not in _NO_CONTENTS


def toc_of(document: Document) -> tuple[TocEntry, ...]:
    """Return the contents that the headings of a document make."""
    return tuple(
        TocEntry(block.text, document.path, block.anchors[0], block.level)
        for block in document.blocks
        if block.anchors and _is_listed(block)
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


def _set_gutenberg_apart(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks, header and licence of Project Gutenberg set apart where no role is so."""
    roles = {block.role for block in blocks} & {"pg-header", "pg-footer"}
    first, last = (None, None) if roles else txt_gutenberg.find_marks([b.text for b in blocks])
    for index, block in enumerate(blocks):
        role = ""
        if first is not None and index <= first:
            role = "pg-header"
        elif last is not None and index >= last:
            role = "pg-footer"
        elif first is not None and index < first + _CREDITS:
            role = "pg-header" if txt_gutenberg.is_credits(block.text) else ""
        aside = replace(block, kind=BlockKind.FURNITURE, role=role, level=0) if role else block
        yield aside


def _complete_metadata(metadata: Metadata, document: Document, name: str) -> Metadata:
    """Fill what the file says of itself by what a Gutenberg header and the language tell."""
    header = "\n".join(block.text for block in document.blocks if block.role == "pg-header")
    found = txt_gutenberg.read_header(header)
    fields = ("authors", "publisher", "identifier", "date")
    return replace(
        metadata,
        title=found.title or metadata.title or name.rpartition(".")[0] or name,
        language=metadata.language or document.language or found.language,
        **{field: getattr(metadata, field) or getattr(found, field) for field in fields},
    )


_GUTENBERG_TITLE = re.compile(
    r"(?:The )?Project Gutenberg(?:['\N{RIGHT SINGLE QUOTATION MARK}]s)?\s+"
    r"(?:e-?(?:book|text) of\s+)?(?P<title>.+?)(?:,? by (?P<author>[^,]+))?\.?\Z",
    re.IGNORECASE,
)
_AUTHORS = frozenset({"author", "dc.creator", "dcterms.creator", "creator"})
_DETAILS = {
    **{
        f"{word}.{name}": name
        for word in ("dc", "dcterms")
        for name in ("publisher", "date", "rights")
    },
    **dict.fromkeys(("description", "dc.description"), "description"),
    **dict.fromkeys(("dc.identifier", "dcterms.source"), "identifier"),
    **dict.fromkeys(("dcterms.created", "date"), "date"),
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
    text, warnings = decode_text(raw)
    root, lost = parse_text(text)
    _set_site_apart(root)
    return book_of_tree(root, filename, _metadata(root), warnings=(*warnings, *lost))


def _metadata(root: Element) -> Metadata:
    title = markup.squeeze(next(map(markup.text_of, root.iter("{*}title", "title")), ""))
    authors: list[str] = []
    details: dict[str, Any] = {}
    language = markup.language_of(root) or ""
    for element in root.iter("{*}meta", "meta"):
        given = element.get("name") or element.get("property") or element.get("http-equiv") or ""
        name = given.strip().lower().replace(":", ".")
        content = markup.squeeze(element.get("content") or "")
        if not content:
            continue
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


def _set_site_apart(root: Element) -> None:
    """Give what frames the page of a site a role: head, foot, side, banners, forms.

    Where the page says where its text is, that is all but what holds it; else only what stands
    outside of sections, is called so, and is no title or large part of the text.
    """
    texts = list(markup.named(root, "main", "article"))
    # The elements themselves: lxml makes a new object, with a new id(), each time it is asked.
    inside = {element for text in texts for element in text.iter()}
    around = {element for text in texts for element in text.iterancestors()}
    sections = {element for e in markup.named(root, *_SECTIONS) for element in e.iter()}
    titles = list(markup.named(root, "h1"))
    total = count_chars(markup.text_of(markup.text_root(root)))
    has_title = False
    for element in root.iter():
        has_title = has_title or element in titles[:1]
        if element in around or not markup.name_of(element):
            continue
        is_frame = _is_banner(element)
        if element not in inside and not is_frame:
            is_frame = _is_frame(element) and (
                bool(texts)
                or (element not in sections and not _is_head(element, titles, has_title))
            )
        share = count_chars(markup.text_of(element)) / max(total, 1) if is_frame else 1.0
        if is_frame and (texts or share <= _MAX_FRAME_SHARE or total < _SMALL_PAGE_CHARS):
            if markup.name_of(element) != "nav" and markup.known_role(markup.types_of(element)):
                continue
            element.set("role", markup.SITE)


def _is_frame(element: Element) -> bool:
    """Say whether an element is called, or named, a part of a site and not of its text."""
    is_part = markup.name_of(element) in _SITE or _ROLES & set(markup.types_of(element))
    return bool(is_part) or _is_named(element, _FRAME_NAMES)


def _is_banner(element: Element) -> bool:
    """Say whether an element asks for something: consent, an address, a search."""
    is_asking = {"dialog", "alertdialog", "search"} & set(markup.types_of(element))
    is_asking = is_asking or {"form", "dialog"} & {markup.name_of(element)}
    return bool(is_asking) or _is_named(element, _BANNER_NAMES)


def _is_named(element: Element, names: re.Pattern[str]) -> bool:
    own = [(element.get("id") or "").lower(), *markup.classes_of(element)]
    return markup.name_of(element) in _BOXES and any(map(names.fullmatch, own))


def _is_head(element: Element, titles: list[Element], has_title: bool) -> bool:
    """Say whether a head is of the text: it holds its title, or after that a part's, and no site's.

    Args:
        titles: the headings of level 1 of the whole page; where one is outside, that is the title.
        has_title: the first of them stands before the end of the head.
    """
    inside = set(element.iterdescendants())
    names = [markup.name_of(inner) for inner in inside]
    if {"nav", "form", "button"} & set(names):
        return False
    is_part = has_title and markup.name_of(element) == "header" and "a" not in names
    if is_part and {"h2", "h3", "h4", "h5", "h6"} & set(names):
        return True
    is_whole = all(title in inside for title in titles) and names.count("a") < _MIN_LINKS
    return is_whole and bool({"h1", "h2", "hgroup"} & set(names))


_ATTRIBUTES = re.compile(r"^(#{1,6}[ \t].*?)[ \t]*\{[#.][^{}\n]*\}[ \t]*#*$", re.MULTILINE)
_PAIR = re.compile(r"([A-Za-z][\w .-]{0,40}?)\s*:\s*(.*)")
_KEYS = {
    **{
        name: name for name in ("title", "subtitle", "language", "publisher", "date", "description")
    },
    **{name: name for name in ("rights", "identifier", "series")},
    **dict.fromkeys(("author", "authors", "creator"), "authors"),
    **dict.fromkeys(("subject", "keywords", "tags"), "subjects"),
    "lang": "language",
    "abstract": "description",
}
_LISTS = frozenset({"authors", "subjects"})


def read_markdown(raw: bytes, filename: str) -> Book:
    """Return the book that Markdown holds; links and pictures leave their words.

    Raises:
        BookRejectedError: `book_empty`, `book_not_text`, `book_charset_unknown`.
    """
    text, warnings = decode_text(raw)
    text = _ATTRIBUTES.sub(r"\1", text)
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    # Notes stay where they are told: moved to the end, one that no mark leads to would be lost.
    parser.use(footnote_plugin, inline=False, move_to_end=False).use(front_matter_plugin)
    for name, rule in _NOTE_RULES.items():
        parser.add_render_rule(name, rule)
    tokens = parser.parse(text)
    front = next((token.content for token in tokens if token.type == "front_matter"), "")
    html = parser.renderer.render(tokens, parser.options, {})
    root, lost = parse_text(f"<html><body>\n{html}</body></html>")
    block = Block(BlockKind.FURNITURE, squeeze(front), count_chars(front), role="metadata")
    before = (block,) if front.strip() else ()
    warnings = (*warnings, *lost)
    return book_of_tree(root, filename, read_front_matter(front), before=before, warnings=warnings)


def _label(tokens: Sequence[Token], index: int) -> str:
    return escape(str(tokens[index].meta["label"]), quote=True)


# How the three tokens of a note are written, by the renderer, the tokens and their place.
_NOTE_RULES: dict[str, Callable[..., str]] = {
    "footnote_ref": lambda _, tokens, index, *__: (
        f'<sup><a role="doc-noteref" href="#fn-{_label(tokens, index)}">'
        f"[{_label(tokens, index)}]</a></sup>"
    ),
    "footnote_reference_open": lambda _, tokens, index, *__: (
        f'<aside role="doc-footnote" id="fn-{_label(tokens, index)}">'
    ),
    "footnote_reference_close": lambda *_: "</aside>",
}


def read_front_matter(front: str) -> Metadata:
    """Return what the simple lines of a front matter say: `key: value`, `[a, b]` and `- a`.

    Anything deeper, and any key that says nothing of a book, is left alone.
    """
    found: dict[str, list[str]] = {}
    key = ""
    for line in front.splitlines():
        item = re.match(r"\s*-\s+(.*)", line)
        pair = _PAIR.fullmatch(line.strip())
        if item is not None and key:
            # A list may hold pairs of its own: "- name: Jane".
            inner = _PAIR.fullmatch(item[1].strip())
            found[key].append(_strip_quotes(inner[2] if inner else item[1]))
        elif pair is not None and not line[:1].isspace():
            key = _KEYS.get(pair[1].strip().lower(), "")
            if key:
                found.setdefault(key, []).extend(_values(pair[2], is_list=key in _LISTS))
    fields: dict[str, Any] = {}
    for name, values in found.items():
        kept = [squeeze(value) for value in values if squeeze(value)]
        if kept:
            fields[name] = tuple(kept) if name in _LISTS else kept[0]
    return Metadata(**fields)


def _values(text: str, *, is_list: bool) -> list[str]:
    text = text.strip()
    if text in {"", "|", ">", "|-", ">-"}:
        return []
    if text.startswith("[") and text.endswith("]"):
        return [_strip_quotes(part) for part in text[1:-1].split(",")]
    if is_list and text[:1] not in "\"'" and ";" in text:
        return [_strip_quotes(part) for part in text.split(";")]
    return [_strip_quotes(text)]


def _strip_quotes(text: str) -> str:
    text = text.strip()
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if is_quoted else text
