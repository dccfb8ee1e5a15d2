"""Find what persons say in prose, by quotation marks and dashes as each language has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from synth.text.languages import base_of
from synth.text.normalise import is_speakable

# ruff: noqa: RUF001  # quotation marks and dashes are what this module is about


Range = tuple[int, int]

_MARKS = re.compile("[\"'“”„‟«»‘’「」『』]")
_BEFORE_OPENING = "([{—–―-/:“„«‘「『\"'"
_SAID_ENDS = "!?…—–！？"  # with one of these even a single word is said aloud
_SENTENCE_ENDS = ".!?…。！？"
_TRAILING = re.compile(r"[,.;:!?…、。，！？]+")
_WORD = re.compile(r"[^\W_][\w'’-]*")
_ELISION = re.compile(
    r"(?:tis|twas|twere|twill|twould|em|til|till|cause|bout|round|n|neath|gainst|"
    r"ave|alf|appen|ere|im|ow)\b|\d",
    re.IGNORECASE,
)
_NEAR_CHARS = 50  # characters; a paragraph of a stranger's may be a million long
_MOST_SCARE_WORDS, _MOST_TITLE_WORDS, _MOST_SCARE_CJK = 2, 10, 6
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_CJK_SAYS = "说道問问答喊叫話"

# Where “ closes what „ has opened, and where »…« point inwards; where one mark does both.
_LOW = frozenset("de cs sk sl hr sr bg lt lv et is mk".split())  # noqa: SIM905
_INWARD = frozenset("de da cs sk sl hr sr hu".split())  # noqa: SIM905
_SAME = frozenset("fi sv".split())  # noqa: SIM905
_SINGLE = frozenset(("", "en", "und", "cy", "ga", "gd"))


def find_quotes(text: str, language: str, *, goes_on: bool = False) -> tuple[list[Range], bool]:
    """Return what of a paragraph is quoted and said by somebody, and whether a mark is still open.

    One or two words in marks, or a title, inside a sentence of the narrator's are the narrator's:
    `he called it “freedom” and left`. What is not closed ends with the paragraph.

    Args:
        language: the first part of the tag, in small letters.
        goes_on: a quote was open at the end of the paragraph before.
    """
    found: list[Range] = []
    pairs: dict[str, bool] = {}
    place = 0
    is_open = False
    if goes_on and text[:1] in ("»", "«"):  # French quotes repeat either mark at each paragraph
        end = _end_of_quote(text, 0, "»")
        found.append((0, end or len(text)))
        place, is_open = end or len(text), not end
    while match := _MARKS.search(text, place):
        start = match.start()
        place = start + 1
        closers = _closers(text, start, language)
        if not closers:
            continue
        is_single = text[start] in "‘'"
        if is_single:
            end = _end_of_single(text, start)
        else:
            mark = text[start]
            if mark not in pairs:
                pairs[mark] = text.count(mark) == sum(map(text.count, closers))
            end = _end_of_quote(text, start, closers, pairs=pairs[mark])
        if end is None and is_single:
            # One that nothing closes may begin a quote, or be an apostrophe.
            before = _before(text, start)
            if _ELISION.match(text, start + 1) or (before and before[-1] not in ",:"):
                continue
        is_open = end is None
        place = end = len(text) if end is None else end
        if is_open or not _is_narrators(text, start, end, language):
            # With the comma or stop that some languages put behind the mark.
            trailing = _TRAILING.match(text, end)
            found.append((start, trailing.end() if trailing else end))
    return found, is_open


def _closers(text: str, place: int, language: str) -> str:
    """Return the marks that close the one at `place`; empty where it opens nothing."""
    mark = text[place]
    is_opening = _opens(text, place)
    if mark == "“":
        return "" if language in _LOW and not is_opening else "”"
    if mark in "„‟":
        return '“”"'
    if mark == "«":
        return "" if language in _INWARD and not is_opening else "»"
    if mark in "「『":
        return "」" if mark == "「" else "』"
    if not is_opening or mark not in "»”\"‘'":
        return ""
    if mark in "»”":
        same = mark if language in _SAME else ""
        return "«" if mark == "»" and language in _INWARD else same
    if mark == '"' or language in _SINGLE:
        return "’" if mark == "‘" else mark
    return ""


def _opens(text: str, place: int) -> bool:
    """Say whether a mark stands as one that opens: after a blank, before a word."""
    before, after = text[max(0, place - 1) : place], text[place + 1 : place + 2]
    is_free = not before or before.isspace() or before in _BEFORE_OPENING
    return is_free and bool(after) and not after.isspace()


def _end_of_quote(text: str, start: int, closers: str, *, pairs: bool = False) -> int | None:
    """Return the place after the mark that closes a quote; None where there is none.

    Args:
        pairs: as many marks close as open.
    """
    mark, depth = text[start], 0
    # Where the marks do not come in pairs, one that is missing must not swallow what follows.
    nests = mark not in closers and pairs
    for match in _MARKS.finditer(text, start + 1):
        place = match.start()
        closes = not text[place - 1].isspace() and not text[place + 1 : place + 2].isalnum()
        if text[place] in closers:
            if mark == '"' and _opens(text, place) and not closes:
                continue
            if not depth:
                return place + 1
            depth -= 1
        elif text[place] == mark:
            if mark == "“" and closes and not _opens(text, place):
                return place + 1
            depth += nests
    return None


def _end_of_single(text: str, start: int) -> int | None:
    """Return the place after the single mark that closes a quote; apostrophes close nothing.

    A mark after a stop or a comma is surely no apostrophe. Without any such mark the first one
    at the end of a word is taken where few words stand before it.
    """
    closer = "’" if text[start] == "‘" else "'"
    candidates: list[int] = []
    for match in _MARKS.finditer(text, start + 1):
        place = match.start()
        if text[place] == text[start] and _opens(text, place) and place - 1 != start:
            break
        is_end = not text[place - 1].isspace() and not text[place + 1 : place + 2].isalnum()
        if text[place] == closer and is_end:
            if text[place - 1] in '.,!?…—–;:”"':
                return place + 1
            candidates.append(place)
    if not candidates:
        return None
    end = candidates[0] + 1
    words = len(_WORD.findall(text[start:end]))
    return end if words <= _MOST_SCARE_WORDS or len(candidates) == 1 else None


def _is_narrators(text: str, start: int, end: int, language: str) -> bool:
    """Say whether what stands in marks is not said, but a word or a title of the narrator's."""
    said = text[start + 1 : end - 1].strip()
    before, after = _before(text, start), text[end : end + _NEAR_CHARS].lstrip()
    if not said or said[-1] in _SAID_ENDS:
        return False
    if _CJK.search(said):
        is_short = len(said) <= _MOST_SCARE_CJK and said[-1] not in "。，、"
        is_inside = before[-1:].isalnum() and before[-1] not in _CJK_SAYS
        return is_short and is_inside and not after.startswith(("と", "って"))
    words = _WORD.findall(said)
    is_inside = bool(before) and (before[-1].isalnum() or before[-1] in "’'")
    if is_inside:
        return len(words) <= _MOST_SCARE_WORDS or _is_title(words)
    begins = before[-1:] in _SENTENCE_ENDS + '”“»«"’' if before else language in _SINGLE
    if len(words) > _MOST_SCARE_WORDS or not begins or said[-1] in ".,;:":
        return False
    return bool(after) and after[0].isalpha()


def _before(text: str, place: int) -> str:
    """Return the end of what stands before a place, without blanks."""
    return text[max(0, place - _NEAR_CHARS) : place].rstrip()


def _is_title(words: list[str]) -> bool:
    """Say whether these are the words of a title: all but the short ones have capitals."""
    long = [word for word in words if len(word) > 3]
    is_short = len(words) <= _MOST_TITLE_WORDS
    return is_short and len(long) > 1 and all(word[0].isupper() for word in long)


# Where a dash at the beginning of a paragraph says that somebody speaks.
_DASH_LANGUAGES = frozenset(
    "es fr it pt ca gl ru uk be bg mk pl cs sk ro hu tr el sv fi nb no da lt lv et hr sr".split()  # noqa: SIM905
)
_ATTACHED = frozenset(("es", "ca", "gl"))  # —Hola —dijo Juan—. Adiós.
_BY_STOPS = frozenset(("ru", "uk", "be", "bg", "mk"))  # a dash between words stands for a verb
_START = re.compile(r"\s*(?:[—–―]|--|-\s)\s*(?=\S)")
_AFTER_COLON = re.compile(r"(?<=:)\s+(?=[—–―]\s*\S)")
_DASH = re.compile(r"[—–―]|(?<=\s)-(?=\s)")
_STOPS_BEHIND = re.compile(r"[,.;:!?…]*")
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


def find_dash_ranges(text: str, language: str) -> list[Range]:
    """Return what of a paragraph is said, where a dash at its beginning says that.

    Args:
        language: the first part of the tag, in small letters.
    """
    start = _START.match(text)
    place = start.end() if start else 0
    turns = [0]  # where who speaks changes: said, told, said, ...
    for match in _DASH.finditer(text, place):
        is_said = len(turns) % 2 == 1
        if language == "fr" or _is_no_turn(text, match.start(), language, is_said=is_said):
            continue
        turns.append(match.start() if is_said else _end_of_tag(text, match, language))
    turns.append(len(text))
    return [(one, two) for one, two in zip(turns[::2], turns[1::2], strict=False) if one < two]


def remove_incises(text: str, ranges: list[Range], language: str) -> list[Range]:
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


def _is_no_turn(text: str, place: int, language: str, *, is_said: bool) -> bool:
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


def _end_of_tag(text: str, match: re.Match[str], language: str) -> int:
    """Return where speech goes on after the words about it."""
    stops = _STOPS_BEHIND.match(text, match.end()) if language in _ATTACHED else None
    return stops.end() if stops else match.start()


class Span(NamedTuple):
    """Hold a part of a paragraph, and whether it is said by somebody."""

    text: str
    is_dialogue: bool


class DialogueReader:
    """Read the paragraphs of a chapter in their order: a quote may go on over several."""

    def __init__(self) -> None:
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
        short = base_of(language.replace("_", "-"))
        return list(_spans(text, self._ranges(text, short)))

    def _ranges(self, text: str, language: str) -> list[Range]:
        has_dashes = language in _DASH_LANGUAGES
        start = 0 if has_dashes and _START.match(text) else None
        said: list[Range] = []
        if start is None:
            said, self._is_open = find_quotes(text, language, goes_on=self._is_open)
            if not said and has_dashes and (found := _AFTER_COLON.search(text)):
                start = found.end()
        else:
            self._is_open = False
        if start is None:
            return remove_incises(text, said, language)
        rest = text[start:]
        said = remove_incises(rest, find_dash_ranges(rest, language), language)
        return [(start + one, start + two) for one, two in said]


def _spans(text: str, said: list[Range]) -> Iterator[Span]:
    parts: list[tuple[int, int, bool]] = []
    place = 0
    for start, end in said:
        if start > place:
            parts.append((place, start, False))
        parts.append((start, end, True))
        place = end
    if place < len(text):
        parts.append((place, len(text), False))
    for start, end, is_dialogue in _join_silent(text, parts):
        yield Span(text[start:end], is_dialogue)


def _join_silent(text: str, parts: Iterable[tuple[int, int, bool]]) -> list[tuple[int, int, bool]]:
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
