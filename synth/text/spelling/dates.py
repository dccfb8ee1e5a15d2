"""Spell out dates and clock times."""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterator

import regex

from synth.text.spelling import numbers
from synth.text.spelling.numbers import Maker, Pattern
from synth.text.spelling.words import Words

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
    yield from _written(base, words)
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
        return _said(base, words.months[month - 1], day, year, dative=dative)

    return make


def _said(base: str, month: str, day: int, year: int, *, dative: bool) -> str:
    """Return a date as it is said."""
    spoken_year = numbers.year(year, base)
    if base == "en":
        return f"{month} {numbers.ordinal(day, base)}, {spoken_year}"
    if base == "de":
        return f"{numbers.ordinal(day, base, '-n' if dative else '-r')} {month} {spoken_year}"
    first = numbers.ordinal(1, base) if base in ("fr", "it", "pt") else numbers.counted(1, base)
    spoken_day = first if day == 1 else numbers.counted(day, base)
    of = " de " if base in ("es", "pt") else " "
    return f"{spoken_day}{of}{month}{of}{spoken_year}"


def _written(base: str, words: Words) -> Iterator[Pattern]:
    """Yield dates whose month is a word, as far as the language says their day as a place."""
    months = "|".join(words.months)
    day, year = r"(?P<d>\d{1,2})", r"(?:,? (?P<y>\d{4})(?![\p{L}\p{N}]|[.,]\d))?"

    def spoken_year(match: regex.Match[str], comma: str = "") -> str:
        return f"{comma} {numbers.year(int(match['y']), base)}" if match["y"] else ""

    def is_day(match: regex.Match[str]) -> bool:
        return 1 <= int(match["d"]) <= 31

    if base == "en":
        yield (
            regex.compile(
                rf"\b(?P<month>{months}) {day}(?:st|nd|rd|th)?(?![\p{{L}}\d:.]\w){year}(?!\w)"
            ),
            lambda match: (
                f"{match['month']} {numbers.ordinal(int(match['d']), base)}"
                f"{spoken_year(match, ',')}"
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
                f"{match['the'] or 'the '}{numbers.ordinal(int(match['d']), base)} of "
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
            lambda match: numbers.ordinal(1, base),
        )


def _german(ending: str, spoken_year: Callable[[regex.Match[str]], str]) -> Maker:
    def make(match: regex.Match[str]) -> str | None:
        day = int(match["d"])
        if not 1 <= day <= 31:
            return None
        return f"{numbers.ordinal(day, 'de', ending)} {match['month']}{spoken_year(match)}"

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
    spoken_minute = numbers.counted(minute, base)
    if base == "en":
        return _english_time(hour, minute, match)
    if base in ("de", "nl"):
        word = "Uhr" if base == "de" else "uur"
        said = f"{numbers.before_noun(hour, base)} {word}"
        return f"{said} {spoken_minute}" if minute else said
    spoken_hour = numbers.before_noun(hour, base, feminine=True)
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
    said = numbers.counted(hour, "en")
    if minute:
        said += f" {'oh ' if minute < 10 else ''}{numbers.counted(minute, 'en')}"
    elif not half:
        said += " o'clock" if 1 <= hour <= 12 else " hundred"
    # The full stop of a.m. may end the sentence as well.
    ends = match[0].endswith(".") and not any(map(str.isalnum, match.string[match.end() :]))
    return f"{said} {half} m{'.' if ends else ''}" if half else said
