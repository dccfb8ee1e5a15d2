"""Find the bodies of notes that only links tell of, in documents that name no roles."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from dataclasses import replace

from synth.books.book import Block, BlockKind, Document, Place
from synth.books.documents import markup
from synth.books.documents.markup import Element

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
