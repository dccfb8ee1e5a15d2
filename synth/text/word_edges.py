"""Say where a word begins and ends, in all scripts: what a rule of kind `word` goes by."""

# ruff: noqa: RUF001  # look-alikes of ASCII are what this module is about

from __future__ import annotations

import unicodedata

APOSTROPHES = "'’ʼ＇"
# Their words are written without blanks, so that every place between two letters may be an edge.
_UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "HALFWIDTH KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR",
             "BOPOMOFO", "TIBETAN", "JAVANESE")  # fmt: skip
# In these an apostrophe ends a word (l'école, dell'arte); elsewhere it is inside one (don't).
_ELIDING = frozenset({"fr", "it", "ca", "oc"})


def is_word(text: str, start: int, end: int, language: str) -> bool:
    """Say whether text[start:end] begins and ends where words do.

    An end that is no letter, mark, digit or underscore (`C++`, `.NET`) asks for nothing there.
    """
    return _is_start(text, start, language) and _is_end(text, end, language)


def _is_start(text: str, place: int, language: str) -> bool:
    if place == 0 or not _is_part(text[place]):
        return True
    before = text[place - 1]
    if _is_part(before):
        return _is_unspaced(before) or _is_unspaced(text[place])
    if place < 2 or not _is_part(text[place - 2]):
        return True
    if before in APOSTROPHES:
        return language.partition("-")[0].lower() in _ELIDING
    return not _joins_digits(text[place - 2], before, text[place])


def _is_end(text: str, place: int, language: str) -> bool:
    if place == len(text) or not _is_part(text[place - 1]):
        return True
    after = text[place]
    if _is_part(after):
        is_mark = unicodedata.category(after).startswith("M")
        return not is_mark and (_is_unspaced(after) or _is_unspaced(text[place - 1]))
    if place + 1 == len(text) or not _is_part(text[place + 1]):
        return True
    if after in APOSTROPHES:
        is_eliding = language.partition("-")[0].lower() in _ELIDING
        return is_eliding or _is_possessive(text, place + 1)
    return not _joins_digits(text[place - 1], after, text[place + 1])


def _is_possessive(text: str, place: int) -> bool:
    """Say whether only an `s` stands after the apostrophe: Ada's is the word Ada."""
    is_last = place + 1 == len(text) or not _is_part(text[place + 1])
    return text[place] in "sS" and is_last


def _joins_digits(left: str, mark: str, right: str) -> bool:
    """Say whether a mark stands inside of a number: 3.5 is not 3 and 5."""
    return mark in ".,:" and left.isdigit() and right.isdigit()


def _is_part(character: str) -> bool:
    """Say whether a character can be inside of a word: letter, mark, digit, underscore."""
    return (
        character.isalnum()
        or character == "_"
        or unicodedata.category(character).startswith("M")
        or character in "\u200c\u200d"
    )


def _is_unspaced(character: str) -> bool:
    if character < "\u0e00":
        return False
    return unicodedata.name(character, "").startswith(_UNSPACED)
