"""Take labels of chapters for headings in documents whose markup has no headings at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from synth.books.book import Block, BlockKind
from synth.books.heading_words import eastern_number
from synth.books.labels import is_bare_number, is_label
from synth.books.txt_headings import number_of

_LEVEL = 2
_NO_TEXT = frozenset({BlockKind.FURNITURE, BlockKind.BREAK, BlockKind.ALT_TEXT})


def with_label_headings(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return the blocks with paragraphs such as "CHAPTER II" as headings.

    A number alone is one where it begins the document, or where such numbers count from 1.
    """
    if any(block.kind is BlockKind.HEADING for block in blocks):
        return blocks
    labels = [
        at
        for at, block in enumerate(blocks)
        if block.kind is BlockKind.PARAGRAPH and is_label(block.text)
    ]
    numbers = [at for at in labels if is_bare_number(blocks[at].text)]
    first = next((at for at, block in enumerate(blocks) if block.kind not in _NO_TEXT), -1)
    counted = set(numbers) if _count(blocks, numbers) else {first} & set(numbers)
    chosen = {at for at in labels if at not in numbers} | counted
    # A page that holds nothing else is a title of its own, or the number of a page.
    if not chosen or all(at in chosen for at, b in enumerate(blocks) if b.kind not in _NO_TEXT):
        return blocks
    return tuple(
        replace(block, kind=BlockKind.HEADING, level=_LEVEL) if at in chosen else block
        for at, block in enumerate(blocks)
    )


def _count(blocks: Sequence[Block], numbers: list[int]) -> bool:
    values = [_value(blocks[at].text) for at in numbers]
    return len(values) > 1 and values == list(range(1, len(values) + 1))


def _value(text: str) -> int:
    word = text.strip(" .:)—–-").upper()  # noqa: RUF001
    return number_of(word) or eastern_number(word)
