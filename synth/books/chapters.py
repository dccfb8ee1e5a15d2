"""Find where chapters begin, by the contents list and the headings, and what they are called."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import accumulate

from synth.books.book import ASIDES, Block, BlockKind, Book, Document, Place, Placed, TocEntry
from synth.books.documents import markup
from synth.books.documents.labels import is_bare_number, is_label, join_titles, says
from synth.books.documents.notes import places_of
from synth.books.rules import SkipReason, section_reason, title_reason

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
_DEDICATION = re.compile(r"(?:to|for|in memory|dedicated|für|à|a|para|per)\b.{3}", re.IGNORECASE)
_MAX_DEDICATION_CHARS = 60
_BY = re.compile(r"(?:(?:written )?by|von|par|de|door|di|av|af)\s+")
_MAX_TITLE_PAGE_CHARS = 300
_MAX_TITLE_PAGE_BLOCKS = 60
_MAX_FRONT_CHARS = 3000
_MAX_RIGHTS_CHARS = 8000
_ROLE_TITLES = {
    "titlepage": "Title page",
    "copyright-page": "Copyright",
    "toc": "Contents",
    "metadata": "Metadata",
    "pg-header": "About this e-book",
    "pg-footer": "Licence of this e-book",
}


@dataclass(slots=True)
class Section:
    """Hold what will be a chapter; `reason` is why all of it is not spoken."""

    title: str
    level: int
    blocks: list[Placed] = field(default_factory=list)
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
    # What it says, or for want of that what its pictures show.
    texts = [placed.block for placed in section.blocks if placed.block.text]
    said = (block.text for block in texts if block.kind not in ASIDES)
    begins = next(said, texts[0].text if texts else "")
    if section.reason is None:
        section.reason = title_reason(title or begins) or _guess_reason(section, document, book)
    if not title:
        first = section.blocks[0].block
        is_aside = first.kind is BlockKind.FURNITURE and first.role not in _ROLE_TITLES
        role = ("" if is_aside else first.role) or document.role
        if role and role not in {"chapter", *markup.MATTER}:
            title = _ROLE_TITLES.get(role, role.replace("-", " ").capitalize())
        else:
            title = begins if len(begins) <= 40 else f"{begins[:40].rsplit(' ', 1)[0]}…"
    section.title = title[:MAX_TITLE_CHARS]


def states_rights(text: str) -> bool:
    """Say whether a text says whose the rights are."""
    return _RIGHTS.search(text) is not None


def is_dedication(text: str) -> bool:
    """Say whether a line of a book's first pages may be its dedication."""
    return _DEDICATION.match(text) is not None


def is_title_page(section: Section, book: Book) -> bool:
    """Say whether the blocks that a section has so far are a title page."""
    num_chars = sum(placed.block.source_chars for placed in section.blocks)
    if len(section.blocks) > _MAX_TITLE_PAGE_BLOCKS or num_chars > _MAX_FRONT_CHARS:
        return False
    looked_at = replace(section)
    name_section(looked_at, book)
    return looked_at.reason is SkipReason.TITLE_PAGE


def _guess_reason(section: Section, document: Document, book: Book) -> SkipReason | None:
    """Tell a title page or a page of rights that nothing names, by what is on it."""
    num_chars = sum(placed.block.source_chars for placed in section.blocks)
    texts = [placed.block.text for placed in section.blocks]
    is_front = section.blocks[0].document <= max(3, len(book.documents) // 10)
    title = book.metadata.title.casefold()
    lowered = [text.casefold() for text in texts if text]
    # All there is may be title and authors, such as "THE BELL" and "By Ann Author".
    names = {title, *map(str.casefold, book.metadata.authors)}
    bare = [_BY.sub("", text.strip(" .,")) for text in lowered]
    is_byline = bool(bare) and all(text in names or _BY.fullmatch(f"{text} ") for text in bare)
    if is_front and (is_byline or set(lowered) == {title}):
        return SkipReason.TITLE_PAGE
    is_own = section.title and section.title.casefold() not in title
    if document.role not in {"", "frontmatter", "bodymatter"} or is_own:
        return None
    # By words: a book called "It" is not named by "Edith".
    names_title = any(says(text, book.metadata.title) for text in texts[:3])
    if is_front and names_title and num_chars <= _MAX_TITLE_PAGE_CHARS:
        is_prose = any(_is_sentence(placed.block) for placed in section.blocks)
        return None if is_prose else SkipReason.TITLE_PAGE
    # One such sign may stand in any story; a page of rights has several, or little else.
    signs = {found.casefold() for text in texts for found in _RIGHTS.findall(text)}
    is_rights = len(signs) > 1 or (bool(signs) and num_chars <= _MAX_TITLE_PAGE_CHARS)
    if not is_rights or num_chars > _MAX_RIGHTS_CHARS:
        return None
    # What ends with a dedication is looked at line by line.
    last = next(filter(None, reversed(texts)), "")
    is_dedicated = is_dedication(last) and len(last) <= _MAX_DEDICATION_CHARS
    return None if is_dedicated and not states_rights(last) else SkipReason.LICENCE


def _is_sentence(block: Block) -> bool:
    """Say whether a block is of the story and not of a title page: rather speak too much."""
    text = block.text.strip()
    is_whole = text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS)
    is_told = block.kind not in {BlockKind.HEADING, BlockKind.FURNITURE} and is_whole
    return is_told and len(text.split()) >= _MIN_SENTENCE_WORDS and not _MAKERS.search(text)


# Entries of a contents list that are closer than this are sections of a chapter, not chapters.
_MIN_CHAPTER_CHARS = 2500
_MAX_PART_CHARS = 500  # of its own, before its first chapter
_MIN_HEADINGS = 2
_PART = re.compile(r"(?:part|book|volume|act|teil|buch|band|akt|livre|partie|tome|acte)\b", re.I)
_START = re.compile(r"\*\*\* ?START OF (?:TH(?:E|IS) )?PROJECT GUTENBERG", re.IGNORECASE)
_END = re.compile(r"(?:\*\*\* ?)?END OF (?:TH(?:E|IS) )?PROJECT GUTENBERG", re.IGNORECASE)
_PRODUCED = re.compile(r"(?:produced|transcribed|e-text prepared|scanned|updated) by\b", re.I)


def find_sections(book: Book) -> tuple[list[Section], list[str]]:
    """Cut a book into sections, in the order of reading, with each block in one; tell warnings."""
    entries, warnings = _find_entries(book)
    starts = _choose_starts(book, entries)
    if len(starts) < _MIN_HEADINGS:
        headings = _starts_of_headings(book)
        if len(headings) >= _MIN_HEADINGS:
            # A lone entry that leads to where the text begins, such as "Start", names no chapter.
            filled = (n for n, document in enumerate(book.documents) if document.source_chars)
            first = next(filled, len(book.documents))
            starts = {key: start for key, start in starts.items() if key[1] or key[0] > first}
        starts = {**starts, **headings}
    reasons = _archive_reasons(book)
    sections: list[Section] = []
    for placed in book.blocks():
        document = book.documents[placed.document]
        reason = reasons.get(placed.key) or _reason(document, placed.block)
        start = starts.get(placed.key)
        if start is None and _opens(sections, document, placed, reason, book):
            start = Section("", 1)
        if start is not None:
            start.reason = reason
            sections.append(start)
        sections[-1].blocks.append(placed)
    for section in sections:
        name_section(section, book)
    return _join_parts(sections), warnings


def _reason(document: Document, block: Block) -> SkipReason | None:
    if not document.is_linear and section_reason(document.role) is not SkipReason.NOTE:
        return SkipReason.NOT_LINEAR
    role = block.role if block.kind is not BlockKind.FURNITURE else ""
    return section_reason(role) or section_reason(document.role)


def _opens(
    sections: list[Section],
    document: Document,
    placed: Placed,
    reason: SkipReason | None,
    book: Book,
) -> bool:
    """Say whether a block begins a section that no contents list and no heading names."""
    if not sections:
        return True
    last = sections[-1]
    if placed.block.kind in {BlockKind.FURNITURE, BlockKind.NOTE} and placed.place:
        return False
    if placed.place or reason is not last.reason:
        return reason is not last.reason
    # A document of its own kind, such as a dedication, or one before all chapters.
    is_special = document.role not in {"", "chapter", "part", *markup.MATTER}
    return is_special or not last.is_named or is_title_page(last, book)


def _archive_reasons(book: Book) -> dict[Place, SkipReason]:
    """Return the places of what Project Gutenberg puts around a book."""
    places = list(book.blocks())
    starts = (i for i, placed in enumerate(places) if _START.search(placed.block.text[:200]))
    ends = (i for i, placed in enumerate(places) if _END.match(placed.block.text[:200]))
    start, foot = next(starts, len(places)), next(ends, len(places))
    head = start + 1 if start < len(places) // 2 else 0
    if head:
        for index in range(head, min(head + 5, len(places))):
            head = index + 1 if _PRODUCED.match(places[index].block.text) else head
    around = [*places[:head], *(places[foot:] if foot >= head else ())]
    return {placed.key: SkipReason.BOILERPLATE for placed in around}


def _find_entries(book: Book) -> tuple[list[tuple[Place, TocEntry]], list[str]]:
    """Return the entries of the contents list by where they lead to, in that order; warnings."""
    warnings: list[str] = []
    numbers = {document.path: n for n, document in reversed(list(enumerate(book.documents)))}
    anchors = places_of(book.documents)
    found: list[tuple[Place, TocEntry]] = []
    for entry in book.toc:
        if entry.path not in numbers:
            warnings.append(
                f"The contents list links to {entry.path!r}, which is not read as text."
            )
            continue
        place = anchors.get(f"{entry.path}#{entry.fragment}") if entry.fragment else None
        if entry.fragment and place is None:
            warnings.append(f"The contents list links to {entry.fragment!r}, which does not exist.")
        place = place or (numbers[entry.path], 0)
        if book.documents[place[0]].blocks:
            found.append((place, entry))
    return sorted(found, key=lambda pair: pair[0]), warnings


def _choose_starts(book: Book, found: list[tuple[Place, TocEntry]]) -> dict[Place, Section]:
    """Leave out entries that are sections of a chapter; outer entries name parts."""
    # How many characters stand before a block, and before the end.
    keys = [*(placed.key for placed in book.blocks()), (len(book.documents), 0)]
    sums = accumulate((placed.block.source_chars for placed in book.blocks()), initial=0)
    offsets = dict(zip(keys, sums, strict=True))
    starts: dict[Place, Section] = {}
    open_entries: list[tuple[TocEntry, bool]] = []  # and whether those in it begin chapters
    for index, (place, entry) in enumerate(found):
        while open_entries and open_entries[-1][0].level >= entry.level:
            open_entries.pop()
        is_start = all(is_part for _, is_part in open_entries)
        document = book.documents[place[0]]
        is_part = "part" in {document.role, document.blocks[place[1]].role}
        is_part = is_part or _is_part(found, index, offsets)
        open_entries.append((entry, is_start and is_part))
        if not is_start:
            continue
        parents = tuple(outer.title for outer, _ in open_entries[:-1] if outer.title)
        title = entry.title
        if place in starts and starts[place].level >= entry.level:
            title = join_titles([starts[place].title, entry.title])
        starts[place] = Section(title, entry.level, parents=parents, is_named=True)
    return starts


def _is_part(found: list[tuple[Place, TocEntry]], index: int, offsets: dict[Place, int]) -> bool:
    """Say whether the entries inside an entry are chapters: long enough each, or it is a part."""
    start, entry = found[index]
    end = index + 1
    while end < len(found) and found[end][1].level > entry.level:
        end += 1
    inner = [pair for pair in found[index + 1 : end] if pair[1].level == entry.level + 1]
    if not inner:
        return False
    is_only = sum(other.level == entry.level for _, other in found) == 1
    # "Chapter 1" inside an entry is a chapter; "1" may as well be a section of one.
    is_labelled = any(is_label(o.title) and not is_bare_number(o.title) for _, o in inner)
    if is_only or is_labelled or _PART.match(entry.title):
        return True
    first = offsets[inner[0][0]]
    stop = offsets[found[end][0]] if end < len(found) else max(offsets.values())
    is_long = (stop - first) / len(inner) >= _MIN_CHAPTER_CHARS
    return first - offsets[start] < _MAX_PART_CHARS and is_long


def _starts_of_headings(book: Book) -> dict[Place, Section]:
    """Return the headings that begin chapters: the deepest level that leaves them long enough."""
    headings = [
        placed
        for placed in book.blocks()
        if placed.block.kind is BlockKind.HEADING
        and _reason(book.documents[placed.document], placed.block) is None
    ]
    chosen = 0
    for level in range(1, 7):
        count = sum(placed.block.level <= level for placed in headings)
        exact = [placed.block.text for placed in headings if placed.block.level == level]
        if len(exact) < _MIN_HEADINGS:
            continue
        is_labelled = 2 * sum(map(is_label, exact)) >= len(exact)
        if not chosen or is_labelled or book.source_chars / count >= _MIN_CHAPTER_CHARS:
            chosen = level
    starts: dict[Place, Section] = {}
    above: Placed | None = None  # the heading before, if it is of a chosen level
    for placed in headings:
        follows = above is not None and above.key == (placed.document, placed.place - 1)
        is_second = follows and above is not None and is_label(above.block.text)
        above = placed if placed.block.level <= chosen else None
        if above and not (is_second and not is_label(placed.block.text)):
            starts[placed.key] = Section("", placed.block.level, is_named=True)
    return starts


def _join_parts(sections: list[Section]) -> list[Section]:
    """Put a part that is only a heading before its first chapter, which then names it.

    So is a number that stands alone before a chapter of the same level: "I", then "The Bell".
    """
    joined: list[Section] = []
    waiting: Section | None = None
    part: Section | None = None  # the last chapter that a part was put before
    for section in sections:
        if part is not None and section.level < part.level:
            part = None
        if part is not None and not section.parents and section.reason is part.reason:
            section.parents = part.parents
        if waiting is not None:
            is_inner = section.level > waiting.level
            is_numbered = (
                section.level == waiting.level
                and is_bare_number(waiting.title)
                and not is_label(section.title)
                and section.parents == waiting.parents
            )
            if section.reason is not waiting.reason or not (is_inner or is_numbered):
                joined.append(waiting)
            else:
                section.blocks = [*waiting.blocks, *section.blocks]
                if is_inner:
                    section.parents = section.parents or (*waiting.parents, waiting.title)
                    part = section
                else:
                    titles = [waiting.title, section.title]
                    section.title = join_titles(titles)[:MAX_TITLE_CHARS]
            waiting = None
        kinds = {placed.block.kind for placed in section.blocks}
        if kinds <= {BlockKind.HEADING, BlockKind.FURNITURE, BlockKind.BREAK}:
            waiting = section
        else:
            joined.append(section)
    return [*joined, waiting] if waiting is not None else joined
