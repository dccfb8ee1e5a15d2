"""Find where chapters begin, by the contents list and the headings, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from synth.books.book import ASIDES, Block, BlockKind, Book, Document, TocEntry
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
        section.reason = title_reason(first) or _guess_reason(section, document, book)
    section.title = (title or _make_title(section, document))[:MAX_TITLE_CHARS]


def states_rights(text: str) -> bool:
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


def _guess_reason(section: Section, document: Document, book: Book) -> SkipReason | None:
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
        is_prose = any(_is_sentence(placed.block) for placed in section.blocks)
        return None if is_prose else SkipReason.TITLE_PAGE
    # One such sign may stand in any story; a page of rights has several, or little else.
    signs = {found.casefold() for text in texts for found in _RIGHTS.findall(text)}
    is_rights = len(signs) > 1 or (bool(signs) and num_chars <= _MAX_TITLE_PAGE_CHARS)
    return SkipReason.LICENCE if is_rights and num_chars <= _MAX_RIGHTS_CHARS else None


def _is_byline(texts: list[str], book: Book) -> bool:
    """Say whether all there is are title and authors, such as "THE BELL" and "By Ann Author"."""
    names = {book.metadata.title.casefold(), *map(str.casefold, book.metadata.authors)}
    lowered = [text.casefold().strip(" .,") for text in texts if text]
    bare = [_BY.sub("", text) for text in lowered]
    return bool(lowered) and all(text in names or _BY.fullmatch(f"{text} ") for text in bare)


def _is_sentence(block: Block) -> bool:
    """Say whether a block is of the story and not of a title page: rather speak too much."""
    if block.kind in {BlockKind.HEADING, BlockKind.FURNITURE}:
        return False
    text = block.text.strip()
    is_whole = text.rstrip(_CLOSING).endswith(_SENTENCE_ENDS)
    is_long = len(text.split()) >= _MIN_SENTENCE_WORDS
    return is_whole and is_long and not _MAKERS.search(text)


def _make_title(section: Section, document: Document) -> str:
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
    said = (p.block.text for p in section.blocks if p.block.text and p.block.kind not in ASIDES)
    return next(said, texts[0] if texts else "")


# Entries of a contents list that are closer than this are sections of a chapter, not chapters.
_MIN_CHAPTER_CHARS = 2500
_MAX_PART_CHARS = 500  # of its own, before its first chapter
_MIN_HEADINGS = 2
_PART = re.compile(r"(?:part|book|volume|act|teil|buch|band|akt|livre|partie|tome|acte)\b", re.I)
_START = re.compile(r"\*\*\* ?START OF (?:TH(?:E|IS) )?PROJECT GUTENBERG", re.IGNORECASE)
_END = re.compile(r"(?:\*\*\* ?)?END OF (?:TH(?:E|IS) )?PROJECT GUTENBERG", re.IGNORECASE)
_PRODUCED = re.compile(r"(?:produced|transcribed|e-text prepared|scanned|updated) by\b", re.I)


@dataclass(frozen=True, slots=True)
class _Start:
    title: str
    level: int
    parents: tuple[str, ...] = ()


def find_sections(book: Book) -> tuple[list[Section], list[str]]:
    """Cut a book into sections, in the order of reading, with each block in one; tell warnings."""
    starts, warnings = _starts_of_toc(book)
    if len(starts) < _MIN_HEADINGS:
        headings = _starts_of_headings(book)
        if len(headings) >= _MIN_HEADINGS:
            # A lone entry that leads to where the text begins, such as "Start", names no chapter.
            starts = {place: start for place, start in starts.items() if not _is_first(book, place)}
        starts = {**starts, **headings}
    reasons = _archive_reasons(book)
    sections: list[Section] = []
    for number, document in enumerate(book.documents):
        for placed in _place_all(number, document):
            key = (number, placed.place)
            reason = reasons.get(key) or _reason(document, placed.block)
            start = starts.get(key)
            is_named = start is not None
            if start is None and _opens(sections, document, placed, reason, book):
                start = _Start("", 1)
            if start is not None:
                section = Section(start.title, start.level, [], reason, start.parents, is_named)
                sections.append(section)
            sections[-1].blocks.append(placed)
    for section in sections:
        name_section(section, book)
    return _join_parts(sections), warnings


def _is_first(book: Book, place: tuple[int, int]) -> bool:
    """Say whether there is no text before a place."""
    before = book.documents[: place[0]]
    return place[1] == 0 and not any(document.source_chars for document in before)


def _place_all(number: int, document: Document) -> Iterator[Placed]:
    for place, block in enumerate(document.blocks):
        yield Placed(number, place, block)


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
    if reason is not last.reason:
        return True
    if placed.place:
        return False
    # A document of its own kind, such as a dedication, or one before all chapters.
    is_special = document.role not in {"", "chapter", "part", "frontmatter", "bodymatter"}
    is_special = is_special and document.role != "backmatter"
    return is_special or not last.is_named or is_title_page(last, book)


def _archive_reasons(book: Book) -> dict[tuple[int, int], SkipReason]:
    """Return the places of what Project Gutenberg puts around a book."""
    places = [(n, p.place, p.block) for n, d in enumerate(book.documents) for p in _place_all(n, d)]
    found: dict[tuple[int, int], SkipReason] = {}
    starts = [i for i, (_, _, block) in enumerate(places) if _START.search(block.text[:200])]
    ends = [i for i, (_, _, block) in enumerate(places) if _END.match(block.text[:200])]
    head = starts[0] + 1 if starts and starts[0] < len(places) // 2 else 0
    if head:
        for index in range(head, min(head + 5, len(places))):
            head = index + 1 if _PRODUCED.match(places[index][2].text) else head
    foot = ends[0] if ends and ends[0] >= head else len(places)
    for index in [*range(head), *range(foot, len(places))]:
        found[places[index][:2]] = SkipReason.BOILERPLATE
    return found


def _starts_of_toc(book: Book) -> tuple[dict[tuple[int, int], _Start], list[str]]:
    """Return where the entries of the contents list lead to that begin chapters."""
    warnings: list[str] = []
    numbers = {document.path: n for n, document in reversed(list(enumerate(book.documents)))}
    anchors = places_of(book.documents)
    found: list[tuple[tuple[int, int], TocEntry]] = []
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
    found.sort(key=lambda pair: pair[0])
    return _choose_starts(book, found), warnings


def _choose_starts(
    book: Book, found: list[tuple[tuple[int, int], TocEntry]]
) -> dict[tuple[int, int], _Start]:
    """Leave out entries that are sections of a chapter; outer entries name parts."""
    offsets = _Offsets(book)
    starts: dict[tuple[int, int], _Start] = {}
    open_entries: list[tuple[TocEntry, bool]] = []  # and whether those in it begin chapters
    for index, (place, entry) in enumerate(found):
        while open_entries and open_entries[-1][0].level >= entry.level:
            open_entries.pop()
        is_start = all(is_part for _, is_part in open_entries)
        is_part = _has_role(book, place, "part") or _is_part(found, index, offsets)
        open_entries.append((entry, is_start and is_part))
        if not is_start:
            continue
        parents = tuple(outer.title for outer, _ in open_entries[:-1] if outer.title)
        title = entry.title
        if place in starts and starts[place].level >= entry.level:
            title = join_titles([starts[place].title, entry.title])
        starts[place] = _Start(title, entry.level, parents)
    return starts


def _has_role(book: Book, place: tuple[int, int], role: str) -> bool:
    """Say whether the book itself says what begins at a place."""
    document = book.documents[place[0]]
    return role in {document.role, document.blocks[place[1]].role}


def _is_part(found: list[tuple[tuple[int, int], TocEntry]], index: int, offsets: _Offsets) -> bool:
    """Say whether the entries inside an entry are chapters: long enough each, or it is a part."""
    entry = found[index][1]
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
    stop = offsets.at(found[end][0]) if end < len(found) else offsets.total
    own = offsets.at(inner[0][0]) - offsets.at(found[index][0])
    mean = (stop - offsets.at(inner[0][0])) / len(inner)
    return own < _MAX_PART_CHARS and mean >= _MIN_CHAPTER_CHARS


class _Offsets:
    """Tell how many characters stand before a place."""

    def __init__(self, book: Book) -> None:
        self._sums: list[list[int]] = []
        self.total = 0
        for document in book.documents:
            sums = []
            for block in document.blocks:
                sums.append(self.total)
                self.total += block.source_chars
            self._sums.append([*sums, self.total])

    def at(self, place: tuple[int, int]) -> int:
        """Return the characters before a place."""
        return self._sums[place[0]][place[1]]


def _starts_of_headings(book: Book) -> dict[tuple[int, int], _Start]:
    """Return the headings that begin chapters: the deepest level that leaves them long enough."""
    headings = [
        (n, placed.place, placed.block)
        for n, document in enumerate(book.documents)
        for placed in _place_all(n, document)
        if placed.block.kind is BlockKind.HEADING and _reason(document, placed.block) is None
    ]
    chosen = 0
    for level in range(1, 7):
        count = sum(block.level <= level for _, _, block in headings)
        exact = [block.text for _, _, block in headings if block.level == level]
        if len(exact) < _MIN_HEADINGS:
            continue
        is_labelled = 2 * sum(map(is_label, exact)) >= len(exact)
        if not chosen or is_labelled or book.source_chars / count >= _MIN_CHAPTER_CHARS:
            chosen = level
    starts: dict[tuple[int, int], _Start] = {}
    previous: tuple[int, int, Block] | None = None
    for number, place, block in headings:
        follows = previous is not None and previous[:2] == (number, place - 1)
        previous = (number, place, block) if block.level <= chosen else None
        is_second = follows and bool(is_label(book.documents[number].blocks[place - 1].text))
        if block.level <= chosen and not (is_second and not is_label(block.text)):
            starts[number, place] = _Start("", block.level)
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
            section = replace(section, parents=part.parents)
        if waiting is not None:
            if section.reason is waiting.reason and section.level > waiting.level:
                parents = section.parents or (*waiting.parents, waiting.title)
                blocks = [*waiting.blocks, *section.blocks]
                section = part = replace(section, blocks=blocks, parents=parents)
            elif section.reason is waiting.reason and _is_number_of(waiting, section):
                title = join_titles([waiting.title, section.title])[:MAX_TITLE_CHARS]
                section = replace(section, blocks=[*waiting.blocks, *section.blocks], title=title)
            else:
                joined.append(waiting)
            waiting = None
        kinds = {placed.block.kind for placed in section.blocks}
        if kinds <= {BlockKind.HEADING, BlockKind.FURNITURE, BlockKind.BREAK}:
            waiting = section
        else:
            joined.append(section)
    return [*joined, waiting] if waiting is not None else joined


def _is_number_of(waiting: Section, section: Section) -> bool:
    """Say whether a heading without text is the number of the chapter that follows it."""
    return (
        waiting.level == section.level
        and is_bare_number(waiting.title)
        and not is_label(section.title)
        and section.parents == waiting.parents
    )
