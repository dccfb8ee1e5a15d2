"""Find what persons say in prose, by quotation marks and dashes as each language has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from synth.books.dialogue_dashes import (
    after_colon,
    begins_with_dash,
    dash_ranges,
    without_incises,
)
from synth.books.dialogue_quotes import Range, outside, quotes_of
from synth.text.normalise import is_speakable


class Span(NamedTuple):
    """Hold a part of a paragraph, and whether it is said by somebody."""

    text: str
    is_dialogue: bool


class DialogueReader:
    """Read the paragraphs of a chapter in their order: a quote may go on over several."""

    def __init__(self) -> None:
        """Begin a chapter."""
        self._is_open = False

    def interrupt(self) -> None:
        """Forget a quote that was open: something stands between that is no paragraph."""
        self._is_open = False

    def split(self, text: str, language: str) -> list[Span]:
        """Return a paragraph's parts in order, all characters in one of them.

        No part is without a letter or digit unless all of the paragraph is. Words about what is
        said, such as `said Alice`, are the narrator's.

        Args:
            language: a tag; empty is read as English.
        """
        short = language.replace("_", "-").lower().partition("-")[0]
        return list(_spans(text, self._ranges(text, short)))

    def _ranges(self, text: str, language: str) -> list[Range]:
        if begins_with_dash(text, language):
            self._is_open = False
            return without_incises(text, dash_ranges(text, language), language)
        quotes = quotes_of(text, language, goes_on=self._is_open)
        self._is_open = quotes.is_open
        if not quotes.ranges and (start := after_colon(text, language)) is not None:
            rest = without_incises(text[start:], dash_ranges(text[start:], language), language)
            return [(start + one, start + two) for one, two in rest]
        return without_incises(text, list(quotes.ranges), language)


def _spans(text: str, said: list[Range]) -> Iterator[Span]:
    told = outside(tuple(said), len(text))
    parts = sorted([(*one, True) for one in said] + [(*one, False) for one in told])
    for start, end, is_dialogue in _joined(text, parts):
        yield Span(text[start:end], is_dialogue)


def _joined(text: str, parts: Iterable[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
    """Join parts that cannot be spoken with the one before, or else the one after."""
    kept: list[tuple[int, int, bool]] = []
    begin = 0  # of what could not be spoken, and has nothing before it
    for start, end, is_dialogue in parts:
        if kept and (kept[-1][2] == is_dialogue or not is_speakable(text[start:end])):
            kept[-1] = (kept[-1][0], end, kept[-1][2])
        elif is_speakable(text[start:end]):
            kept.append((begin, end, is_dialogue))
        if kept:
            begin = kept[-1][1]
    return kept or [(0, len(text), False)]
