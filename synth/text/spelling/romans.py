"""Spell out Roman numerals, where a word beside them says that they are some."""

# ruff: noqa: RUF001  # look-alikes of ASCII are what texts are written in

from __future__ import annotations

from collections.abc import Callable, Iterator

import regex

from synth.text.spelling import numbers
from synth.text.spelling.forms import Words

Pattern = tuple["regex.Pattern[str]", Callable[["regex.Match[str]"], str | None]]

_ROMAN = r"[MDCLXVI]{1,12}"
_ROMAN_VALUES = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}
_MAX_ROMAN = 3999


def roman_patterns(base: str, words: Words) -> Iterator[Pattern]:
    """Yield patterns of Roman numerals, which are read only beside the words that have them."""
    before = "|".join(regex.escape(word) for word in words.numbered)
    # A bare I may be the word; then nothing but an end or a new name follows it.
    lone = r"(?!(?<=\bI) \p{Ll})(?![\p{L}\p{N}'’])"

    def cardinal(match: regex.Match[str]) -> str | None:
        value = roman_value(match["roman"])
        return numbers.counted(value, base) if value else None

    def place(match: regex.Match[str]) -> str | None:
        value = roman_value(match["roman"])
        if not value:
            return None
        if base == "en":
            return f"the {numbers.ordinal(value, base)}"
        if base == "de":
            return f"der {numbers.ordinal(value, base).capitalize()}"
        is_first = value == 1
        return numbers.ordinal(value, base) if is_first else numbers.counted(value, base)

    yield regex.compile(rf"(?<=\b(?i:{before}) )(?P<roman>{_ROMAN}){lone}"), cardinal
    if words.titles:
        titles = "|".join(map(regex.escape, words.titles))
        dot = r"\." if base == "de" else ""
        yield (
            regex.compile(
                rf"(?<=\b(?:{titles})(?: \p{{Lu}}\p{{Ll}}+)? )(?P<roman>[XVI]{{1,6}}){dot}{lone}"
            ),
            place,
        )
    if words.numbered_after:
        after = "|".join(map(regex.escape, words.numbered_after))

        def century(match: regex.Match[str]) -> str | None:
            value = roman_value(match["roman"])
            return numbers.ordinal(value, base) if value else None

        yield regex.compile(rf"\b(?P<roman>[XVI]{{1,6}})(?:e|ème|er)?(?= (?:{after})\b)"), century


def roman_value(numeral: str) -> int:
    """Return the value of a Roman numeral, 0 for letters that are not written like one."""
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    following = [*values[1:], 0]
    total = sum(-one if one < two else one for one, two in zip(values, following, strict=True))
    return total if 0 < total <= _MAX_ROMAN and _as_roman(total) == numeral else 0


def _as_roman(number: int) -> str:
    steps = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
             (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip
    written = ""
    for value, letters in steps:
        count, number = divmod(number, value)
        written += letters * count
    return written
