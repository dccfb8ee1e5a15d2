"""Find what the makers of a file put into its text: page numbers, imprints, marks of archives.

What somebody should look at before a book is rendered is told as warnings.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from synth.books.book import ASIDES, Block, BlockKind, Book, Place, Placed
from synth.books.documents.labels import is_label
from synth.books.rules import SkipReason
from synth.text.languages import base_of
from ttsweb.refusals import counted

if TYPE_CHECKING:
    from synth.books.plan import Plan

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
_URL = r"(?:https?://|www\.)\S+|\b[\w-]+\.(?:org|com|net|edu|gov|co\.uk|de|fr)\b(?:/\S*)?|\b[\w-]+\.[a-z]{2,}/\w\S*"
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
    r"digitalisiert (?:von|durch)|text on this page is estimated to be",
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
    rf"\bderechos reservados\b|\b(?:e-?)?book is licensed\b|\bis a work of fiction\b|{_URL}",
    re.IGNORECASE,
)
_WEAK = re.compile(
    r"\b(?:press|publish(?:ers?|ing|ed)|print(?:ers?|ing)|reprint(?:ed)?|verlag|buchhandlung|"
    r"druck(?:erei)?|éditions?|éditeurs?|librairie|imprimerie|editorial|editora|editore|"
    r"cover (?:design|art(?:work)?|image|illustration|photo(?:graph(?:y)?)?)|twitter|facebook|"
    r"instagram|newsletter|edition|impression|ltd|limited|inc|company|booksellers?|stationers?|"
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
    worded = [one for one in book.blocks() if one.block.text and one.block.kind not in ASIDES]
    return {**_find_imprints(worded), **_find_page_numbers(book, worded)}


def reads_as_sentence(text: str) -> bool:
    """Say whether a text is told by somebody, and is no line of a title page or an imprint."""
    words = text.split()
    is_ended = text.rstrip("\"'’”»«)]").endswith((".", "!", "?", "…"))  # noqa: RUF001
    small = sum(word[:1].islower() for word in words)
    return len(words) >= _MIN_SENTENCE_WORDS and is_ended and 2 * small >= len(words)


def _find_imprints(blocks: list[Placed]) -> dict[Place, SkipReason]:
    boilerplate = {one.key for one in blocks if _STAMP.match(one.block.text[:200])}
    imprint: dict[Place, str] = {}  # with the texts
    loose: list[Placed] = []  # since the last line of an imprint: titles, names, dedications
    is_in_note = has_imprint = False
    for placed in blocks[:_FRONT_BLOCKS]:
        key, text, is_told = placed.key, placed.block.text, reads_as_sentence(placed.block.text)
        is_heading = placed.block.kind is BlockKind.HEADING
        if not is_in_note and _NOTE_START.match(text):
            is_in_note = True
            boilerplate.update(one.key for one in loose)  # the name of who scanned it
        reason = SkipReason.BOILERPLATE if key in boilerplate else _front_reason(placed.block)
        if is_in_note:
            reason = SkipReason.BOILERPLATE
            is_in_note = not _NOTE_END.search(text)
        if reason is SkipReason.BOILERPLATE:
            boilerplate.add(key)
        elif reason is SkipReason.LICENCE:
            # Such as the publisher between the place and the year.
            imprint |= {
                one.key: one.block.text for one in (*(loose if has_imprint else ()), placed)
            }
            loose, has_imprint = [], True
        elif is_heading and is_label(text):
            break  # the text of the book has begun
        elif len(text) <= _MAX_LINE_CHARS and not is_told:
            loose.append(placed)
        elif is_heading or len(text) < _LONG_CHARS or not is_told:
            loose, has_imprint = [], False
        else:
            break
    boilerplate -= imprint.keys()
    if len(imprint) < _MIN_WEAK_LINES and not any(map(_SURE.search, imprint.values())):
        imprint = {}  # "London, 1895" alone may be where a letter was written
    if is_in_note:  # it never ended, so it was none
        boilerplate = set()
    found = dict.fromkeys(boilerplate, SkipReason.BOILERPLATE)
    found |= dict.fromkeys(imprint, SkipReason.LICENCE)
    for placed in blocks[-_END_BLOCKS:]:
        if _ONLY_URL.match(placed.block.text[:300]):
            found.setdefault(placed.key, SkipReason.BOILERPLATE)
    return found


def _front_reason(block: Block) -> SkipReason | None:
    text = block.text
    if _ONLY_URL.match(text[:300]):
        return SkipReason.BOILERPLATE
    is_heading = block.kind is BlockKind.HEADING
    if len(text) > _MAX_IMPRINT_CHARS or (is_heading and is_label(text)):
        return None
    if _ARCHIVE.search(text):
        return SkipReason.BOILERPLATE
    if _SURE.search(text):
        return SkipReason.LICENCE
    if is_heading or len(text) > _MAX_LINE_CHARS or reads_as_sentence(text):
        return None
    is_weak = _WEAK.search(text) or _CITY_LINE.match(text) or _YEAR_LINE.match(text)
    return SkipReason.LICENCE if is_weak else None


def _find_page_numbers(book: Book, worded: list[Placed]) -> dict[Place, SkipReason]:
    """Return the places of numbers of pages: alone in a file, or counting on through the text."""
    named = {entry.path for entry in book.toc}
    filled = Counter(placed.document for placed in worded)
    files: list[tuple[int, Place]] = []  # numbers, where one is all that a document says
    lines: list[tuple[int, Place]] = []
    for placed in worded:
        is_paragraph = placed.block.kind is BlockKind.PARAGRAPH
        match = _NUMBER.match(placed.block.text) if is_paragraph else None
        if match is not None:
            is_alone = filled[placed.document] == 1
            is_alone = is_alone and book.documents[placed.document].path not in named
            (files if is_alone else lines).append((int(match[1]), placed.key))
    found = {place for _, place in files} if not _count_chapters(book, files) else set()
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


def _count_chapters(book: Book, files: list[tuple[int, Place]]) -> bool:
    """Say whether files of a number alone count the chapters: from 1, each before a long text."""
    if len(files) < 2 or [value for value, _ in files] != list(range(1, len(files) + 1)):
        return False
    following = [book.documents[place[0] + 1 : place[0] + 2] for _, place in files]
    return all(
        found
        and found[0].source_chars >= _MIN_NUMBERED_CHARS
        and not any(block.kind is BlockKind.HEADING for block in found[0].blocks[:3])
        for found in following
    )


LONG_PARAGRAPH_CHARS = 5000
SHORT_CHAPTER_CHARS = 30
_ODD_CATEGORIES = frozenset({"Cc", "Cn", "Co", "Cs"})
_MAX_SHOWN = 10
_MAX_TITLE_CHARS = 40
_MAX_BEGINNING_CHARS = 30
_TAG = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*\Z")
_UNKNOWN = frozenset({"und", "zxx", "mul", "mis", "un"})
# What accents and quotes of UTF-8 become where they were read as Windows-1252.
_MOJIBAKE = re.compile("[ÃÂ][\u0080-\u00bf]|â€[œ\u009d™˜“”¦]|Ã¢â‚¬")  # noqa: RUF001
_MIN_MOJIBAKE = 2
_MIN_HIDDEN_CHARS = 200  # fewer are titles and labels for machines


def warnings_of(plan: Plan) -> Iterator[str]:
    """Yield warnings about what is spoken, each a sentence that says where."""
    yield from _of_characters(plan)
    yield from _of_languages(plan)
    for chapter in plan.included:
        title = _shorten(chapter.title)
        spoken = list(chapter.spoken())
        longest = max((block.text for block in spoken), key=len, default="")
        if len(longest) > LONG_PARAGRAPH_CHARS:
            beginning = longest[:_MAX_BEGINNING_CHARS].rsplit(" ", 1)[0]
            yield (
                f"{title} has a paragraph of {len(longest)} characters ({beginning}…). It "
                "is cut between sentences, or at blanks if it has none."
            )
        if sum(len(block.text) for block in spoken) < SHORT_CHAPTER_CHARS:
            yield (
                f"{title} is very short; merge it with the chapter before or after it, or "
                "exclude it."
            )
    for path, (chars, text) in _count_hidden(plan).items():
        yield (
            f"{path} hides {counted(chars, 'character')} from its readers ({text}…). "
            "Include them in the plan if they belong to the book."
        )
    if not plan.included:
        yield "No chapter is included, so there is nothing to render."


def _count_hidden(plan: Plan) -> dict[str, tuple[int, str]]:
    """Return how much the files of a book hide, by their paths, and how it begins."""
    found: dict[str, tuple[int, str]] = {}
    for chapter in plan.chapters:
        for planned in chapter.blocks:
            if chapter.reason_of(planned) is SkipReason.HIDDEN:
                chars, text = found.get(planned.path, (0, ""))
                text = text or planned.block.text[:_MAX_TITLE_CHARS]
                found[planned.path] = (chars + planned.block.source_chars, text)
    return {path: one for path, one in found.items() if one[0] >= _MIN_HIDDEN_CHARS}


def _shorten(title: str) -> str:
    return repr(title if len(title) <= _MAX_TITLE_CHARS else f"{title[:_MAX_TITLE_CHARS]}…")


def _of_characters(plan: Plan) -> Iterator[str]:
    odd: dict[str, tuple[int, str]] = {}  # how often, and the chapter that it is first in
    garbled: dict[str, int] = {}
    for chapter in plan.included:
        for block in chapter.spoken():
            if block.text.isascii() and block.text.isprintable():
                continue
            for character in block.text:
                category = unicodedata.category(character)
                if character != "\ufffd" and category not in _ODD_CATEGORIES:
                    continue
                count, first = odd.get(character, (0, chapter.title))
                odd[character] = (count + 1, first)
            if found := len(_MOJIBAKE.findall(block.text)):
                garbled[chapter.title] = garbled.get(chapter.title, 0) + found
    if odd:
        most = sorted(odd.items(), key=lambda item: -item[1][0])[:_MAX_SHOWN]
        shown = ", ".join(
            f"U+{ord(character):04X} ({count}, first in {_shorten(title)})"
            for character, (count, title) in most
        )
        yield f"Some characters are not text, perhaps because of a wrong encoding: {shown}."
    if sum(garbled.values()) >= _MIN_MOJIBAKE:
        yield (
            f"{sum(garbled.values())} letters look as if they were read with a wrong "
            f"encoding ('Ã©' for 'é'), first in {_shorten(next(iter(garbled)))}. Look for a "
            "better file."
        )


def _of_languages(plan: Plan) -> Iterator[str]:
    found: dict[str, str] = {}  # the chapter in which each language is first
    for chapter in plan.included:
        found.setdefault(chapter.language, chapter.title)
        for block in chapter.spoken():
            if block.language:
                found.setdefault(block.language, chapter.title)
    if "" in found:
        yield "The book does not name its language; set the language before you start the book."
    for language in sorted(found.keys() - {""}):
        if not _TAG.match(language) or base_of(language) in _UNKNOWN:
            yield (
                f"The language {language!r}, first in {_shorten(found[language])}, is "
                "unknown; set the language before you start the book."
            )
