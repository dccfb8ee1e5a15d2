"""Find what stands in quotation marks, and is said by somebody, in one paragraph."""

# ruff: noqa: RUF001  # quotation marks and dashes are what this module is about

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
_NEAR = 50  # characters; a paragraph of a stranger's may be a million long
_MOST_SCARE_WORDS, _MOST_TITLE_WORDS, _MOST_SCARE_CJK = 2, 10, 6
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_CJK_SAYS = "说道問问答喊叫話"

# Where “ closes what „ has opened, and where »…« point inwards; where one mark does both.
_LOW = frozenset("de cs sk sl hr sr bg lt lv et is mk".split())  # noqa: SIM905
_INWARD = frozenset("de da cs sk sl hr sr hu".split())  # noqa: SIM905
_SAME = frozenset("fi sv".split())  # noqa: SIM905
_SINGLE = frozenset(("", "en", "und", "cy", "ga", "gd"))


@dataclass(frozen=True, slots=True)
class Quotes:
    """Hold the ranges of a paragraph that are said, and the mark that is still open at its end."""

    ranges: tuple[Range, ...]
    is_open: bool = False


def quotes_of(text: str, language: str, *, goes_on: bool = False) -> Quotes:
    """Return what of a paragraph stands in quotation marks and is said by somebody.

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
        if end is None and is_single and not _is_open_single(text, start):
            continue
        is_open = end is None
        place = end = len(text) if end is None else end
        if is_open or not _is_narrators(text, start, end, language):
            found.append((start, _with_trailing(text, end)))
    return Quotes(tuple(found), is_open)


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
    if mark == "»" and is_opening:
        return "«" if language in _INWARD else "»" if language in _SAME else ""
    if mark == "”" and is_opening:
        return "”" if language in _SAME else ""
    if mark == '"' and is_opening:
        return '"'
    if mark in "‘'" and is_opening and language in _SINGLE:
        return "’" if mark == "‘" else "'"
    return {"「": "」", "『": "』"}.get(mark, "")


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
        if text[place] in closers:
            if mark == '"' and _opens(text, place) and not _closes(text, place):
                continue
            if not depth:
                return place + 1
            depth -= 1
        elif text[place] == mark:
            if mark == "“" and _closes(text, place) and not _opens(text, place):
                return place + 1
            depth += nests
    return None


def _closes(text: str, place: int) -> bool:
    after = text[place + 1 : place + 2]
    return not text[place - 1].isspace() and not after.isalnum()


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
        if text[place] == closer and _closes(text, place):
            if text[place - 1] in '.,!?…—–;:”"':
                return place + 1
            candidates.append(place)
    if not candidates:
        return None
    end = candidates[0] + 1
    words = len(_WORD.findall(text[start:end]))
    return end if words <= _MOST_SCARE_WORDS or len(candidates) == 1 else None


def _is_open_single(text: str, start: int) -> bool:
    """Say whether a single mark that nothing closes begins a quote, and is no apostrophe."""
    if _ELISION.match(text, start + 1):
        return False
    before = _before(text, start)
    return not before or before[-1] in ",:"


def _is_narrators(text: str, start: int, end: int, language: str) -> bool:
    """Say whether what stands in marks is not said, but a word or a title of the narrator's."""
    said = text[start + 1 : end - 1].strip()
    before, after = _before(text, start), text[end : end + _NEAR].lstrip()
    if not said or said[-1] in _SAID_ENDS:
        return False
    if _CJK.search(said):
        return _is_narrators_cjk(said, before, after)
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
    return text[max(0, place - _NEAR) : place].rstrip()


def _is_title(words: list[str]) -> bool:
    """Say whether these are the words of a title: all but the short ones have capitals."""
    long = [word for word in words if len(word) > 3]
    is_short = len(words) <= _MOST_TITLE_WORDS
    return is_short and len(long) > 1 and all(word[0].isupper() for word in long)


def _is_narrators_cjk(said: str, before: str, after: str) -> bool:
    if len(said) > _MOST_SCARE_CJK or said[-1] in "。，、":
        return False
    if not before or not before[-1].isalnum() or before[-1] in _CJK_SAYS:
        return False
    return not after.startswith(("と", "って"))


def _with_trailing(text: str, end: int) -> int:
    """Return the end with the comma or stop that some languages put behind the mark."""
    trailing = _TRAILING.match(text, end)
    return trailing.end() if trailing else end


def outside(ranges: tuple[Range, ...], length: int) -> Iterator[Range]:
    """Yield what lies between ranges that are in order."""
    place = 0
    for start, end in ranges:
        if start > place:
            yield place, start
        place = end
    if place < length:
        yield place, length
