"""Bring links and documents together, though names are written otherwise or anchors are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from synth.books.book import Block, BlockKind, Document, TocEntry
from synth.books.documents.notes import places_of
from synth.books.epub.archive import loosely
from synth.books.txt.headings import normalised
from ttsweb.counted import counted

Canonical = Callable[[str], str]
_MAX_TITLE_CHARS = 200
_MAY_BE_TITLES = frozenset({BlockKind.HEADING, BlockKind.PARAGRAPH})


def canonical_paths(paths: Iterable[str]) -> Canonical:
    """Return what makes of a link's path that of the document which it means.

    Letters' case, escapes and composed accents may differ; a path of no document stays as it is.
    """
    exact = frozenset(paths)
    loose: dict[str, str] = {}
    for path in paths:
        loose.setdefault(loosely(path), path)
    return lambda path: path if path in exact else loose.get(loosely(path), path)


def linked(documents: tuple[Document, ...], canonical: Canonical) -> tuple[Document, ...]:
    """Return the documents with the marks of their notes leading to documents as they are named."""
    return tuple(
        replace(document, blocks=tuple(_linked_block(b, canonical) for b in document.blocks))
        for document in documents
    )


def _linked_block(block: Block, canonical: Canonical) -> Block:
    if not block.note_marks:
        return block
    parted = (mark.partition("#") for mark in block.note_marks)
    marks = (f"{canonical(path)}{sign}{anchor}" for path, sign, anchor in parted)
    return replace(block, note_marks=tuple(marks))


def mend_contents(
    toc: list[TocEntry], documents: tuple[Document, ...], canonical: Canonical
) -> tuple[tuple[TocEntry, ...], tuple[Document, ...], list[str]]:
    """Return the contents list, the documents and warnings, with lost entries found again.

    An entry whose anchor is gone leads to the heading, or for want of one to the paragraph, of its
    document that says what it says, behind the entry before it.
    """
    numbers = {document.path: number for number, document in enumerate(documents)}
    places = places_of(documents)
    texts: dict[int, dict[str, list[int]]] = {}
    anchors: dict[tuple[int, int], str] = {}
    last = (0, -1)
    mended: list[TocEntry] = []
    for entry in (replace(entry, path=canonical(entry.path)) for entry in toc):
        number = numbers.get(entry.path)
        place = places.get(f"{entry.path}#{entry.fragment}") if entry.fragment else None
        if number is not None and entry.fragment and place is None:
            found = _found(documents[number], texts.setdefault(number, {}), entry, last, number)
            if found is not None:
                place = (number, found)
                anchors.setdefault(place, f"contents-{len(anchors) + 1}")
                entry = replace(entry, fragment=anchors[place])
        last = place or last
        mended.append(entry)
    told = (
        f"The contents list has {counted(len(anchors), 'entry', 'entries')} with a broken "
        "link; the place was found by "
        f"{'its title' if len(anchors) == 1 else 'their titles'}."
    )
    return tuple(mended), _anchored(documents, anchors), [told] if anchors else []


def _found(
    document: Document,
    texts: dict[str, list[int]],
    entry: TocEntry,
    last: tuple[int, int],
    number: int,
) -> int | None:
    if not texts:
        for at, block in enumerate(document.blocks):
            if block.kind in _MAY_BE_TITLES and len(block.text) <= _MAX_TITLE_CHARS:
                texts.setdefault(normalised(block.text), []).append(at)
    after = last[1] if last[0] == number else -1
    found = [at for at in texts.get(normalised(entry.title), ()) if at > after]
    headings = [at for at in found if document.blocks[at].kind is BlockKind.HEADING]
    return next(iter(headings or found), None)


def _anchored(
    documents: tuple[Document, ...], anchors: dict[tuple[int, int], str]
) -> tuple[Document, ...]:
    changed = [list(document.blocks) for document in documents]
    for (number, at), anchor in anchors.items():
        block = changed[number][at]
        changed[number][at] = replace(block, anchors=(*block.anchors, anchor))
    return tuple(
        replace(document, blocks=tuple(blocks))
        for document, blocks in zip(documents, changed, strict=True)
    )
