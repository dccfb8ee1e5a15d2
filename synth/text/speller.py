"""Spell out numbers, dates, sums, units and abbreviations: light, by language, and only if asked.

What is not understood for certain stays as it is written: addresses, versions, fractions, telephone
numbers and words with digits in them. Models read plain digits themselves, more or less well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import regex

from synth.text import numbers
from synth.text.languages import WORDS, Words, base_of
from synth.text.numbers import Maker, Pattern, date_patterns, roman_patterns

# ruff: noqa: RUF001  # look-alikes of ASCII are what texts are written in

Spelled = tuple[int, int, str]  # start, end, what is said

# A number stands alone: not in A4, 3D, 1.2.3, 10/12, 555-1234 or 12:30.
_BEFORE = r"(?<![\p{L}\p{M}\p{N}_])(?<!\d[.,:/\-–])"
_AFTER = r"(?![\p{L}\p{M}\p{N}_])(?![.,:/\-–]\d)"
# A sign that is no hyphen, because nothing stands before it.
_MINUS = r"(?P<minus>(?<![^\s(\[\"“«„])[-−–](?=\d))?"
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
    if base_of(language) not in WORDS:
        return None
    patterns = _patterns(language.lower())

    def find(text: str) -> list[Spelled]:
        taken = [match.span() for match in _KEPT.finditer(text)]
        found: list[Spelled] = []
        for pattern, make in patterns:  # of two for one place the first has it
            for match in pattern.finditer(text):
                start, end = match.span()
                if any(start < its_end and its_start < end for its_start, its_end in taken):
                    continue
                said = make(match)
                if said is not None:
                    taken.append((start, end))
                    found.append((start, end, said))
        return sorted(found)

    return find


@lru_cache(maxsize=64)
def _patterns(language: str) -> tuple[Pattern, ...]:
    """Return a language's patterns, the most particular ones first."""
    base = base_of(language)
    words = WORDS[base]
    group = f"[{regex.escape(words.group)}]"
    number = (
        rf"(?P<whole>\d{{1,3}}(?:{group}\d{{3}})+|\d{{1,15}})"
        rf"(?:{regex.escape(words.decimal)}(?P<fraction>\d{{1,12}}))?"
    )
    return (
        *date_patterns(base, language, words),
        *_money(base, words, number),
        *_amounts(base, words, number),
        *_ordinals(base),
        *roman_patterns(base, words),
        _abbreviations(words),
        *_plain(base, number),
    )


def _any_of(signs: Iterable[str]) -> str:
    return "|".join(map(regex.escape, sorted(signs, key=len, reverse=True)))


def _of_number(base: str, say: Callable[[regex.Match[str], int, str], str | None]) -> Maker:
    """Return what says a match by its number, whole and fraction, and by its sign, if any.

    A number of too many digits stays as it is.
    """

    def make(match: regex.Match[str]) -> str | None:
        digits = "".join(filter(str.isdigit, match["whole"]))
        if len(digits) > numbers.MAX_DIGITS:
            return None
        said = say(match, int(digits), match["fraction"] or "")
        if said is None or not match.groupdict().get("minus"):
            return said
        return numbers.spell_negative(said, base)

    return make


def _money(base: str, words: Words, number: str) -> Iterator[Pattern]:
    signs, scales = _any_of(words.currencies), _any_of(words.scales)
    scale = (
        rf"(?:[ \u00a0]?(?P<scale>{scales})(?![\p{{L}}\p{{N}}]))?" if scales else "(?P<scale>$^)?"
    )

    def say(match: regex.Match[str], whole: int, fraction: str) -> str:
        (one, several), (cent, cents) = words.currencies[match["sign"]]
        if match["scale"]:
            said = numbers.spell_fraction(whole, fraction, base)
            return f"{said} {words.scales[match['scale']]} {several}"
        if fraction and (len(fraction) != 2 or not cent):
            return f"{numbers.spell_fraction(whole, fraction, base)} {several}"
        major = f"{numbers.spell_before_noun(whole, base)} {one if whole == 1 else several}"
        part = int(fraction or 0)
        if not part:
            return major
        minor = f"{numbers.spell_before_noun(part, base)} {cent if part == 1 else cents}"
        bare = numbers.spell_number(part, base)
        return words.money.format(major=major, minor=minor, minor_number=bare) if whole else minor

    sign, make = f"(?P<sign>{signs})", _of_number(base, say)
    yield (regex.compile(rf"(?<![\p{{L}}\p{{N}}]){sign}[ \u00a0]?{number}{scale}{_AFTER}"), make)
    after = r"(?![\p{L}\p{N}])"
    yield regex.compile(rf"{_BEFORE}{number}{scale}[ \u00a0\u202f]?{sign}{after}"), make


def _amounts(base: str, words: Words, number: str) -> Iterator[Pattern]:
    start = rf"{_MINUS}{_BEFORE}{number}[ \u00a0\u202f]?"

    def say_share(match: regex.Match[str], whole: int, fraction: str) -> str:
        return f"{numbers.spell_fraction(whole, fraction, base)} {words.percent}"

    def say_unit(match: regex.Match[str], whole: int, fraction: str) -> str:
        one, several = words.units[match["sign"]]
        said = numbers.spell_fraction(whole, fraction, base, noun=True)
        return f"{said} {one if whole == 1 and not fraction else several}"

    yield regex.compile(f"{start}%"), _of_number(base, say_share)
    sign = rf"(?P<sign>{_any_of(words.units)})(?![\p{{L}}\p{{M}}\p{{N}}²³/°])"
    yield regex.compile(start + sign), _of_number(base, say_unit)


_NTH, _NO_WORD = r"(?<![\p{L}\p{N}_.,])(?P<n>\d{1,6})", r"(?![\p{L}\p{M}\p{N}_])"
_NAME = r"\.(?= \p{Lu}\p{Ll})"
_FEMININE = {"feminine": True}
# What matches the place of something, and how it is inflected.
_PLACES: tuple[tuple[str, dict[str, Any]], ...] = (
    (rf"{_NTH}\.?[ºo°](?! ?[CF]\b){_NO_WORD}", {}),
    (rf"{_NTH}\.?ª{_NO_WORD}", _FEMININE),
)
_ORDINALS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "fr": ((rf"{_NTH}(?:ère|re){_NO_WORD}", _FEMININE), (rf"{_NTH}(?:er|e|ème){_NO_WORD}", {})),
    "nl": ((rf"{_NTH}(?:ste|de|e){_NO_WORD}", {}),),
    "de": (
        (rf"(?<=\b(?:[Dd]er|[Dd]ie|[Dd]as) ){_NTH}{_NAME}", {}),
        (rf"(?<=\b(?i:am|im|den|dem|des|zum|vom|beim) ){_NTH}{_NAME}", {"ending": "-n"}),
    ),
    "es": _PLACES,
    "it": _PLACES,
    "pt": _PLACES,
}


def _ordinals(base: str) -> Iterator[Pattern]:
    if base == "en":
        yield regex.compile(rf"{_NTH}(?P<end>st|nd|rd|th){_NO_WORD}"), _english_ordinal
    for place, how in _ORDINALS.get(base, ()):
        yield regex.compile(place), partial(_say_place, base, how)


def _say_place(base: str, how: Mapping[str, Any], match: regex.Match[str]) -> str:
    return numbers.spell_ordinal(int(match["n"]), base, **how)


def _english_ordinal(match: regex.Match[str]) -> str | None:
    """Return the ordinal where digits and ending agree: 3th is no number."""
    number = int(match["n"])
    is_teen = number % 100 in (11, 12, 13)
    ending = "th" if is_teen else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return numbers.spell_ordinal(number, "en") if match["end"] == ending else None


def _abbreviations(words: Words) -> Pattern:
    listed = (words.anywhere, words.before_capital, words.before_digit)
    known = {short: (said, one) for one in listed for short, said in one.items()}
    for short, (said, one) in list(known.items()):  # as they begin a sentence
        known.setdefault(short[0].upper() + short[1:], (said[0].upper() + said[1:], one))

    def make(match: regex.Match[str]) -> str | None:
        said, one = known[match["short"]]
        rest = match.string[match.end() :]
        first = rest.lstrip()[:1]
        if one is words.before_capital and not (rest[:1] in " \u00a0" and first.isupper()):
            return None
        if one is words.before_digit and not first.isdigit():
            return None
        is_last = not any(map(str.isalnum, rest))
        is_last = is_last or (match["short"].lower() in _CLOSING and first.isupper())
        return f"{said}." if is_last and match["short"].endswith(".") else said

    short = rf"(?<![\p{{L}}\p{{N}}.])(?P<short>{_any_of(known)})(?![\p{{L}}\p{{N}}])"
    return regex.compile(short), make


def _plain(base: str, number: str) -> Iterator[Pattern]:
    """Yield what is left: decades, years, and numbers without anything beside them."""

    def say_decade(match: regex.Match[str]) -> str | None:
        said = numbers.spell_year(int(match["year"]), "en")
        return f"{said[:-1]}ies" if said.endswith("y") else f"{said}s"

    def say(match: regex.Match[str], whole: int, fraction: str) -> str | None:
        digits = match["whole"]
        if digits.startswith("0") and len(digits) > 1:
            return None if fraction else numbers.spell_digits(digits, base)
        if len(digits) == 4 and digits.isdigit() and not fraction and not match["minus"]:
            return numbers.spell_year(whole, base)
        return numbers.spell_fraction(whole, fraction, base)

    if base == "en":
        decade = r"(?<![\p{L}\p{N}_.,])(?P<year>\d{3}0)['’]?s(?![\p{L}\p{N}])"
        yield regex.compile(decade), say_decade
    yield regex.compile(rf"{_MINUS}{_BEFORE}{number}{_AFTER}"), _of_number(base, say)


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
    looks = [pattern for pattern in (_ANYWHERE, _dates(base_of(language))) if pattern]
    shapes = _Blocks(
        text, lambda near: (match.span() for look in looks for match in look.finditer(near))
    )

    def find_spelled(near: str) -> list[tuple[int, int]]:
        spell_out = speller(language)
        spans = [(start, end) for start, end, _ in spell_out(near)] if spell_out else []
        return [span for span in spans if _DIGIT.search(near, *span)]

    spelled = _Blocks(text, find_spelled)  # takes ten times as long
    return lambda place: shapes.holds(place) or spelled.holds(place)


class _Blocks:
    """Find spans of a text block by block, when they are asked for; a few blocks are kept."""

    def __init__(self, text: str, find: Callable[[str], Iterable[tuple[int, int]]]) -> None:
        self._text, self._find = text, find
        self._known: dict[int, list[tuple[int, int]]] = {}

    def holds(self, place: int) -> bool:
        block = place // _BLOCK
        if block not in self._known:
            if len(self._known) >= _BLOCKS_KEPT:
                self._known.clear()
            first = max(0, block * _BLOCK - _MARGIN)
            near = self._text[first : (block + 1) * _BLOCK + _MARGIN]
            found = self._find(near) if _DIGIT.search(near) else []
            self._known[block] = [(first + start, first + end) for start, end in found]
        return any(start < place < end for start, end in self._known[block])


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
