"""Tell lines that an author set, such as a poem's, from those that only broke at a page's edge."""

from __future__ import annotations

from collections.abc import Iterator

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
    told = [line for line in map(markup.squeeze, lines) if line]
    # Two `br` in a row part paragraphs; where all do, there are no lines.
    if len(told) < _MIN_LINES or sum(breaks) < 2 or sum(breaks) <= len(breaks) / 2:
        return False
    if max(map(len, told)) > _MAX_LINE_CHARS or sum(map(len, told)) > _MEAN_LINE_CHARS * len(told):
        return False
    return sum(map(_begins_well, told)) >= _MIN_CAPITALS * len(told)


def _begins_well(line: str) -> bool:
    first = line.lstrip(_OPENERS)[:1]
    return not first.islower() and not first.isspace()


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
