"""Find what the makers of a file put into its text: page numbers, imprints, marks of archives."""

from __future__ import annotations

import re
from collections.abc import Iterator

from synth.books.book import ASIDES, Block, BlockKind, Book, Document
from synth.books.documents.labels import is_label
from synth.books.rules import SkipReason

Place = tuple[int, int]  # numbers of the document and of the block

_FRONT_BLOCKS = 150
_END_BLOCKS = 40
_LONG_CHARS = 120  # of a paragraph of the story
_MAX_IMPRINT_CHARS = 400
_MAX_LINE_CHARS = 80
_MIN_SENTENCE_WORDS = 7
_MIN_WEAK_LINES = 2  # that make an imprint, where none says it for sure
_MIN_RUN = 3  # of numbers that count on
_MIN_NUMBERED_CHARS = 1500  # of a text that a number alone is the heading of
_NUMBER = re.compile(
    r"[\W_]*(?:page|seite|pagina|página|p\.|pg\.?|s\.)?\s*(\d{1,4})[\W_]*\Z", re.IGNORECASE
)
_URL = r"(?:https?://|www\.)\S+|\b[\w-]+\.(?:org|com|net|edu|gov|co\.uk|de|fr)\b(?:/\S*)?"
_ONLY_URL = re.compile(
    rf"[\W_]*(?:(?:url|web|website|visit|see|at|from|online|available)\b[\s:]*)*"
    rf"(?:(?:{_URL}|\S+@\S+\.\w+)[\s,;.)>\]]*)+\Z",
    re.IGNORECASE,
)
# What archives and those who scan books say of their work.
_ARCHIVE = re.compile(
    r"digiti[sz]ed (?:by|for|and|in|with|from)\b|\bscanned (?:by|from|and)\b|"
    r"digital (?:copy|scan|reproduction) of a book|\bgoogle.digitized\b|\bhathitrust\b|"
    r"internet archive|archive\.org|books\.google|google book search|project gutenberg|"
    r"gutenberg\.(?:org|net)|wikisource|generated (?:on|at|for) .{0,60}\d{4}|"
    r"public domain (?:in the|work)|with funding from|(?:ocr|transcrib|proofread)\w* by\b|"
    r"(?:e-?book|epub|file|pdf|e-?text|html)\b.{0,30}\b(?:was|is)? ?(?:produced|made|created|"
    r"prepared|downloaded|converted|provided)\b|gescannt (?:von|durch)|numérisé par|"
    r"digitalisiert (?:von|durch)",
    re.IGNORECASE,
)
# The stamp that a scan carries on many pages.
_STAMP = re.compile(
    r"[\W_]*(?:digiti[sz]ed by|numérisé par|digitalisiert (?:von|durch))\W+(?:the )?"
    r"(?:google|internet archive|microsoft|hathitrust|gallica|bnf|\w+ university)\b.{0,60}\Z",
    re.IGNORECASE,
)
# Google's note before the books that it scanned goes on until it names its address.
_NOTE_START = re.compile(r"(?:this is a digital copy of a book|about this book\b)", re.IGNORECASE)
_NOTE_END = re.compile(r"books\.google", re.IGNORECASE)
_SURE = re.compile(
    rf"©|\(c\) ?\d{{4}}|\bcopyright\b|\ball rights reserved\b|\bISBN\b|\bISSN\b|"
    rf"\bpublished (?:by|in|for|simultaneously)\b|\bfirst (?:published|printed|edition)\b|"
    rf"\b(?:re)?printed (?:in|by|and|at)\b|\blibrary of congress\b|\bentered according to\b|"
    rf"\btypeset (?:by|in)\b|\bcataloguing?\b|\bbritish library\b|\balle rechte\b|"
    rf"\bdroits\b.{{0,40}}\bréservés\b|\bdépôt légal\b|\bgedruckt (?:bei|in|von)\b|"
    rf"\bderechos reservados\b|{_URL}",
    re.IGNORECASE,
)
_WEAK = re.compile(
    r"\b(?:press|publish(?:ers?|ing|ed)|print(?:ers?|ing)|reprint(?:ed)?|verlag|buchhandlung|"
    r"druck(?:erei)?|éditions?|éditeurs?|librairie|imprimerie|editorial|editora|editore|"
    r"edition|impression|ltd|limited|inc|company|booksellers?|stationers?|"
    r"hardcover|paperback|price|auflage|tirage)\b|&\s*(?:co|sons?|cie)\b|"
    r"\band (?:company|sons|co)\b",
    re.IGNORECASE,
)
_CITY = (
    r"(?:london|new york|boston|philadelphia|chicago|edinburgh|glasgow|oxford|cambridge|dublin|"
    r"toronto|sydney|melbourne|san francisco|indianapolis|garden city|paris|lyon|bruxelles|genève|"
    r"berlin|leipzig|münchen|stuttgart|wien|zürich|frankfurt(?: am main)?|hamburg|madrid|barcelona|"
    r"milano|roma|torino|amsterdam|n\.? ?y\.?|mass\.?|england)"
)
_CITY_LINE = re.compile(
    rf"\W*{_CITY}(?:\W+(?:and|und|et|{_CITY}|\d{{4}}|[MDCLXVI]{{4,}}))*\W*\Z", re.IGNORECASE
)
_YEAR_LINE = re.compile(r"\W*(?:1[4-9]\d\d|20\d\d|[MDCLXVI]{4,})\W*\Z")


def find_furnishings(book: Book) -> dict[Place, SkipReason]:
    """Return the blocks that are no text of the author's, by their places, and why each is none."""
    return {**_find_imprints(book), **_find_page_numbers(book)}


def reads_as_sentence(text: str) -> bool:
    """Say whether a text is told by somebody, and is no line of a title page or an imprint."""
    words = text.split()
    is_ended = text.rstrip("\"'’”»«)]").endswith((".", "!", "?", "…"))  # noqa: RUF001
    small = sum(word[:1].islower() for word in words)
    return len(words) >= _MIN_SENTENCE_WORDS and is_ended and 2 * small >= len(words)


def _iterate_worded(book: Book) -> Iterator[tuple[Place, Block]]:
    """Yield the blocks that have words, in their order."""
    for number, document in enumerate(book.documents):
        for place, block in enumerate(document.blocks):
            if block.text and block.kind not in ASIDES:
                yield (number, place), block


def _find_imprints(book: Book) -> dict[Place, SkipReason]:
    blocks = list(_iterate_worded(book))
    found = {
        place: SkipReason.BOILERPLATE for place, block in blocks if _STAMP.match(block.text[:200])
    }
    loose: list[Place] = []  # since the last line of an imprint: titles, names, dedications
    is_in_note = has_imprint = False
    for place, block in blocks[:_FRONT_BLOCKS]:
        text = block.text
        if not is_in_note and _NOTE_START.match(text):
            is_in_note = True
            found |= dict.fromkeys(loose, SkipReason.BOILERPLATE)  # the name of who scanned it
        reason = found.get(place) or _front_reason(block)
        if is_in_note:
            reason = SkipReason.BOILERPLATE
            is_in_note = not _NOTE_END.search(text)
        if reason is not None:
            found[place] = reason
            if reason is SkipReason.LICENCE:
                # Such as the publisher between the place and the year.
                if has_imprint:
                    found |= dict.fromkeys(loose, SkipReason.LICENCE)
                has_imprint = True
                loose = []
        elif _is_story(block):
            break
        elif len(text) <= _MAX_LINE_CHARS and not reads_as_sentence(text):
            loose.append(place)
        else:
            loose, has_imprint = [], False
    imprint = [place for place, why in found.items() if why is SkipReason.LICENCE]
    texts = [book.documents[number].blocks[at].text for number, at in imprint]
    if len(imprint) < _MIN_WEAK_LINES and not any(map(_SURE.search, texts)):
        # "London, 1895" alone may be where a letter was written.
        found = {place: why for place, why in found.items() if place not in imprint}
    if is_in_note:  # it never ended, so it was none
        found = {place: why for place, why in found.items() if why is not SkipReason.BOILERPLATE}
    for place, block in blocks[-_END_BLOCKS:]:
        if _ONLY_URL.match(block.text[:300]):
            found.setdefault(place, SkipReason.BOILERPLATE)
    return found


def _front_reason(block: Block) -> SkipReason | None:
    text = block.text
    if _ONLY_URL.match(text[:300]):
        return SkipReason.BOILERPLATE
    if block.kind is BlockKind.HEADING and is_label(text):
        return None
    if len(text) <= _MAX_IMPRINT_CHARS and _ARCHIVE.search(text):
        return SkipReason.BOILERPLATE
    if len(text) <= _MAX_IMPRINT_CHARS and _SURE.search(text):
        return SkipReason.LICENCE
    is_line = len(text) <= _MAX_LINE_CHARS and not reads_as_sentence(text)
    if is_line and (_WEAK.search(text) or _CITY_LINE.match(text) or _YEAR_LINE.match(text)):
        return None if block.kind is BlockKind.HEADING else SkipReason.LICENCE
    return None


def _is_story(block: Block) -> bool:
    """Say whether the text of the book has begun."""
    if block.kind is BlockKind.HEADING:
        return is_label(block.text)
    return len(block.text) >= _LONG_CHARS and reads_as_sentence(block.text)


def _find_page_numbers(book: Book) -> dict[Place, SkipReason]:
    """Return the places of numbers of pages: alone in a file, or counting on through the text."""
    named = {entry.path for entry in book.toc}
    files: list[tuple[int, int, Place]] = []  # number of the document, its number, its place
    lines: list[tuple[int, Place]] = []
    for number, document in enumerate(book.documents):
        filled = [(n, b) for n, b in enumerate(document.blocks) if b.text and b.kind not in ASIDES]
        values = [(n, int(m[1])) for n, b in filled if (m := _number_of(b)) is not None]
        if len(filled) == len(values) == 1 and document.path not in named:
            files.append((number, values[0][1], (number, values[0][0])))
        else:
            lines += [(value, (number, place)) for place, value in values]
    found = set() if _number_chapters(files, book.documents) else {place for _, _, place in files}
    run: list[tuple[int, Place]] = []
    for value, place in [*lines, (-1, (0, 0))]:
        if run and value == run[-1][0] + 1:
            run.append((value, place))
            continue
        # Numbers that count from 1 may be those of sections.
        if len(run) >= _MIN_RUN and run[0][0] > 1:
            found |= {one for _, one in run}
        run = [(value, place)]
    return dict.fromkeys(found, SkipReason.PAGE_NUMBER)


def _number_of(block: Block) -> re.Match[str] | None:
    return _NUMBER.match(block.text) if block.kind is BlockKind.PARAGRAPH else None


def _number_chapters(files: list[tuple[int, int, Place]], documents: tuple[Document, ...]) -> bool:
    """Say whether files of a number alone count the chapters: from 1, each before a long text."""
    if len(files) < 2 or [value for _, value, _ in files] != list(range(1, len(files) + 1)):
        return False
    following = [documents[number + 1 : number + 2] for number, _, _ in files]
    return all(
        found
        and found[0].source_chars >= _MIN_NUMBERED_CHARS
        and not any(block.kind is BlockKind.HEADING for block in found[0].blocks[:3])
        for found in following
    )
