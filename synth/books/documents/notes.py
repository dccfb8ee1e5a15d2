"""Collect the text of one block while a document is walked, and make the block of it.

The bodies of notes that only links tell of are found here, in documents that name no roles.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from synth.books.book import Block, BlockKind, Document, Place, count_chars
from synth.books.documents import markup
from synth.books.documents.markup import Element

_MIN_LINES = 3
_MAX_LINE_CHARS = 80
_MEAN_LINE_CHARS = 55
_MIN_CAPITALS = 0.8  # of the lines: those of wrapped prose begin in the middle of sentences
_OPENERS = "“\"'‘«—–([…"  # noqa: RUF001


def has_set_lines(element: Element) -> bool:
    """Say whether an element holds nothing but lines parted by `br`, each of which is meant."""
    lines: list[str] = [""]
    breaks: list[bool] = []  # whether each `br` follows text
    for text, is_break in _inline_texts(element):
        if text is None:
            return False
        if is_break:
            breaks.append(bool(lines[-1].strip()))
            lines.append("")
        else:
            lines[-1] += text
    filled = [line for line in map(markup.squeeze, lines) if line]
    # Two `br` in a row part paragraphs; where all do, there are no lines.
    if len(filled) < _MIN_LINES or sum(breaks) < 2 or sum(breaks) <= len(breaks) / 2:
        return False
    is_long = sum(map(len, filled)) > _MEAN_LINE_CHARS * len(filled)
    if is_long or max(map(len, filled)) > _MAX_LINE_CHARS:
        return False
    firsts = (line.lstrip(_OPENERS)[:1] for line in filled)
    begun = sum(not first.islower() and not first.isspace() for first in firsts)
    return begun >= _MIN_CAPITALS * len(filled)


def _inline_texts(element: Element) -> Iterator[tuple[str | None, bool]]:
    """Yield texts and breaks in order; None where there is a block, and nothing after it."""
    yield element.text or "", False
    for child in element:
        name = markup.name_of(child)
        if name == "br":
            yield "", True
        elif name:
            if markup.is_block(child, name):
                yield None, False
                return
            yield from _inline_texts(child)
        yield child.tail or "", False


_ORNAMENTABLE = frozenset({BlockKind.PARAGRAPH, BlockKind.VERSE, BlockKind.HEADING})
_SPOKEN_BY = frozenset({BlockKind.PARAGRAPH, BlockKind.VERSE, BlockKind.SPEECH})
_BEFORE_CHARS = 12
_EMPTY_BRACKETS = re.compile(r" ?(?:\[ ?\]|\( ?\))")  # which held the mark of a note
_MAY_HOLD_LINES = frozenset({"p", "div", "blockquote", "center", "td", "section"})


@dataclass(frozen=True, slots=True)
class Context:
    """Hold what the elements around a text say of it."""

    kind: BlockKind = BlockKind.PARAGRAPH
    level: int = 0
    language: str = ""
    role: str = ""
    speaker: str = ""
    is_flat: bool = False  # in a row of a table: the ends of blocks are blanks
    is_preformatted: bool = False
    is_direction: bool = False  # what persons of a play do, not what they say
    note_anchors: tuple[str, ...] = ()


def context_in(element: Element, name: str, context: Context) -> Context:
    """Return what an element that is a block says of the text in it, besides what is around it."""
    role = markup.role_of(element)
    context = replace(
        context,
        language=markup.language_of(element) or context.language,
        role=role or context.role,
        is_direction=context.is_direction or markup.is_direction(element),
    )
    ids = (element.get("id"),) if element.get("id") else ()
    is_in_notes = context.kind is BlockKind.NOTE or context.role in markup.NOTE_SECTIONS
    if context.role in markup.NOTE_ROLES or (is_in_notes and name in {"li", "p", "dd", "dt"}):
        context = replace(context, kind=BlockKind.NOTE)
    if context.kind is BlockKind.NOTE:
        return replace(context, note_anchors=(*context.note_anchors, *ids))
    level = markup.heading_level(element, name)
    if name == "hgroup":
        level = min((markup.heading_level(e, markup.name_of(e)) or 6 for e in element), default=2)
    if level:
        return replace(context, kind=BlockKind.HEADING, level=level)
    if name in {"figcaption", "caption"}:
        return replace(context, kind=BlockKind.CAPTION)
    if name in {"li", "dt", "dd"} and context.kind is BlockKind.PARAGRAPH:
        return replace(context, kind=BlockKind.LIST_ITEM)
    if name == "pre":
        is_code = any(markup.name_of(child) == "code" for child in element)
        role = "code" if is_code else context.role
        return replace(context, kind=BlockKind.VERSE, role=role, is_preformatted=True)
    if context.kind is BlockKind.PARAGRAPH and (
        markup.is_verse(element) or (name in _MAY_HOLD_LINES and has_set_lines(element))
    ):
        context = replace(context, kind=BlockKind.VERSE)
    return context


@dataclass(slots=True)
class Run:
    """Collect the text of the block that is being read."""

    parts: list[str] = field(default_factory=list)
    dropped: int = 0  # counted but not in `parts`; less than 0 for what is in them but not counted
    note_marks: list[str] = field(default_factory=list)
    side: list[Block] = field(default_factory=list)  # what stood in the text but is none of it
    languages: set[str] = field(default_factory=set)
    speaker: str = ""
    last: str = ""  # the last character that is no blank
    is_initial: bool = False  # it ends with a word's first letter, set large: no blank follows
    is_broken: bool = False  # a line ended here, and nothing has followed

    def add(self, text: str | None, language: str) -> None:
        """Append text of the book."""
        if text:
            if self.is_initial:
                text = text.lstrip()
                self.is_initial = not text
            self.parts.append(text)
            if said := text.rstrip():
                self.languages.add(language)
                self.last = said[-1]
                self.is_broken = False

    def add_uncounted(self, text: str) -> None:
        """Append text that is not in the body, such as the text that stands for a formula."""
        self.parts.append(text)
        self.dropped -= count_chars(text)
        self.last = text.rstrip()[-1:] or self.last
        self.is_broken = False

    def before(self) -> str:
        """Return the end of the text so far."""
        found = ""
        for part in reversed(self.parts):
            found = part[-_BEFORE_CHARS:] + found
            if len(found) >= _BEFORE_CHARS:
                break
        return found[-_BEFORE_CHARS:]

    def add_blank(self) -> None:
        self.parts.append(" ")

    def drop(self, text: str) -> None:
        """Count text of the book that is not spoken as it stands."""
        self.dropped += count_chars(text)

    def text(self) -> str:
        """Return the text as it is spoken; blank if there is none."""
        text = markup.squeeze("".join(self.parts))
        if self.note_marks:
            text = _EMPTY_BRACKETS.sub("", text)
        if self.speaker and self.dropped > 0:  # the name stood before it
            text = text.lstrip(" .:—–") or self.speaker  # noqa: RUF001  # dashes after the name
        return text

    def count(self) -> int:
        """Return the non-blank characters of the document that the run stands for."""
        return count_chars("".join(self.parts)) + self.dropped

    def block(self, context: Context, text: str, *, prefix: str, is_stanza_start: bool) -> Block:
        """Make a block of the run.

        Args:
            text: as `text` returned it, or what stands for it.
            prefix: the number of a list's item, which is no text of the document.
            is_stanza_start: of a line of verse.
        """
        kind, role = context.kind, context.role
        if not text:
            kind, role = BlockKind.FURNITURE, "invisible"
        elif kind in _ORNAMENTABLE and markup.is_ornament(text):
            kind = BlockKind.BREAK
        elif self.speaker and kind in _SPOKEN_BY:
            kind = BlockKind.SPEECH
        if self.speaker and kind not in _SPOKEN_BY and text != self.speaker:
            text = f"{self.speaker}: {text}"
        inline = self.languages
        return Block(
            kind,
            f"{prefix} {text}" if prefix and kind is BlockKind.LIST_ITEM else text,
            self.count(),
            level=context.level if kind is BlockKind.HEADING else 0,
            speaker=self.speaker or context.speaker if kind is BlockKind.SPEECH else "",
            language=next(iter(inline)) if len(inline) == 1 else context.language,
            role=role,
            anchors=context.note_anchors if kind is BlockKind.NOTE else (),
            note_marks=tuple(self.note_marks),
            is_stanza_start=is_stanza_start and kind is BlockKind.VERSE,
        )

    def take_alt(self) -> str:
        """Take out what an image beside the text says: it is the text of a heading without one.

        An image of which the words are in the document stays a block of its own.
        """
        for number, block in enumerate(self.side):
            if block.kind is BlockKind.ALT_TEXT and not block.source_chars:
                del self.side[number]
                return block.text
        return ""


_MAX_REST = 8
_OWN_MARK = re.compile(r"\A(?:\[(?:\w{1,4}|[*†‡§]{1,3})\]|\((?:\d{1,4}|[*†‡§]{1,3})\))\.? ?")
_MAY_BE_NOTES = frozenset({BlockKind.PARAGRAPH, BlockKind.LIST_ITEM, BlockKind.TABLE_ROW})
_MAY_GO_ON = _MAY_BE_NOTES | {BlockKind.VERSE, BlockKind.FURNITURE, BlockKind.CAPTION}


def full_mark(path: str, mark: str) -> str:
    """Return a note's mark as "path#anchor"; one without a path is in the document `path`."""
    return mark if "#" in mark else f"{path}#{mark}"


def places_of(documents: tuple[Document, ...]) -> dict[str, Place]:
    """Return where each anchor "path#anchor" first leads: (number of document, of block)."""
    places: dict[str, Place] = {}
    for number, document in enumerate(documents):
        for place, block in enumerate(document.blocks):
            for anchor in block.anchors:
                places.setdefault(f"{document.path}#{anchor}", (number, place))
    return places


def mark_notes(documents: tuple[Document, ...]) -> tuple[tuple[Document, ...], list[str]]:
    """Return the documents with the targets of note marks as notes, and warnings.

    A mark that leads back is a link from the note to its place, and is dropped.
    """
    places = places_of(documents)
    changed: list[list[Block]] = [list(document.blocks) for document in documents]
    marked: dict[Place, Place] = {}  # notes, and where each is first marked
    num_lost = 0
    for number, document in enumerate(documents):
        for place, block in enumerate(document.blocks):
            kept = []
            for mark in (full_mark(document.path, mark) for mark in block.note_marks):
                target = places.get(mark)
                if target is None:
                    num_lost += 1
                    continue
                if target <= (number, place):
                    # Standard notes stand behind their marks; one that a role names may not.
                    if documents[target[0]].blocks[target[1]].kind is BlockKind.NOTE:
                        kept.append(mark)
                    continue
                note = changed[target[0]][target[1]]
                if note.kind in _MAY_BE_NOTES:
                    changed[target[0]][target[1]] = replace(note, kind=BlockKind.NOTE)
                    marked.setdefault(target, (number, place))
                kept.append(mark)
            if tuple(kept) != block.note_marks:
                changed[number][place] = replace(changed[number][place], note_marks=tuple(kept))
    _take_rests(changed, marked)
    warnings = [f"{num_lost} note marks have no note."] if num_lost else []
    for blocks in changed:
        for place, block in enumerate(blocks):
            # A note is heard where it is referred to: without its mark in brackets.
            if block.kind is BlockKind.NOTE and (text := _OWN_MARK.sub("", block.text)):
                blocks[place] = replace(block, text=text)
    return with_blocks(documents, changed), warnings


def with_blocks(
    documents: tuple[Document, ...], changed: Iterable[Iterable[Block]]
) -> tuple[Document, ...]:
    """Return documents with other blocks, those of each document in its turn."""
    return tuple(
        replace(document, blocks=tuple(blocks))
        for document, blocks in zip(documents, changed, strict=True)
    )


def _take_rests(changed: list[list[Block]], marked: dict[Place, Place]) -> None:
    """Make the further paragraphs of a note, up to the next one, notes too, in place.

    They are its own where the next note is marked before it begins: notes that stand together. A
    note under each paragraph of a text has that text behind it.
    """
    for note, following in itertools.pairwise(sorted(marked)):
        number, place = note
        if following[0] != number or not 1 < following[1] - place <= _MAX_REST + 1:
            continue
        blocks = changed[number]
        rest = range(place + 1, following[1])
        is_between = note < marked[following] < following
        if is_between or any(blocks[at].kind not in _MAY_GO_ON for at in rest):
            continue
        for at in rest:
            if blocks[at].kind is not BlockKind.FURNITURE:
                anchors = (*blocks[at].anchors, *blocks[place].anchors)
                blocks[at] = replace(blocks[at], kind=BlockKind.NOTE, anchors=anchors)


_BARE_MARK = re.compile(r"(?:\d{1,4}|[a-z]|[ivxlc]{1,6})\Z", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,3}\Z")
_SURE_MARK = re.compile(
    r"(?:[*†‡§¶]{1,4}|[\[({](?:\d{1,4}|[*†‡§¶]{1,4}|[a-zA-Z])[\])}]|\[[A-Z]{2}\])\Z"
)
_HIGH_MARK = re.compile(
    r"(?:\d{1,3}(?:\s*[,–-]\s*\d{1,3})*|[*†‡§¶]{1,4}|\[(?:\d{1,3}|[a-z*†‡])\])\Z"  # noqa: RUF001
)
_VERSE_CLASS = re.compile(
    r"(?:^|[\s_-])(?:v|verse|vers)(?:$|[\s_-]|n(?:o|um|umber)?\b)", re.IGNORECASE
)
_BACK_MARK = re.compile(r"[↩↑^←⏎\ufe0e\ufe0f↵]+\Z")
_NOTE_NAME = re.compile(
    r"(?:foot|end|rear)?note|(?:\b|_|\d)(?:fn|en|ftn|nt)(?=[\d_:-])|_ftn|noteref|fnref|anchor",
    re.IGNORECASE,
)
_RAISED_CLASSES = frozenset({"sup", "super", "superscript", "supertext"})
_RAISED_STYLE = re.compile(r"vertical-align\s*:\s*(?:super|text-top|top)\b", re.IGNORECASE)
# What a mark stands behind: a word, or what closes a clause. "1,2" and "p. 12" are numbers.
_WORD_END = re.compile(r"(?:[^\W\d_]{3,}|[.,;:!?…”’»\"')\]])\Z")  # noqa: RUF001
_NUMBERS_END = re.compile(r"\d[.,;:]?\Z|[\s(\[–—-]\Z|\A\Z")  # noqa: RUF001
_MEASURE_END = re.compile(
    r"\b(?:sec|mol|rad|sin|cos|tan|log|exp|min|miles|metres|meters|feet|inches)\Z", re.IGNORECASE
)
HIGH = str.maketrans("0123456789-–−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻⁻")  # noqa: RUF001  # signs of minus


def link_role(element: Element, before: str) -> str:
    """Return `noteref` or `backlink` for a link that is but a mark, else an empty string.

    Args:
        before: the end of the text before it in its block.
    """
    if not markup.is_mark(element):
        return ""
    types = markup.types_of(element)
    for role in ("noteref", "backlink"):
        if role in types:
            return role
    text, href = markup.squeeze(markup.text_of(element)), element.get("href") or ""
    if not text or len(text) > 12 or "#" not in href:
        return ""
    if _BACK_MARK.match(text):
        return "backlink"
    if _SURE_MARK.match(text):
        return "noteref"
    if not _BARE_MARK.match(text):
        return ""
    parent = element.getparent()
    is_high = (parent is not None and is_raised(parent)) or any(
        is_raised(one) for one in element.iter() if markup.name_of(one)
    )
    names = f"{element.get('class') or ''} {element.get('id') or ''} {href.partition('#')[2]}"
    if is_high or _NOTE_NAME.search(names):
        return "noteref"
    # "word12" is the mark of a note, "chapter 12" and "1,2" are not.
    is_mark = bool(_NUMBER.match(text)) and not _NUMBERS_END.search(before)
    return "noteref" if is_mark and _WORD_END.search(before) else ""


def is_raised(element: Element) -> bool:
    """Say whether an element sets its text high, as marks of notes and exponents are."""
    return (
        markup.name_of(element) == "sup"
        or bool(_RAISED_CLASSES & markup.classes_of(element))
        or bool(_RAISED_STYLE.search(element.get("style") or ""))
    )


def is_verse_number(element: Element, text: str, before: str) -> bool:
    """Say whether a number counts what follows it, as in a Bible, and is no part of a word."""
    if not (text.isascii() and text.isdigit()) or before[-1:].isalnum():
        return False
    return is_raised(element) or bool(_VERSE_CLASS.search(element.get("class") or ""))


def is_high_mark(text: str, before: str) -> bool:
    """Say whether a number set high is the mark of a note that nothing leads to."""
    if not _HIGH_MARK.match(text) or _NUMBERS_END.search(before) or _MEASURE_END.search(before):
        return False
    return bool(_WORD_END.search(before))
