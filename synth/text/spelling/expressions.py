"""Know what has to stay in one piece: numbers, dates, times, sums and what is counted by them.

A piece is spelled out by itself: of `3 May 2026` cut after the 3, neither half would be a date.
"""

# ruff: noqa: RUF001  # look-alikes of ASCII are what texts are written in

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from synth.text.spelling.speller import speller
from synth.text.spelling.words import WORDS

Inside = Callable[[int], bool]

# Spans are found block by block, each with a margin: the longest dates and sums have about 50.
_BLOCK, _MARGIN, _BLOCKS_KEPT = 128, 56, 8
_DIGIT = re.compile(r"\d")
_BLANK = "[ \u00a0\u202f]"
_SIGNS = "%‰°$€£¥₹₽₩₺₴¢"
# Without any language: marks between digits, thousands in threes, and signs beside a number.
_ANYWHERE = re.compile(
    rf"(?:[{_SIGNS}+±−-]{_BLANK}?)?"
    rf"(?:(?<!\d)\d{{1,3}}(?:{_BLANK}\d{{3}})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,:/'’·\-–]\d+)*)"
    rf"(?:{_BLANK}?[{_SIGNS}]|[年月日时時分秒])?"
)


def places_inside(text: str, language: str = "en") -> Inside:
    """Return what says of a place in a text whether a cut there would divide such an expression.

    Only the surroundings of places that are asked for are looked at, and only where digits are.

    Args:
        language: the tag of the text's language; one without rules has the general ones alone.
    """
    shapes = _Blocks(text, lambda near: _shapes(near, language))
    spelled = _Blocks(text, lambda near: _spelled(near, language))  # takes ten times as long
    return lambda place: shapes.holds(place) or spelled.holds(place)


class _Blocks:
    """Find spans of a text block by block, when they are asked for; a few blocks are kept."""

    def __init__(self, text: str, find: Callable[[str], list[tuple[int, int]]]) -> None:
        self._text, self._find = text, find
        self._known: dict[int, list[tuple[int, int]]] = {}

    def holds(self, place: int) -> bool:
        """Say whether a place is inside a span."""
        block = place // _BLOCK
        if block not in self._known:
            if len(self._known) >= _BLOCKS_KEPT:
                self._known.clear()
            first = max(0, block * _BLOCK - _MARGIN)
            near = self._text[first : (block + 1) * _BLOCK + _MARGIN]
            found = self._find(near) if _DIGIT.search(near) else []
            self._known[block] = [(first + start, first + end) for start, end in found]
        return any(start < place < end for start, end in self._known[block])


def _shapes(text: str, language: str) -> list[tuple[int, int]]:
    """Return what looks like a number or a date."""
    found = [match.span() for match in _ANYWHERE.finditer(text)]
    dates = _dates(language.partition("-")[0].lower())
    return found + [match.span() for match in dates.finditer(text)] if dates else found


def _spelled(text: str, language: str) -> list[tuple[int, int]]:
    """Return what is spelled out where that is asked for, and has digits."""
    spell_out = speller(language)
    spans = [(start, end) for start, end, _ in spell_out(text)] if spell_out else []
    return [span for span in spans if _DIGIT.search(text, *span)]


@lru_cache(maxsize=64)
def _dates(base: str) -> re.Pattern[str] | None:
    """Return what finds a month beside its day or year, None for languages without rules.

    Most of these are read as they stand, so that spelling out says nothing of them.
    """
    if base not in WORDS:
        return None
    months = "|".join(map(re.escape, WORDS[base].months))
    of = r"(?:(?:de|del|of|di|do|van) )?"
    day = r"\d{1,2}(?:st|nd|rd|th|er|º|°)?\.?"
    after = rf"(?:,? {of}\d{{1,2}}(?:st|nd|rd|th)?\b)?(?:,? {of}\d{{4}}\b)?"
    return re.compile(rf"\b(?:{day} {of})?(?:{months})\b{after}", re.IGNORECASE)
