"""Say what a section of a book is called, and whether it is a title page or a page of rights."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from synth.books.book import Block, BlockKind, Book, Document
from synth.books.documents.labels import join_titles, says
from synth.books.rules import SkipReason, title_reason

MAX_TITLE_CHARS = 200
_MAX_HEADINGS = 4  # that make one title
_RIGHTS = re.compile(
    r"©|\ball rights reserved\b|\bISBN\b|\balle rechte\b.{0,40}\bvorbehalten\b|"
    r"\bdroits\b.{0,60}\bréservés\b|"
    r"\b(?:todos los derechos|tutti i diritti|alle rechten|todos os direitos)\b",
    re.IGNORECASE,
)
# What stands on title pages is no sentence, or says who made the book, when and where.
_SENTENCE_ENDS = (".", "!", "?", "…")
_CLOSING = "\"'’”»«)]"  # noqa: RUF001  # as texts are printed
_MIN_SENTENCE_WORDS = 5
_MAKERS = re.compile(
    r"\A\W*(?:by|von|par|de)\b|\d{4}|\b(?:translat|übersetz|traduit|illustrat|edit(?:ed|ion|or)|"
    r"publish|verlag|press\b|print(?:ed|er)|novel\b|author\b|volumes?\b)",
    re.IGNORECASE,
)
_BY = re.compile(r"(?:(?:written )?by|von|par|de|door|di|av|af)\s+")
_MAX_TITLE_PAGE_CHARS = 300
_MAX_TITLE_PAGE_BLOCKS = 60
_MAX_FRONT_CHARS = 3000
_MAX_RIGHTS_CHARS = 8000
_UNSAID = frozenset({BlockKind.ALT_TEXT, BlockKind.FURNITURE, BlockKind.BREAK})
_ROLE_TITLES = {
    "titlepage": "Title page",
    "copyright-page": "Copyright",
    "toc": "Contents",
    "metadata": "Metadata",
    "pg-header": "Project Gutenberg: about this e-book",
    "pg-footer": "Project Gutenberg: licence",
}


@dataclass(frozen=True, slots=True)
class Placed:
    """Hold a block with its place in the book: numbers of the document and of the block."""

    document: int
    place: int
    block: Block


@dataclass(slots=True)
class Section:
    """Hold what will be a chapter; `reason` is why all of it is not spoken."""

    title: str
    level: int
    blocks: list[Placed]
    reason: SkipReason | None = None
    parents: tuple[str, ...] = ()
    is_named: bool = False  # by the contents list or by a heading


def name_section(section: Section, book: Book) -> None:
    """Give a section the title of its headings and of the contents list, and what follows of it."""
    headings: list[str] = []
    for placed in section.blocks:
        if placed.block.kind is BlockKind.HEADING and len(headings) < _MAX_HEADINGS:
            headings.append(placed.block.text)
        elif placed.block.kind is not BlockKind.FURNITURE:
            break
    own = join_titles(headings)
    title = section.title
    if own and (not title or join_titles([title, own]) == own) and len(own) <= MAX_TITLE_CHARS:
        title = own
    document = book.documents[section.blocks[0].document]
    if section.reason is None:
        first = title or _first_text(section)
        section.reason = title_reason(first) or _guessed(section, document, book)
    section.title = (title or _made_title(section, document))[:MAX_TITLE_CHARS]


def says_rights(text: str) -> bool:
    """Say whether a text says whose the rights are."""
    return _RIGHTS.search(text) is not None


def is_title_page(section: Section, book: Book) -> bool:
    """Say whether the blocks that a section has so far are a title page."""
    if len(section.blocks) > _MAX_TITLE_PAGE_BLOCKS:
        return False
    looked_at = replace(section, blocks=section.blocks)
    name_section(looked_at, book)
    num_chars = sum(placed.block.source_chars for placed in section.blocks)
    return looked_at.reason is SkipReason.TITLE_PAGE and num_chars <= _MAX_FRONT_CHARS


def _guessed(section: Section, document: Document, book: Book) -> SkipReason | None:
    """Tell a title page or a page of rights that nothing names, by what is on it."""
    num_chars = sum(placed.block.source_chars for placed in section.blocks)
    texts = [placed.block.text for placed in section.blocks]
    is_front = section.blocks[0].document <= max(3, len(book.documents) // 10)
    title = book.metadata.title.casefold()
    if is_front and _is_byline(texts, book):
        return SkipReason.TITLE_PAGE
    if is_front and {text.casefold() for text in texts if text} == {title}:
        return SkipReason.TITLE_PAGE
    is_own = section.title and section.title.casefold() not in title
    if document.role not in {"", "frontmatter", "bodymatter"} or is_own:
        return None
    # By words: a book called "It" is not named by "Edith".
    names_title = any(says(text, book.metadata.title) for text in texts[:3])
    if is_front and names_title and num_chars <= _MAX_TITLE_PAGE_CHARS:
        is_told = any(_is_sentence(placed.block) for placed in section.blocks)
        return None if is_told else SkipReason.TITLE_PAGE
    # One such sign may stand in any story; a page of rights has several, or little else.
    signs = {found.casefold() for text in texts for found in _RIGHTS.findall(text)}
    is_rights = len(signs) > 1 or (bool(signs) and num_chars <= _MAX_TITLE_PAGE_CHARS)
    return SkipReason.LICENCE if is_rights and num_chars <= _MAX_RIGHTS_CHARS else None


def _is_byline(texts: list[str], book: Book) -> bool:
    """Say whether all there is are title and authors, such as "THE BELL" and "By Ann Author"."""
    names = {book.metadata.title.casefold(), *map(str.casefold, book.metadata.authors)}
    told = [text.casefold().strip(" .,") for text in texts if text]
    bare = [_BY.sub("", text) for text in told]
    return bool(told) and all(text in names or _BY.fullmatch(f"{text} ") for text in bare)


def _is_sentence(block: Block) -> bool:
    """Say whether a block is of the story and not of a title page: rather speak too much."""
    if block.kind in {BlockKind.HEADING, BlockKind.FURNITURE}:
        return False
    text = block.text.strip()
    is_whole = text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS)
    is_long = len(text.split()) >= _MIN_SENTENCE_WORDS
    return is_whole and is_long and not _MAKERS.search(text)


def _made_title(section: Section, document: Document) -> str:
    """Make a title for a section that has none: its role, or how it begins."""
    first = section.blocks[0].block
    role = first.role if first.kind is not BlockKind.FURNITURE or first.role in _ROLE_TITLES else ""
    role = role or document.role
    if role and role not in {"chapter", "bodymatter", "frontmatter", "backmatter"}:
        return _ROLE_TITLES.get(role, role.replace("-", " ").capitalize())
    text = _first_text(section)
    return text if len(text) <= 40 else f"{text[:40].rsplit(' ', 1)[0]}…"


def _first_text(section: Section) -> str:
    """Return how a section begins: what it says, or for want of that what its pictures show."""
    texts = [placed.block.text for placed in section.blocks if placed.block.text]
    said = (p.block.text for p in section.blocks if p.block.text and p.block.kind not in _UNSAID)
    return next(said, texts[0] if texts else "")
