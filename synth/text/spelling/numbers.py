"""Spell numbers in words by the rules of CLDR, which are read when the first number is spelled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

import regex

from synth.text.languages import base_of
from synth.text.spelling.words import WORDS, Words, has_rules

Maker = Callable[["regex.Match[str]"], str | None]  # returns what is said for a match
Pattern = tuple["regex.Pattern[str]", Maker]
MAX_DIGITS = 15  # the rules name no larger number
_CARDINAL, _ORDINAL = "spellout-cardinal", "spellout-ordinal"
_SAME = (_CARDINAL, _CARDINAL, _CARDINAL)
_BY_GENDER = ("spellout-numbering", f"{_CARDINAL}-masculine", f"{_CARDINAL}-feminine")
# CLDR's rules that count (one, two), that go before a noun (ein Kilometer) and before a feminine
# one (une heure); the rule of places; the words for the point and for less than zero.
_RULES = {
    "en": (_SAME, _ORDINAL, "point", "minus"),
    "de": (_BY_GENDER, _ORDINAL, "Komma", "minus"),
    "fr": (_BY_GENDER, f"{_ORDINAL}-masculine", "virgule", "moins"),
    "es": (_BY_GENDER, f"{_ORDINAL}-masculine", "coma", "menos"),
    "it": (_BY_GENDER, f"{_ORDINAL}-masculine", "virgola", "meno"),
    "nl": (_SAME, _ORDINAL, "komma", "min"),
    "pt": (_BY_GENDER, f"{_ORDINAL}-masculine", "vírgula", "menos"),
}
_DIGIT_BY_DIGIT = ("en", "de")  # after the point; elsewhere two digits are read as a number


def counted(number: int, language: str) -> str:
    """Return a number as one counts: one, two."""
    return _spelled(number, language, _RULES[language][0][0])


def before_noun(number: int, language: str, *, feminine: bool = False) -> str:
    """Return a number as it stands before a noun: `ein` Kilometer, `une` heure."""
    return _spelled(number, language, _RULES[language][0][2 if feminine else 1])


def ordinal(number: int, language: str, ending: str = "") -> str:
    """Return a number's place: first; `ending` names one of CLDR's inflections, such as `-n`."""
    return _spelled(number, language, _RULES[language][1] + ending)


def feminine_ordinal(number: int, language: str) -> str:
    """Return a number's place before a feminine noun: première."""
    return _spelled(number, language, _RULES[language][1].replace("masculine", "feminine"))


def year(number: int, language: str) -> str:
    """Return a year as it is said: nineteen eighty-four."""
    if language == "en" and (1100 <= number < 2000 or 2010 <= number < 2100):
        return _spelled(number, language, "spellout-numbering-year")
    if language == "de" and 1100 <= number < 2000:
        return _spelled(number, language, "spellout-numbering-year")
    if language == "nl" and 1100 <= number < 2000:
        rest = counted(number % 100, language) if number % 100 else ""
        return f"{counted(number // 100, language)}honderd{rest}"
    return counted(number, language)


def with_fraction(whole: int, fraction: str, language: str, *, noun: bool = False) -> str:
    """Return a number with the digits after its point, if there are any.

    Args:
        noun: whether a noun follows, as in `ein Kilometer`.
    """
    if not fraction:
        return before_noun(whole, language) if noun else counted(whole, language)
    is_number = (
        language not in _DIGIT_BY_DIGIT and len(fraction) <= 2 and not fraction.startswith("0")
    )
    said = counted(int(fraction), language) if is_number else by_digits(fraction, language)
    return f"{counted(whole, language)} {_RULES[language][2]} {said}"


def by_digits(digits: str, language: str) -> str:
    """Return digits one by one, as of a code: zero zero seven."""
    return " ".join(counted(int(digit), language) for digit in digits)


def negative(said: str, language: str) -> str:
    """Return what is said of a number below zero."""
    return f"{_RULES[language][3]} {said}"


@lru_cache(maxsize=4096)
def _spelled(number: int, language: str, rule: str) -> str:
    found = _engine(language).format_number(number, ruleset_names=[rule])
    return str(found.text)


@cache
def _engine(language: str) -> Any:
    """Return the rules of a language; their library is imported once somebody asks for them."""
    from unicode_rbnf import RbnfEngine

    return RbnfEngine.for_language(language)


# ruff: noqa: RUF001  # look-alikes of ASCII are what texts are written in


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
        return counted(value, base) if value else None

    def place(match: regex.Match[str]) -> str | None:
        value = roman_value(match["roman"])
        if not value:
            return None
        if base == "en":
            return f"the {ordinal(value, base)}"
        if base == "de":
            return f"der {ordinal(value, base).capitalize()}"
        is_first = value == 1
        return ordinal(value, base) if is_first else counted(value, base)

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
            return ordinal(value, base) if value else None

        yield regex.compile(rf"\b(?P<roman>[XVI]{{1,6}})(?:e|ème|er)?(?= (?:{after})\b)"), century


def roman_value(numeral: str) -> int:
    """Return the value of a Roman numeral, 0 for letters that are not written like one."""
    total = sum_numeral(numeral)
    return total if 0 < total <= _MAX_ROMAN and _as_roman(total) == numeral else 0


def sum_numeral(letters: str) -> int:
    """Return what Roman letters in capitals add up to, however they are ordered."""
    values = [_ROMAN_VALUES[letter] for letter in letters]
    return sum(
        -one if one < two else one for one, two in zip(values, [*values[1:], 0], strict=True)
    )


def _as_roman(number: int) -> str:
    steps = ((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"),
             (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))  # fmt: skip
    written = ""
    for value, letters in steps:
        count, number = divmod(number, value)
        written += letters * count
    return written


MOST_CHAPTERS = 200  # above it a heading such as MIX or CD is rather a word than a number
# Alone, or before the title that it counts; `I remember` and `X marks the spot` are sentences.
_COUNTS = regex.compile(r"^(?P<roman>[CLXVI]{1,9})(?=$|\.$|[.:] |\s?[—\u2013] )")


def say_numerals(heading: str, language: str) -> str:
    """Return a heading with its Roman numerals in words, else as it came.

    Args:
        language: a tag; of a language without rules for numbers nothing is changed.
    """
    if not has_rules(language):
        return heading
    found = _COUNTS.match(heading)
    if found is not None and 0 < (value := roman_value(found["roman"])) <= MOST_CHAPTERS:
        return counted(value, base_of(language)) + heading[found.end() :]
    for pattern, make in _patterns(base_of(language)):
        heading = pattern.sub(lambda match, make=make: make(match) or match[0], heading)
    return heading


@lru_cache(maxsize=16)
def _patterns(base: str) -> tuple[Pattern, ...]:
    return tuple(roman_patterns(base, WORDS[base]))
