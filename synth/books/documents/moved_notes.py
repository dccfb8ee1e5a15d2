"""Put notes where they are spoken: behind what refers to them, or at the end of its chapter."""

from __future__ import annotations

from synth.books.book import BlockKind, Book
from synth.books.chapters import Placed, Section
from synth.books.documents.notes import full_mark


def move_notes(book: Book, sections: list[Section], *, at_end: bool) -> None:
    """Move each note, in place, to the first spoken block that refers to it.

    A note that nothing refers to stays where it is. A chapter that held only notes goes away.
    """
    bodies = _bodies(book, sections)
    moved: set[tuple[int, int]] = set()
    followed: dict[tuple[int, int], list[Placed]] = {}
    for section in sections:
        if section.reason is not None:
            continue
        for placed in section.blocks:
            if placed.block.kind is BlockKind.NOTE:
                continue
            path = book.documents[placed.document].path
            for mark in placed.block.note_marks:
                for note in bodies.get(full_mark(path, mark), ()):
                    if _key(note) not in moved:
                        moved.add(_key(note))
                        followed.setdefault(_key(placed), []).append(note)
    for section in sections:
        blocks: list[Placed] = []
        last: list[Placed] = []
        for placed in section.blocks:
            if _key(placed) not in moved:
                blocks.append(placed)
                (last if at_end else blocks).extend(followed.get(_key(placed), ()))
        section.blocks = [*blocks, *last]
    sections[:] = [section for section in sections if section.blocks]


def _bodies(book: Book, sections: list[Section]) -> dict[str, list[Placed]]:
    """Return the blocks of each note by "path#anchor"."""
    found: dict[str, list[Placed]] = {}
    for section in sections:
        for placed in section.blocks:
            if placed.block.kind is BlockKind.NOTE:
                path = book.documents[placed.document].path
                for anchor in placed.block.anchors:
                    found.setdefault(f"{path}#{anchor}", []).append(placed)
    return found


def _key(placed: Placed) -> tuple[int, int]:
    return placed.document, placed.place
