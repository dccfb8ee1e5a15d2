"""Find the words that a synthesiser says in the text that it was given."""

from __future__ import annotations

import re
from collections.abc import Sequence

Place = tuple[int, int]  # the first letter in the text, and the number of letters

_TOKEN = re.compile(r"[A-Za-z0-9]+(?:'[A-Za-z]+)*")
# What flite says for a token that it does not say as it is written.
_SAID: dict[str, tuple[tuple[str, ...], ...]] = {
    "mr": (("mister",),),
    "mrs": (("missus",),),
    "dr": (("doctor",), ("drive",)),
    "st": (("saint",), ("street",)),
    "read": (("red",), ("reed",)),
    "lead": (("led",), ("leed",)),
}


def align_words(text: str, words: Sequence[str]) -> list[Place] | None:
    """Return for each word its first letter in the text and its number of letters.

    Args:
        text: ASCII, without digits.
        words: as flite names them, in order: in small letters without punctuation; "it's" may be
            "it" and "'s", and "BBC" may be "b", "b" and "c".

    Returns:
        A place for each word; None where words and text do not belong together.
    """
    letters = [(place, letter.lower()) for place, letter in enumerate(text) if letter.isalnum()]
    tokens = {
        match.start(): "".join(filter(str.isalnum, match[0].lower()))
        for match in _TOKEN.finditer(text)
    }
    found: list[Place] = []
    at = 0
    while len(found) < len(words):
        word = _letters_of(words[len(found)])
        part = letters[at : at + len(word)]
        if word and "".join(letter for _, letter in part) == word:
            first = part[0][0]
            # The mark belongs to "'s", not to what stands before it.
            first -= words[len(found)].startswith("'") and text[first - 1 : first] == "'"
            found.append((first, part[-1][0] + 1 - first))
            at += len(word)
            continue
        token = tokens.get(letters[at][0], "") if at < len(letters) else ""
        count = _count_said(token, words[len(found) :])
        if not count:
            return None
        first, last = letters[at][0], letters[at + len(token) - 1][0]
        found += [(first, last + 1 - first)] * count
        at += len(token)
    return found if at == len(letters) else None


def _count_said(token: str, words: Sequence[str]) -> int:
    """Return how many of the next words are what is said for a token, 0 if they are not."""
    for said in _SAID.get(token, ()):
        if tuple(map(_letters_of, words[: len(said)])) == said:
            return len(said)
    return 0


def _letters_of(word: str) -> str:
    return "".join(filter(str.isalnum, word.lower()))
