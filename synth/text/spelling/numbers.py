"""Spell numbers in words by the rules of CLDR, which are read when the first number is spelled."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

MAX_DIGITS = 15  # the rules name no larger number
_CARDINAL = "spellout-cardinal"
# Which of CLDR's rules count (one, two), which go before a noun (ein Kilometer), and before a
# feminine one (une heure); the same one thrice where a language makes no difference.
_RULES = {
    "en": (_CARDINAL, _CARDINAL, _CARDINAL),
    "de": ("spellout-numbering", "spellout-cardinal-masculine", "spellout-cardinal-feminine"),
    "fr": ("spellout-numbering", "spellout-cardinal-masculine", "spellout-cardinal-feminine"),
    "es": ("spellout-numbering", "spellout-cardinal-masculine", "spellout-cardinal-feminine"),
    "it": ("spellout-numbering", "spellout-cardinal-masculine", "spellout-cardinal-feminine"),
    "nl": (_CARDINAL, _CARDINAL, _CARDINAL),
    "pt": ("spellout-numbering", "spellout-cardinal-masculine", "spellout-cardinal-feminine"),
}
_ORDINALS = {
    "en": "spellout-ordinal",
    "de": "spellout-ordinal",
    "fr": "spellout-ordinal-masculine",
    "es": "spellout-ordinal-masculine",
    "it": "spellout-ordinal-masculine",
    "nl": "spellout-ordinal",
    "pt": "spellout-ordinal-masculine",
}
_POINTS = {
    "en": "point",
    "de": "Komma",
    "fr": "virgule",
    "es": "coma",
    "it": "virgola",
    "nl": "komma",
    "pt": "vírgula",
}
_MINUS = {
    "en": "minus", "de": "minus", "fr": "moins", "es": "menos", "it": "meno", "nl": "min",
    "pt": "menos",
}  # fmt: skip
_DIGIT_BY_DIGIT = ("en", "de")  # after the point; elsewhere two digits are read as a number
LANGUAGES = tuple(_RULES)


def counted(number: int, language: str) -> str:
    """Return a number as one counts: one, two."""
    return _spelled(number, language, _RULES[language][0])


def before_noun(number: int, language: str, *, feminine: bool = False) -> str:
    """Return a number as it stands before a noun: `ein` Kilometer, `une` heure."""
    return _spelled(number, language, _RULES[language][2 if feminine else 1])


def ordinal(number: int, language: str, ending: str = "") -> str:
    """Return a number's place: first; `ending` names one of CLDR's inflections, such as `-n`."""
    return _spelled(number, language, _ORDINALS[language] + ending)


def feminine_ordinal(number: int, language: str) -> str:
    """Return a number's place before a feminine noun: première."""
    return _spelled(number, language, _ORDINALS[language].replace("masculine", "feminine"))


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
    return f"{counted(whole, language)} {_POINTS[language]} {said}"


def by_digits(digits: str, language: str) -> str:
    """Return digits one by one, as of a code: zero zero seven."""
    return " ".join(counted(int(digit), language) for digit in digits)


def negative(said: str, language: str) -> str:
    """Return what is said of a number below zero."""
    return f"{_MINUS[language]} {said}"


@lru_cache(maxsize=4096)
def _spelled(number: int, language: str, rule: str) -> str:
    found = _engine(language).format_number(number, ruleset_names=[rule])
    return str(found.text)


@cache
def _engine(language: str) -> Any:
    """Return the rules of a language; their library is imported once somebody asks for them."""
    from unicode_rbnf import RbnfEngine

    return RbnfEngine.for_language(language)
