"""Spell out numbers, dates, sums, units and abbreviations: light, by language, and only if asked.

What is not understood for certain stays as it is written: addresses, versions, fractions, telephone
numbers and words with digits in them. Models read plain digits themselves, more or less well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

import regex

from synth.text import numbers
from synth.text.languages import base_of
from synth.text.numbers import Pattern, date_patterns, roman_patterns
from synth.text.words import ANY, CAPITAL, WORDS, Words

# ruff: noqa: RUF001  # look-alikes of ASCII are what texts are written in


Spelled = tuple[int, int, str]  # start, end, what is said

# A number stands alone: not in A4, 3D, 1.2.3, 10/12, 555-1234 or 12:30.
_BEFORE = r"(?<![\p{L}\p{M}\p{N}_])(?<!\d[.,:/\-–])"
_AFTER = r"(?![\p{L}\p{M}\p{N}_])(?![.,:/\-–]\d)"
_KEPT = regex.compile(
    r"<\|[^|<>\n]{0,100}\|>"  # marks of the model
    r"|\[\p{L}[^\[\]\n]{0,100}\]"
    r"|(?:https?://|www\.)\S+"
    r"|\S+@\S+"
    r"|\b[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|de|fr|es|it|nl|pt|io|eu|uk|br)\b(?:/\S*)?"
    r"|(?<!\d)\+\d[\d ()/-]{5,}\d"
)
_CLOSING = ("etc.", "usw.", "enz.", "ecc.")  # a sentence may end with them, and their full stop


def speller(language: str) -> Callable[[str], list[Spelled]] | None:
    """Return what finds the places that are spelled out, in order; None for other languages."""
    base = base_of(language)
    if base not in WORDS:
        return None
    patterns = _patterns(base, language.lower())
    return lambda text: _places(text, patterns)


def _places(text: str, patterns: tuple[Pattern, ...]) -> list[Spelled]:
    """Return what is spelled out; of two patterns for one place the first has it."""
    taken = [match.span() for match in _KEPT.finditer(text)]
    found: list[Spelled] = []
    for pattern, make in patterns:
        for match in pattern.finditer(text):
            start, end = match.span()
            if any(start < other_end and other_start < end for other_start, other_end in taken):
                continue
            said = make(match)
            if said is not None:
                taken.append((start, end))
                found.append((start, end, said))
    return sorted(found)


@lru_cache(maxsize=64)
def _patterns(base: str, language: str) -> tuple[Pattern, ...]:
    """Return a language's patterns, the most particular ones first."""
    words = WORDS[base]
    number = _number(words)
    return (
        *date_patterns(base, language, words),
        *_money(base, words, number),
        _percent(base, words, number),
        _units(base, words, number),
        *_ordinals(base),
        *roman_patterns(base, words),
        _abbreviations(words),
        *_plain(base, number),
    )


def _number(words: Words) -> str:
    """Return what matches a number: groups `whole` and `fraction`."""
    group = f"[{regex.escape(words.group)}]"
    return (
        rf"(?P<whole>\d{{1,3}}(?:{group}\d{{3}})+|\d{{1,15}})"
        rf"(?:{regex.escape(words.decimal)}(?P<fraction>\d{{1,12}}))?"
    )


def _whole(match: regex.Match[str]) -> int | None:
    """Return the digits before the point as a number; None if there are too many of them."""
    digits = "".join(character for character in match["whole"] if character.isdigit())
    return int(digits) if len(digits) <= numbers.MAX_DIGITS else None


def _money(base: str, words: Words, number: str) -> Iterator[Pattern]:
    signs = "|".join(regex.escape(sign) for sign in sorted(words.currencies, key=len, reverse=True))
    scales = "|".join(regex.escape(name) for name in sorted(words.scales, key=len, reverse=True))
    scale = (
        rf"(?:[ \u00a0]?(?P<scale>{scales})(?![\p{{L}}\p{{N}}]))?" if scales else "(?P<scale>$^)?"
    )

    def make(match: regex.Match[str]) -> str | None:
        whole = _whole(match)
        if whole is None:
            return None
        (one, several), (cent, cents) = words.currencies[match["sign"]]
        fraction = match["fraction"] or ""
        if match["scale"]:
            said = numbers.spell_fraction(whole, fraction, base)
            return f"{said} {words.scales[match['scale']]} {several}"
        if fraction and (len(fraction) != 2 or not cent):
            return f"{numbers.spell_fraction(whole, fraction, base)} {several}"
        major = f"{numbers.spell_before_noun(whole, base)} {one if whole == 1 else several}"
        if not fraction or not int(fraction):
            return major
        minor_number = numbers.spell_before_noun(int(fraction), base)
        minor = f"{minor_number} {cent if int(fraction) == 1 else cents}"
        if not whole:
            return minor
        bare = numbers.spell_number(int(fraction), base)
        return words.money.format(major=major, minor=minor, minor_number=bare)

    yield (
        regex.compile(rf"(?<![\p{{L}}\p{{N}}])(?P<sign>{signs})[ \u00a0]?{number}{scale}{_AFTER}"),
        make,
    )
    after = r"(?![\p{L}\p{N}])"
    yield regex.compile(rf"{_BEFORE}{number}{scale}[ \u00a0\u202f]?(?P<sign>{signs}){after}"), make


def _percent(base: str, words: Words, number: str) -> Pattern:
    def make(match: regex.Match[str]) -> str | None:
        whole = _whole(match)
        if whole is None:
            return None
        said = numbers.spell_fraction(whole, match["fraction"] or "", base)
        said = numbers.spell_negative(said, base) if match["minus"] else said
        return f"{said} {words.percent}"

    return regex.compile(rf"{_minus()}{_BEFORE}{number}[ \u00a0\u202f]?%"), make


def _units(base: str, words: Words, number: str) -> Pattern:
    signs = "|".join(regex.escape(sign) for sign in sorted(words.units, key=len, reverse=True))

    def make(match: regex.Match[str]) -> str | None:
        whole = _whole(match)
        if whole is None:
            return None
        one, several = words.units[match["sign"]]
        fraction = match["fraction"] or ""
        said = numbers.spell_fraction(whole, fraction, base, noun=True)
        said = numbers.spell_negative(said, base) if match["minus"] else said
        return f"{said} {one if whole == 1 and not fraction else several}"

    after = r"(?![\p{L}\p{M}\p{N}²³/°])"
    return (
        regex.compile(rf"{_minus()}{_BEFORE}{number}[ \u00a0\u202f]?(?P<sign>{signs}){after}"),
        make,
    )


def _ordinals(base: str) -> Iterator[Pattern]:
    start, end = r"(?<![\p{L}\p{N}_.,])(?P<n>\d{1,6})", r"(?![\p{L}\p{M}\p{N}_])"

    def plain(match: regex.Match[str]) -> str | None:
        return numbers.spell_ordinal(int(match["n"]), base)

    def feminine(match: regex.Match[str]) -> str | None:
        return numbers.spell_feminine_ordinal(int(match["n"]), base)

    if base == "en":
        yield regex.compile(rf"{start}(?P<end>st|nd|rd|th){end}"), _english_ordinal
    elif base == "fr":
        yield regex.compile(rf"{start}(?:ère|re){end}"), feminine
        yield regex.compile(rf"{start}(?:er|e|ème){end}"), plain
    elif base == "nl":
        yield regex.compile(rf"{start}(?:ste|de|e){end}"), plain
    elif base == "de":
        after = r"(?= \p{Lu}\p{Ll})"
        yield (
            regex.compile(rf"(?<=\b(?:[Dd]er|[Dd]ie|[Dd]as) ){start}\.{after}"),
            lambda match: numbers.spell_ordinal(int(match["n"]), base),
        )
        yield (
            regex.compile(rf"(?<=\b(?i:am|im|den|dem|des|zum|vom|beim) ){start}\.{after}"),
            lambda match: numbers.spell_ordinal(int(match["n"]), base, "-n"),
        )
    else:
        yield regex.compile(rf"{start}\.?[ºo°](?! ?[CF]\b){end}"), plain
        yield regex.compile(rf"{start}\.?ª{end}"), feminine


def _english_ordinal(match: regex.Match[str]) -> str | None:
    """Return the ordinal where digits and ending agree: 3th is no number."""
    number = int(match["n"])
    is_teen = number % 100 in (11, 12, 13)
    ending = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return numbers.spell_ordinal(number, "en") if match["end"] == ending else None


def _abbreviations(words: Words) -> Pattern:
    known = dict(words.abbreviations)
    for short, (said, needs) in words.abbreviations.items():  # as they begin a sentence
        known.setdefault(short[0].upper() + short[1:], (said[0].upper() + said[1:], needs))
    shorts = sorted(known, key=len, reverse=True)
    listed = "|".join(regex.escape(short) for short in shorts)

    def make(match: regex.Match[str]) -> str | None:
        said, needs = known[match["short"]]
        rest = match.string[match.end() :]
        first = rest.lstrip()[:1]
        if needs == CAPITAL and not (rest[:1] in " \u00a0" and first.isupper()):
            return None
        if needs not in (CAPITAL, ANY) and not first.isdigit():
            return None
        is_last = not any(character.isalnum() for character in rest)
        is_last = is_last or (match["short"].lower() in _CLOSING and first.isupper())
        return f"{said}." if is_last and match["short"].endswith(".") else said

    return regex.compile(rf"(?<![\p{{L}}\p{{N}}.])(?P<short>{listed})(?![\p{{L}}\p{{N}}])"), make


def _plain(base: str, number: str) -> Iterator[Pattern]:
    """Yield what is left: decades, years, and numbers without anything beside them."""

    def decade(match: regex.Match[str]) -> str | None:
        said = numbers.spell_year(int(match["year"]), "en")
        return f"{said[:-1]}ies" if said.endswith("y") else f"{said}s"

    def make(match: regex.Match[str]) -> str | None:
        digits, fraction = match["whole"], match["fraction"] or ""
        whole = _whole(match)
        if whole is None:
            return None
        if digits.startswith("0") and len(digits) > 1:
            said = None if fraction else numbers.spell_digits(digits, base)
        elif len(digits) == 4 and digits.isdigit() and not fraction and not match["minus"]:
            said = numbers.spell_year(whole, base)
        else:
            said = numbers.spell_fraction(whole, fraction, base)
        if said is None:
            return None
        return numbers.spell_negative(said, base) if match["minus"] else said

    if base == "en":
        yield regex.compile(r"(?<![\p{L}\p{N}_.,])(?P<year>\d{3}0)['’]?s(?![\p{L}\p{N}])"), decade
    yield regex.compile(rf"{_minus()}{_BEFORE}{number}{_AFTER}"), make


def _minus() -> str:
    """Return what matches a sign that is no hyphen, because nothing stands before it."""
    return r"(?P<minus>(?<![^\s(\[\"“«„])[-−–](?=\d))?"


# ruff: noqa: RUF001  # look-alikes of ASCII are what texts are written in


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
    spelled = _Blocks(text, lambda near: _find_spelled(near, language))  # takes ten times as long
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
    dates = _dates(base_of(language))
    return found + [match.span() for match in dates.finditer(text)] if dates else found


def _find_spelled(text: str, language: str) -> list[tuple[int, int]]:
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
