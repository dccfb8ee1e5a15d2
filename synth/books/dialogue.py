"""Find what persons say in prose, by quotation marks and dashes as each language has them."""

from __future__ import annotations

# ruff: noqa: RUF001  # dashes are what this module is about
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from synth.books.dialogue_quotes import Range, outside, quotes_of
from synth.text.normalise import is_speakable

# Where a dash at the beginning of a paragraph says that somebody speaks.
_DASH_LANGUAGES = frozenset(
    "es fr it pt ca gl ru uk be bg mk pl cs sk ro hu tr el sv fi nb no da lt lv et hr sr".split()  # noqa: SIM905
)
_ATTACHED = frozenset(("es", "ca", "gl"))  # —Hola —dijo Juan—. Adiós.
_BY_STOPS = frozenset(("ru", "uk", "be", "bg", "mk"))  # a dash between words stands for a verb
_START = re.compile(r"\s*(?:[—–―]|--|-\s)\s*(?=\S)")
_AFTER_COLON = re.compile(r"(?<=:)\s+(?=[—–―]\s*\S)")
_DASH = re.compile(r"[—–―]|(?<=\s)-(?=\s)")
_NEAR = 20  # characters, of which all but the nearest are blanks
_STOPS = ',.!?…:;»”"'

_FRENCH_VERBS = (
    "dit dis disait disais dirent fit fis faisait répondit répondis répondait répond répondirent "
    "répliqua répliquai réplique demanda demandai demande demandait demandèrent écria écriai écrie "
    "écrièrent exclama exclamai cria criai crie criait crièrent murmura murmurai murmure murmurait "
    "souffla chuchota ajouta ajoutai ajoute ajoutait reprit repris reprend continua continuai "
    "continuait poursuivit poursuivis interrompit observa observai remarqua remarquai déclara "
    "déclarai expliqua expliquai explique soupira soupirai songea songeai pensa pensai pensait "
    "gronda grogna hurla balbutia bégaya insista insistai lança lançai protesta protestai rétorqua "
    "rétorquai conclut conclus commença affirma affirmai avoua avouai ordonna supplia sanglota "
    "gémit étonna étonnai enquit interrogea interrogeai acheva achevai fredonna appela"
).replace(" ", "|")
# «Bonjour, dit-il, comment allez-vous ?»: a verb of saying, then who said it.
_INCISE = re.compile(
    r"(?<=[,!?…»])\s+(?:(?:me|te|lui|nous|vous|leur|se|en|y)\s+|[smtl]['’])*"
    rf"(?:{_FRENCH_VERBS})"
    r"(?:-(?:t-)?(?:il|elle|on|je|ils|elles|nous|vous)\b(?!-)"
    r"|\s+(?=[A-ZÀ-ÖØ-Þ]|(?:le|la|les|un|une|son|sa|ses|mon|ma|mes|ce|cette|notre|votre|leur)\s"
    r"|l['’]))"
    r"[^,.;:!?…«»“”—–]{0,120}(?:[,.;:!?…]|(?=\s*»)|\Z)"
)


def begins_with_dash(text: str, language: str) -> bool:
    """Say whether a dash says that somebody speaks here."""
    return language in _DASH_LANGUAGES and _START.match(text) is not None


def dash_ranges(text: str, language: str) -> list[Range]:
    """Return what of a paragraph is said, where a dash at its beginning says that.

    Args:
        language: the first part of the tag, in small letters.
    """
    start = _START.match(text)
    place = start.end() if start else 0
    turns = [0]  # where who speaks changes: said, told, said, ...
    for match in _DASH.finditer(text, place):
        is_said = len(turns) % 2 == 1
        if language == "fr" or _is_nothing(text, match.start(), language, is_said=is_said):
            continue
        turns.append(match.start() if is_said else _after_told(text, match, language))
    turns.append(len(text))
    return [(one, two) for one, two in zip(turns[::2], turns[1::2], strict=False) if one < two]


def after_colon(text: str, language: str) -> int | None:
    """Return where speech begins after a colon and a dash; None where it does not."""
    found = _AFTER_COLON.search(text) if language in _DASH_LANGUAGES else None
    return found.end() if found else None


def without_incises(text: str, ranges: list[Range], language: str) -> list[Range]:
    """Return what is said, without the words about it, which French sets off by commas alone."""
    if language != "fr":
        return ranges
    found: list[Range] = []
    for start, end in ranges:
        place = start
        for match in _INCISE.finditer(text, start, end):
            found.append((place, match.start()))
            place = match.end()
        found.append((place, end))
    return [(start, end) for start, end in found if start < end]


def _is_nothing(text: str, place: int, language: str, *, is_said: bool) -> bool:
    """Say whether a dash does not change who speaks."""
    before = text[max(0, place - _NEAR) : place]
    after = text[place + 1 : place + 1 + _NEAR]
    follows_blank, blank_follows = before[-1:].isspace(), after[:1].isspace()
    if language in _ATTACHED:
        if is_said:
            return not follows_blank or blank_follows or not after
        return follows_blank or (bool(after) and after[0].isalnum())
    if not follows_blank or not blank_follows:
        return True
    if before.rstrip()[-1:] in _STOPS:
        return False
    return not is_said or language in _BY_STOPS or not after.lstrip()[:1].islower()


def _after_told(text: str, match: re.Match[str], language: str) -> int:
    """Return where speech goes on after the words about it."""
    if language not in _ATTACHED:
        return match.start()
    stops = re.compile(r"[,.;:!?…]*").match(text, match.end())
    return stops.end() if stops else match.end()


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
