"""Spell numbers, dates and times in words, by the rules of CLDR, read with the first number."""

# ruff: noqa: RUF001  # look-alikes of ASCII are what texts are written in

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any

import regex

from synth.text.languages import WORDS, Words, base_of, has_rules

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


def spell_ordinal(number: int, language: str, ending: str = "", *, feminine: bool = False) -> str:
    """Return a number's place: first; `ending` names one of CLDR's inflections, such as `-n`."""
    rule = _RULES[language][1] + ending
    return _spell(number, language, rule.replace("masculine", "feminine") if feminine else rule)


def spell_year(number: int, language: str) -> str:
    """Return a year as it is said: nineteen eighty-four."""
    in_hundreds = 1100 <= number < 2000
    if language in ("en", "de") and (in_hundreds or (language == "en" and 2010 <= number < 2100)):
        return _spell(number, language, "spellout-numbering-year")
    if language == "nl" and in_hundreds:
        rest = spell_number(number % 100, language) if number % 100 else ""
        return f"{spell_number(number // 100, language)}honderd{rest}"
    return spell_number(number, language)


def spell_fraction(whole: int, fraction: str, language: str, *, noun: bool = False) -> str:
    """Return a number with the digits after its point, if any; `noun`: as in `ein Kilometer`."""
    if not fraction:
        return spell_before_noun(whole, language) if noun else spell_number(whole, language)
    one_by_one = language in _DIGIT_BY_DIGIT or len(fraction) > 2 or fraction.startswith("0")
    said = spell_digits(fraction, language) if one_by_one else spell_number(int(fraction), language)
    return f"{spell_number(whole, language)} {_RULES[language][2]} {said}"


def spell_digits(digits: str, language: str) -> str:
    """Return digits one by one, as of a code: zero zero seven; what parts them is not said."""
    return " ".join(spell_number(int(digit), language) for digit in digits if digit.isdigit())


def spell_negative(said: str, language: str) -> str:
    return f"{_RULES[language][3]} {said}"


@lru_cache(maxsize=4096)
def _spell(number: int, language: str, rule: str) -> str:
    return str(_engine(language).format_number(number, ruleset_names=[rule]).text)


@cache
def _engine(language: str) -> Any:
    """Return the rules of a language; their library is imported once somebody asks for them."""
    from unicode_rbnf import RbnfEngine

    return RbnfEngine.for_language(language)


_ROMAN_VALUES = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}
# A numeral as it is written: of 1 to 3999.
_WRITTEN = regex.compile("M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})")


def roman_patterns(base: str, words: Words) -> Iterator[Pattern]:
    """Yield patterns of Roman numerals, which are read only beside the words that have them."""
    before, after, titles = (
        "|".join(map(regex.escape, listed))
        for listed in (words.numbered, words.numbered_after, words.titles)
    )
    # A bare I may be the word; then nothing but an end or a new name follows it.
    lone = r"(?!(?<=\bI) \p{Ll})(?![\p{L}\p{N}'’])"

    def maker(say: Callable[[int], str]) -> Maker:
        def make(match: regex.Match[str]) -> str | None:
            value = roman_value(match["roman"])
            return say(value) if value else None

        return make

    def say_place(value: int) -> str:
        if base == "en":
            return f"the {spell_ordinal(value, base)}"
        if base == "de":
            return f"der {spell_ordinal(value, base).capitalize()}"
        return spell_ordinal(value, base) if value == 1 else spell_number(value, base)

    counted = regex.compile(rf"(?<=\b(?i:{before}) )(?P<roman>[MDCLXVI]{{1,12}}){lone}")
    yield counted, maker(lambda value: spell_number(value, base))
    if titles:
        name = rf"(?<=\b(?:{titles})(?: \p{{Lu}}\p{{Ll}}+)? )"
        dot = r"\." if base == "de" else ""
        yield regex.compile(rf"{name}(?P<roman>[XVI]{{1,6}}){dot}{lone}"), maker(say_place)
    if after:
        century = rf"\b(?P<roman>[XVI]{{1,6}})(?:e|ème|er)?(?= (?:{after})\b)"
        yield regex.compile(century), maker(lambda value: spell_ordinal(value, base))


def roman_value(numeral: str) -> int:
    """Return the value of a Roman numeral, 0 for letters that are not written like one."""
    return sum_numeral(numeral) if _WRITTEN.fullmatch(numeral) else 0


def sum_numeral(letters: str) -> int:
    """Return what Roman letters in capitals add up to, however they are ordered."""
    values = [_ROMAN_VALUES[letter] for letter in letters]
    return sum(
        -one if one < two else one for one, two in zip(values, [*values[1:], 0], strict=True)
    )


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
    for pattern, make in _numeral_patterns(base_of(language)):
        heading = pattern.sub(lambda match, make=make: make(match) or match[0], heading)
    return heading


@lru_cache(maxsize=16)
def _numeral_patterns(base: str) -> tuple[Pattern, ...]:
    return tuple(roman_patterns(base, WORDS[base]))


_START, _END = r"(?<![\p{L}\p{N}_])(?<!\d[.,:/\-])", r"(?![\p{L}\p{N}_])(?![.:/\-]\d)"
# How a language writes a date in digits: what parts it, and whether the month comes first.
_SLASHED = {"fr": "/.", "es": "/.-", "it": "/.-", "pt": "/.-", "nl": "-/.", "de": ".", "en": "/"}
_GERMAN_DATIVE = r"(?<=\b(?:[Aa]m|[Dd]em|[Dd]en|[Vv]om|[Zz]um|[Bb]is|[Aa]b|[Ss]eit) )"


def date_patterns(base: str, language: str, words: Words) -> Iterator[Pattern]:
    """Yield a language's patterns of dates, then those of times.

    Args:
        language: the whole tag in small letters: `en-us` and `en-gb` write dates differently.
    """
    mark = f"[{regex.escape(_SLASHED[base])}]"
    slashed = rf"(?P<d>\d{{1,2}})(?P<mark>{mark}) ?(?P<m>\d{{1,2}})(?P=mark) ?(?P<y>\d{{4}}){_END}"
    for lead in (_GERMAN_DATIVE, _START) if base == "de" else (_START,):
        ending = "-n" if lead == _GERMAN_DATIVE else "-r"
        iso = regex.compile(rf"{lead}(?P<y>\d{{4}})-(?P<m>\d\d)-(?P<d>\d\d){_END}")
        yield iso, _by_numbers(base, language, words, ending, is_iso=True)
        yield (
            regex.compile(lead + slashed),
            _by_numbers(base, language, words, ending, is_iso=False),
        )
    yield from _worded_dates(base, words)
    for times in _clocks(base):
        yield regex.compile(times), lambda match: _time(base, match)


def _by_numbers(base: str, language: str, words: Words, ending: str, *, is_iso: bool) -> Maker:
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
        name, spoken_year = words.months[month - 1], spell_year(year, base)
        if base == "en":
            return f"{name} {spell_ordinal(day, base)}, {spoken_year}"
        if base == "de":
            return f"{spell_ordinal(day, base, ending)} {name} {spoken_year}"
        spell_day = spell_ordinal if day == 1 and base in ("fr", "it", "pt") else spell_number
        of = " de " if base in ("es", "pt") else " "
        return f"{spell_day(day, base)}{of}{name}{of}{spoken_year}"

    return make


def _worded_dates(base: str, words: Words) -> Iterator[Pattern]:
    """Yield dates whose month is a word, as far as the language says their day as a place."""
    months = "|".join(words.months)
    day, year = r"(?P<d>\d{1,2})", r"(?:,? (?P<y>\d{4})(?![\p{L}\p{N}]|[.,]\d))?"

    def maker(form: str, ending: str = "") -> Maker:
        def make(match: regex.Match[str]) -> str | None:
            if not 1 <= int(match["d"]) <= 31:
                return None
            place = spell_ordinal(int(match["d"]), base, ending)
            said = form.format(place=place, **match.groupdict("the "))  # where no article stands
            comma = "," if form.startswith("{month}") else ""
            return f"{said}{comma} {spell_year(int(match['y']), base)}" if match["y"] else said

        return make

    if base == "en":
        nth = r"(?:st|nd|rd|th)?"
        month_first = rf"\b(?P<month>{months}) {day}{nth}(?![\p{{L}}\d:.]\w){year}(?!\w)"
        yield regex.compile(month_first), maker("{month} {place}")
        day_first = rf"{_START}{day}{nth} (?:of )?(?P<month>{months}){year}(?!\w)"
        yield (regex.compile(rf"(?P<the>\b[Tt]he )?{day_first}"), maker("{the}{place} of {month}"))
    elif base == "de":
        for lead, ending in ((_GERMAN_DATIVE, "-n"), (r"(?<=\b[Dd]er )", ""), (_START, "-r")):
            dated = regex.compile(rf"{lead}{day}\. (?P<month>{months}){year}(?!\w)")
            yield dated, maker("{place} {month}", ending)
    elif base in ("fr", "it", "pt"):
        first = regex.compile(rf"{_START}(?P<d>1)(?:er|º|°)?(?= (?:de )?(?:{months})\b)")
        yield first, lambda match: spell_ordinal(1, base)


def _clocks(base: str) -> Iterator[str]:
    half = r"(?P<half>[AaPp])\.?[Mm]\b\.?"
    uhr = {"de": " ?Uhr", "nl": " ?uur"}.get(base, "")
    after = rf"(?:[ \u00a0]?{half})?" if base == "en" else rf"(?:{uhr}\b)?" if uhr else ""
    hour = rf"{_START}(?P<h>\d{{1,2}})"
    yield rf"{hour}:(?P<m>\d\d){after}{_END}(?![.,]\d)"
    if base == "en":
        yield rf"{hour}(?P<m>)[ \u00a0]?{half}(?!\w)"
    if uhr:
        yield rf"{hour}(?:\.(?P<m>\d\d))?{uhr}\b"
    if base in ("fr", "pt"):
        yield rf"{hour} ?h ?(?P<m>\d\d)?(?![\p{{L}}\p{{N}}])"


# What stands between hour and minute, and behind a whole hour: of one, of several.
_HOURS = {
    "de": (" Uhr ", " Uhr", " Uhr"),
    "nl": (" uur ", " uur", " uur"),
    "es": (" y ", " hora", " horas"),
    "it": (" e ", "", ""),
    "pt": (" e ", " hora", " horas"),
}


def _time(base: str, match: regex.Match[str]) -> str | None:
    """Return a time as it is said, or None for what is none."""
    hour, minute = int(match["h"]), int(match["m"] or 0)
    if hour > 24 or minute > 59:
        return None
    if base == "en":
        return _english_time(hour, minute, match)
    said = spell_before_noun(hour, base, feminine=base not in ("de", "nl"))
    if base == "fr":
        said = f"{said} {'heure' if hour < 2 else 'heures'}"
        return f"{said} {spell_number(minute, base)}" if minute else said
    between, one, several = _HOURS[base]
    if minute:
        return f"{said}{between}{spell_number(minute, base)}"
    return said + (one if hour == 1 else several)


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
