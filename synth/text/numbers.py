"""Spell numbers, dates and times in words, by the rules of CLDR, read with the first number."""

# ruff: noqa: RUF001  # look-alikes of ASCII are what texts are written in

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

import regex

from synth.text.languages import base_of
from synth.text.words import WORDS, Words, has_rules

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


def spell_number(number: int, language: str) -> str:
    """Return a number as one counts: one, two."""
    return _spell(number, language, _RULES[language][0][0])


def spell_before_noun(number: int, language: str, *, feminine: bool = False) -> str:
    """Return a number as it stands before a noun: `ein` Kilometer, `une` heure."""
    return _spell(number, language, _RULES[language][0][2 if feminine else 1])


def spell_ordinal(number: int, language: str, ending: str = "") -> str:
    """Return a number's place: first; `ending` names one of CLDR's inflections, such as `-n`."""
    return _spell(number, language, _RULES[language][1] + ending)


def spell_feminine_ordinal(number: int, language: str) -> str:
    """Return a number's place before a feminine noun: première."""
    return _spell(number, language, _RULES[language][1].replace("masculine", "feminine"))


def spell_year(number: int, language: str) -> str:
    """Return a year as it is said: nineteen eighty-four."""
    if language == "en" and (1100 <= number < 2000 or 2010 <= number < 2100):
        return _spell(number, language, "spellout-numbering-year")
    if language == "de" and 1100 <= number < 2000:
        return _spell(number, language, "spellout-numbering-year")
    if language == "nl" and 1100 <= number < 2000:
        rest = spell_number(number % 100, language) if number % 100 else ""
        return f"{spell_number(number // 100, language)}honderd{rest}"
    return spell_number(number, language)


def spell_fraction(whole: int, fraction: str, language: str, *, noun: bool = False) -> str:
    """Return a number with the digits after its point, if there are any.

    Args:
        noun: whether a noun follows, as in `ein Kilometer`.
    """
    if not fraction:
        return spell_before_noun(whole, language) if noun else spell_number(whole, language)
    is_number = (
        language not in _DIGIT_BY_DIGIT and len(fraction) <= 2 and not fraction.startswith("0")
    )
    said = spell_number(int(fraction), language) if is_number else spell_digits(fraction, language)
    return f"{spell_number(whole, language)} {_RULES[language][2]} {said}"


def spell_digits(digits: str, language: str) -> str:
    """Return digits one by one, as of a code: zero zero seven."""
    return " ".join(spell_number(int(digit), language) for digit in digits)


def spell_negative(said: str, language: str) -> str:
    """Return what is said of a number below zero."""
    return f"{_RULES[language][3]} {said}"


@lru_cache(maxsize=4096)
def _spell(number: int, language: str, rule: str) -> str:
    found = _engine(language).format_number(number, ruleset_names=[rule])
    return str(found.text)


@cache
def _engine(language: str) -> Any:
    """Return the rules of a language; their library is imported once somebody asks for them."""
    from unicode_rbnf import RbnfEngine

    return RbnfEngine.for_language(language)


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
        return spell_number(value, base) if value else None

    def place(match: regex.Match[str]) -> str | None:
        value = roman_value(match["roman"])
        if not value:
            return None
        if base == "en":
            return f"the {spell_ordinal(value, base)}"
        if base == "de":
            return f"der {spell_ordinal(value, base).capitalize()}"
        is_first = value == 1
        return spell_ordinal(value, base) if is_first else spell_number(value, base)

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
            return spell_ordinal(value, base) if value else None

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
        return spell_number(value, base_of(language)) + heading[found.end() :]
    for pattern, make in _patterns(base_of(language)):
        heading = pattern.sub(lambda match, make=make: make(match) or match[0], heading)
    return heading


@lru_cache(maxsize=16)
def _patterns(base: str) -> tuple[Pattern, ...]:
    return tuple(roman_patterns(base, WORDS[base]))


_START, _END = r"(?<![\p{L}\p{N}_])(?<!\d[.,:/\-])", r"(?![\p{L}\p{N}_])(?![.:/\-]\d)"
# How a language writes a date in digits: what parts it, and whether the month comes first.
_SLASHED = {"fr": "/.", "es": "/.-", "it": "/.-", "pt": "/.-", "nl": "-/.", "de": ".", "en": "/"}
_GERMAN_DATIVE = r"(?<=\b(?:[Aa]m|[Dd]em|[Dd]en|[Vv]om|[Zz]um|[Bb]is|[Aa]b|[Ss]eit) )"
_UHR = {"de": " ?Uhr", "nl": " ?uur", "fr": "(?!)", "en": "(?!)"}


def date_patterns(base: str, language: str, words: Words) -> Iterator[Pattern]:
    """Yield a language's patterns of dates, then those of times.

    Args:
        language: the whole tag in small letters: `en-us` and `en-gb` write dates differently.
    """
    for dative in (True, False) if base == "de" else (False,):
        lead = _GERMAN_DATIVE if dative else _START
        yield (
            regex.compile(rf"{lead}(?P<y>\d{{4}})-(?P<m>\d\d)-(?P<d>\d\d){_END}"),
            _by_numbers(base, language, words, dative=dative, is_iso=True),
        )
        mark = f"[{regex.escape(_SLASHED[base])}]"
        yield (
            regex.compile(
                rf"{lead}(?P<d>\d{{1,2}})(?P<mark>{mark}) ?"
                rf"(?P<m>\d{{1,2}})(?P=mark) ?(?P<y>\d{{4}}){_END}"
            ),
            _by_numbers(base, language, words, dative=dative, is_iso=False),
        )
    yield from _worded_patterns(base, words)
    yield from _clocks(base)


def _by_numbers(base: str, language: str, words: Words, *, dative: bool, is_iso: bool) -> Maker:
    def make(match: regex.Match[str]) -> str | None:
        year, month, day = int(match["y"]), int(match["m"]), int(match["d"])
        if base == "en" and not is_iso:
            # 5/6/2026 is two days; a tag with a region, or a number over 12, says which.
            if language.startswith("en-us") or (language == "en" and month > 12):
                day, month = month, day
            elif language == "en" and day <= 12:
                return None
        if not 1 <= month <= 12 or not 1 <= day <= calendar.monthrange(max(year, 1), month)[1]:
            return None
        return _date(base, words.months[month - 1], day, year, dative=dative)

    return make


def _date(base: str, month: str, day: int, year: int, *, dative: bool) -> str:
    """Return a date as it is said."""
    spoken_year = spell_year(year, base)
    if base == "en":
        return f"{month} {spell_ordinal(day, base)}, {spoken_year}"
    if base == "de":
        return f"{spell_ordinal(day, base, '-n' if dative else '-r')} {month} {spoken_year}"
    first = spell_ordinal(1, base) if base in ("fr", "it", "pt") else spell_number(1, base)
    spoken_day = first if day == 1 else spell_number(day, base)
    of = " de " if base in ("es", "pt") else " "
    return f"{spoken_day}{of}{month}{of}{spoken_year}"


def _worded_patterns(base: str, words: Words) -> Iterator[Pattern]:
    """Yield dates whose month is a word, as far as the language says their day as a place."""
    months = "|".join(words.months)
    day, year = r"(?P<d>\d{1,2})", r"(?:,? (?P<y>\d{4})(?![\p{L}\p{N}]|[.,]\d))?"

    def spoken_year(match: regex.Match[str], comma: str = "") -> str:
        return f"{comma} {spell_year(int(match['y']), base)}" if match["y"] else ""

    def is_day(match: regex.Match[str]) -> bool:
        return 1 <= int(match["d"]) <= 31

    if base == "en":
        yield (
            regex.compile(
                rf"\b(?P<month>{months}) {day}(?:st|nd|rd|th)?(?![\p{{L}}\d:.]\w){year}(?!\w)"
            ),
            lambda match: (
                f"{match['month']} {spell_ordinal(int(match['d']), base)}{spoken_year(match, ',')}"
                if is_day(match)
                else None
            ),
        )
        yield (
            regex.compile(
                rf"(?P<the>\b[Tt]he )?{_START}{day}(?:st|nd|rd|th)? "
                rf"(?:of )?(?P<month>{months}){year}(?!\w)"
            ),
            lambda match: (
                f"{match['the'] or 'the '}{spell_ordinal(int(match['d']), base)} of "
                f"{match['month']}{spoken_year(match)}"
                if is_day(match)
                else None
            ),
        )
    elif base == "de":
        for lead, ending in ((_GERMAN_DATIVE, "-n"), (r"(?<=\b[Dd]er )", ""), (_START, "-r")):
            yield (
                regex.compile(rf"{lead}{day}\. (?P<month>{months}){year}(?!\w)"),
                _german(ending, spoken_year),
            )
    elif base in ("fr", "it", "pt"):
        yield (
            regex.compile(rf"{_START}(?P<d>1)(?:er|º|°)?(?= (?:de )?(?:{months})\b)"),
            lambda match: spell_ordinal(1, base),
        )


def _german(ending: str, spoken_year: Callable[[regex.Match[str]], str]) -> Maker:
    def make(match: regex.Match[str]) -> str | None:
        day = int(match["d"])
        if not 1 <= day <= 31:
            return None
        return f"{spell_ordinal(day, 'de', ending)} {match['month']}{spoken_year(match)}"

    return make


def _clocks(base: str) -> Iterator[Pattern]:
    """Yield times of day."""
    half = r"(?:[ \u00a0]?(?P<half>[AaPp])\.?[Mm]\b\.?)?" if base == "en" else ""
    after = rf"(?:{_UHR[base]}\b)?" if base in ("de", "nl") else ""
    yield (
        regex.compile(rf"{_START}(?P<h>\d{{1,2}}):(?P<m>\d\d){half}{after}{_END}(?![.,]\d)"),
        lambda match: _time(base, match),
    )
    if base == "en":
        yield (
            regex.compile(
                rf"{_START}(?P<h>\d{{1,2}})(?P<m>)[ \u00a0]?(?P<half>[AaPp])\.?[Mm]\b\.?(?!\w)"
            ),
            lambda match: _time(base, match),
        )
    if base in ("de", "nl"):
        yield (
            regex.compile(rf"{_START}(?P<h>\d{{1,2}})(?:\.(?P<m>\d\d))?{_UHR[base]}\b"),
            lambda match: _time(base, match),
        )
    if base in ("fr", "pt"):
        yield (
            regex.compile(rf"{_START}(?P<h>\d{{1,2}}) ?h ?(?P<m>\d\d)?(?![\p{{L}}\p{{N}}])"),
            lambda match: _time(base, match),
        )


def _time(base: str, match: regex.Match[str]) -> str | None:
    """Return a time as it is said, or None for what is none."""
    hour, minute = int(match["h"]), int(match["m"] or 0)
    if hour > 24 or minute > 59:
        return None
    spoken_minute = spell_number(minute, base)
    if base == "en":
        return _english_time(hour, minute, match)
    if base in ("de", "nl"):
        word = "Uhr" if base == "de" else "uur"
        said = f"{spell_before_noun(hour, base)} {word}"
        return f"{said} {spoken_minute}" if minute else said
    spoken_hour = spell_before_noun(hour, base, feminine=True)
    if base == "fr":
        said = f"{spoken_hour} {'heure' if hour < 2 else 'heures'}"
        return f"{said} {spoken_minute}" if minute else said
    if minute:
        return f"{spoken_hour} {'y' if base == 'es' else 'e'} {spoken_minute}"
    hours = {"es": ("hora", "horas"), "it": ("", ""), "pt": ("hora", "horas")}[base]
    return f"{spoken_hour} {hours[0] if hour == 1 else hours[1]}".rstrip()


def _english_time(hour: int, minute: int, match: regex.Match[str]) -> str | None:
    half = (match["half"] or "").lower()
    if half and not 1 <= hour <= 12:
        return None
    said = spell_number(hour, "en")
    if minute:
        said += f" {'oh ' if minute < 10 else ''}{spell_number(minute, 'en')}"
    elif not half:
        said += " o'clock" if 1 <= hour <= 12 else " hundred"
    # The full stop of a.m. may end the sentence as well.
    ends = match[0].endswith(".") and not any(map(str.isalnum, match.string[match.end() :]))
    return f"{said} {half} m{'.' if ends else ''}" if half else said
