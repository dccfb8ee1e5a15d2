"""Estimate how long a text takes to speak, by its letters and by how its voice's clip speaks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from synth.contract import Reference

USUAL_LETTERS_PER_SECOND = 14.0  # read aloud in most alphabets, pauses at commas included
_SLOWEST, _FASTEST = 9.0, 20.0  # a clip beyond these says more of its transcript than of its pace
_PAUSE_SECONDS = 0.3  # around every utterance, however short
_TAG = re.compile(r"<\|[^|>]*\|>")
_BRACKET = re.compile(r"\[[^\[\]]*\]")
# How many letters of an alphabet take as long as one of these.
_IDEOGRAPH, _KANA, _HANGUL, _DIGIT, _MARK, _SYMBOL = 3.0, 2.0, 2.5, 4.0, 0.5, 6.0


def letters_of(text: str) -> float:
    """Return a text's length in letters of an alphabet; tags and cues in brackets have none.

    An ideograph, a digit or a symbol that is read as a word counts as several.
    """
    return sum(map(_weight, _BRACKET.sub(" ", _TAG.sub(" ", text))))


def num_cues(text: str) -> int:
    """Return how many cues in brackets a text has, such as `[laugh]`: each may take its time."""
    return len(_BRACKET.findall(text))


def expected_seconds(text: str, pace: float) -> float:
    """Return how long a text takes at a pace in letters per second."""
    return _PAUSE_SECONDS + letters_of(text) / pace


def pace_of(references: Iterable[Reference], *, seconds_per_frame: float) -> float:
    """Return how many letters a second a voice's clips speak, 9 to 20.

    Where there is no clip, or none with a transcript, it is what is usual.
    """
    letters = seconds = 0.0
    for reference in references:
        length = reference.codes.shape[1] * seconds_per_frame - _PAUSE_SECONDS
        spoken = letters_of(reference.text)
        if spoken and length > 0:
            letters, seconds = letters + spoken, seconds + length
    if not seconds:
        return USUAL_LETTERS_PER_SECOND
    return min(max(letters / seconds, _SLOWEST), _FASTEST)


def most_repeats(text: str) -> int:
    """Return how often one to four words follow upon themselves at most; 1 where they never do."""
    words = [re.sub(r"\W", "", word).casefold() for word in text.split()]
    words = [word for word in words if word]
    most = 1
    for length in range(1, 5):
        run = 0
        for place in range(length, len(words)):
            run = run + 1 if words[place] == words[place - length] else 0
            most = max(most, 1 + run // length)
    return most


def _weight(character: str) -> float:
    if character.isascii():
        if character.isalpha():
            return 1.0
        if character.isdigit():
            return _DIGIT
        return _SYMBOL if character in "%&+=@#$" else 0.0
    category = unicodedata.category(character)
    if category == "Lo":
        return _weight_of_other_letter(ord(character))
    if category in ("Lu", "Ll", "Lt"):
        return 1.0
    if category in ("Mn", "Mc"):
        return _MARK
    if category == "Nd":
        return _DIGIT
    return _SYMBOL if category in ("Sc", "Sm", "No") else 0.0


def _weight_of_other_letter(point: int) -> float:
    if 0x3040 <= point <= 0x30FF:
        return _KANA
    if 0xAC00 <= point <= 0xD7AF:
        return _HANGUL
    is_ideograph = 0x3400 <= point <= 0x9FFF or 0xF900 <= point <= 0xFAFF or point >= 0x20000
    return _IDEOGRAPH if is_ideograph else 1.0
