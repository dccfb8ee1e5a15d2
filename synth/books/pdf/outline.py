"""Bring a PDF's outline and its blocks together: what it names becomes a heading."""

from __future__ import annotations

from dataclasses import dataclass, replace

from synth.books.book import BlockKind, TocEntry
from synth.books.pdf.blocks import PageBlock
from synth.books.txt.headings import normalised

_TEXTS = frozenset({BlockKind.PARAGRAPH, BlockKind.HEADING})


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Hold an entry of the outline: its title, level from 1 and page from 0."""

    title: str
    level: int
    page: int


def with_contents(
    blocks: list[PageBlock], bookmarks: list[Bookmark], path: str
) -> tuple[list[PageBlock], tuple[TocEntry, ...]]:
    """Return the blocks with anchors for the contents, and the contents.

    An entry leads to the block on its page that says the same, else to the first that begins on
    it. Without an outline the headings are the contents.
    """
    blocks = list(blocks)
    if not bookmarks:
        return blocks, tuple(
            TocEntry(found.block.text, path, found.block.anchors[0], found.block.level)
            for found in blocks
            if found.block.kind is BlockKind.HEADING
        )
    places: dict[int, list[int]] = {}
    for index, found in enumerate(blocks):
        if found.block.kind in _TEXTS:
            places.setdefault(found.page, []).append(index)
    entries: list[TocEntry] = []
    for number, mark in enumerate(bookmarks, start=1):
        place, is_title = _target(blocks, places, mark)
        if place is None:
            continue
        block, anchor = blocks[place].block, f"outline-{number}"
        if is_title:
            block = replace(block, kind=BlockKind.HEADING, level=min(mark.level, 6))
        block = replace(block, anchors=(*block.anchors, anchor))
        blocks[place] = replace(blocks[place], block=block)
        entries.append(TocEntry(mark.title, path, anchor, mark.level))
    return blocks, tuple(entries)


def _target(
    blocks: list[PageBlock], places: dict[int, list[int]], mark: Bookmark
) -> tuple[int | None, bool]:
    """Return which block an entry leads to, and whether that is its title."""
    title = normalised(mark.title)
    on_page = places.get(mark.page, [])
    for index in on_page:
        said = normalised(blocks[index].block.text)
        is_part = len(said) >= 3 and (title.endswith(f" {said}") or said.endswith(f" {title}"))
        is_heading = blocks[index].block.kind is BlockKind.HEADING
        if said == title or (is_part and is_heading):
            return index, True
    if on_page:
        return on_page[0], False
    later = [page for page in places if page > mark.page]
    return (places[min(later)][0], False) if later else (None, False)
