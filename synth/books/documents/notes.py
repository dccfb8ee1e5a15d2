"""Find the bodies of notes that only links tell of, in documents that name no roles."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from synth.books.book import Block, BlockKind, Document

_MAX_REST = 8
_OWN_MARK = re.compile(r"(?:\[(?:\w{1,4}|[*†‡§]{1,3})\]|\((?:\d{1,4}|[*†‡§]{1,3})\))\.? ?")
_MAY_BE_NOTES = frozenset({BlockKind.PARAGRAPH, BlockKind.LIST_ITEM, BlockKind.TABLE_ROW})
_MAY_GO_ON = _MAY_BE_NOTES | {BlockKind.VERSE, BlockKind.FURNITURE, BlockKind.CAPTION}


def full_mark(path: str, mark: str) -> str:
    """Return a note's mark as "path#anchor"; one without a path is in the document `path`."""
    return mark if "#" in mark else f"{path}#{mark}"


def places_of(documents: tuple[Document, ...]) -> dict[str, tuple[int, int]]:
    """Return where each anchor "path#anchor" first leads: (number of document, of block)."""
    places: dict[str, tuple[int, int]] = {}
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
    marked: dict[tuple[int, int], tuple[int, int]] = {}  # notes, and where each is first marked
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
    return tuple(
        replace(document, blocks=tuple(map(_without_own_mark, blocks)))
        for document, blocks in zip(documents, changed, strict=True)
    ), warnings


def _without_own_mark(block: Block) -> Block:
    """Return a note without its mark in brackets: it is heard where it is referred to."""
    if block.kind is not BlockKind.NOTE or not block.text.startswith(("[", "(")):
        return block
    text = _OWN_MARK.sub("", block.text)
    return replace(block, text=text) if text else block


def _take_rests(changed: list[list[Block]], marked: dict[tuple[int, int], tuple[int, int]]) -> None:
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
