"""Take labels of chapters for headings where the markup of a document does not."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

from synth.books.book import Block, BlockKind
from synth.books.documents.labels import is_bare_number, is_label, word_number
from synth.books.documents.link_lists import LINK_LIST
from synth.books.rules import title_reason
from synth.books.txt.heading_words import eastern_number
from synth.books.txt.headings import number_of

_LEVEL = 2
_NO_TEXT = frozenset({BlockKind.FURNITURE, BlockKind.BREAK, BlockKind.ALT_TEXT})


def with_label_headings(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """Return the blocks with paragraphs such as "CHAPTER II" as headings.

    A number alone is one where it begins the document, or where such numbers count from 1. Where
    there are headings, a label is one only directly before a heading, as its number.
    """
    told = [at for at, block in enumerate(blocks) if block.kind not in _NO_TEXT]
    labels = [at for at in told if _is_label(blocks[at])]
    if any(block.kind is BlockKind.HEADING for block in blocks):
        return _with_numbers(blocks, told, frozenset(labels))
    numbers = [at for at in labels if _is_number(blocks[at].text)]
    counted = set(numbers) if _count(blocks, numbers) else set(told[:1]) & set(numbers)
    chosen = {at for at in labels if at not in numbers} | counted
    # A page with nothing but a label is the title of what follows; one of digits is a page number.
    if len(told) == len(chosen) and any(blocks[at].text.strip(" .").isdigit() for at in told):
        return blocks
    return tuple(
        replace(block, kind=BlockKind.HEADING, level=_LEVEL) if at in chosen else block
        for at, block in enumerate(blocks)
    )


def _with_numbers(
    blocks: tuple[Block, ...], told: Sequence[int], labels: frozenset[int]
) -> tuple[Block, ...]:
    changed = list(blocks)
    before: Block | None = None
    for at, following in itertools.pairwise(told):
        heading = blocks[following]
        # The only line of a list of contents, and the like, counts nothing that follows.
        is_entry = before is not None and _is_skipped_heading(before)
        before = blocks[at]
        if at not in labels or is_entry:
            continue
        if heading.kind is BlockKind.HEADING and not is_label(heading.text):
            changed[at] = replace(blocks[at], kind=BlockKind.HEADING, level=heading.level)
    return tuple(changed)


def _is_skipped_heading(block: Block) -> bool:
    return block.kind is BlockKind.HEADING and title_reason(block.text) is not None


def _is_label(block: Block) -> bool:
    if block.kind is not BlockKind.PARAGRAPH or block.role == LINK_LIST:
        return False
    return is_label(block.text) or word_number(block.text) > 0


def _is_number(text: str) -> bool:
    return is_bare_number(text) or word_number(text) > 0


def _count(blocks: Sequence[Block], numbers: list[int]) -> bool:
    values = [_value(blocks[at].text) for at in numbers]
    return len(values) > 1 and values == list(range(1, len(values) + 1))


def _value(text: str) -> int:
    word = text.strip(" .:)—–-").upper()  # noqa: RUF001
    return number_of(word) or eastern_number(word) or word_number(text)
