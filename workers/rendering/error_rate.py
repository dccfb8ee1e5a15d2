"""Compare what was heard in a rendering with what it should say; no transcriber is needed here.

Case, marks, apostrophes and the ways to write a number do not count. Texts of scripts that put no
blanks between words are compared letter by letter, all others word by word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from synth.text.spelling.speller import speller

_TAG = re.compile(r"<\|[^|>]*\|>|\[[^\[\]]*\]")
_APOSTROPHES = re.compile("['\u2019\u02bc\uff07]")
_BLANKLESS = ("CJK ", "HIRAGANA ", "KATAKANA ", "THAI ", "LAO ", "KHMER ", "MYANMAR ", "TIBETAN ")
_MOST_TIMES = 3  # as long as the text: what is heard beyond it makes nothing more certain
_SPARE_TOKENS = 20


def error_rate(expected: str, heard: str, *, language: str = "") -> float | None:
    """Return errors per word, or per letter, of the expected text: 0 where all of it was heard.

    More may be heard than there is, so that it may be above 1. None where nothing is to be said,
    such as for a text of cues alone.

    Args:
        language: a tag such as `en`; numbers of languages with rules are spelled out on both sides.
    """
    wanted = _words(_TAG.sub(" ", expected), language)
    found = _words(heard, language)
    if not wanted:
        return None
    if _is_blankless("".join(wanted)):
        wanted, found = list("".join(wanted)), list("".join(found))
    found = found[: _MOST_TIMES * len(wanted) + _SPARE_TOKENS]
    return _distance(wanted, found) / len(wanted)


def _words(text: str, language: str) -> list[str]:
    """Return the words that count, in one spelling."""
    spelled = _spell_out(unicodedata.normalize("NFKC", text), language)
    plain = _APOSTROPHES.sub("", spelled.casefold())
    kept = (letter if unicodedata.category(letter)[0] in "LMN" else " " for letter in plain)
    return "".join(kept).split()


def _spell_out(text: str, language: str) -> str:
    spell = speller(language) if language else None
    if spell is None:
        return text
    for start, end, said in sorted(spell(text), reverse=True):
        text = f"{text[:start]}{said}{text[end:]}"
    return text


def _is_blankless(text: str) -> bool:
    """Say whether half of the letters are of scripts that are written without blanks."""
    letters = [letter for letter in text if unicodedata.category(letter)[0] == "L"]
    return 2 * sum(map(_has_no_blanks, letters)) > len(letters)


@lru_cache(maxsize=4096)
def _has_no_blanks(letter: str) -> bool:
    return unicodedata.name(letter, "").startswith(_BLANKLESS)


def _distance(wanted: Sequence[str], found: Sequence[str]) -> int:
    """Return how many insertions, deletions and replacements lead from one to the other."""
    row = list(range(len(found) + 1))
    for number, one in enumerate(wanted, 1):
        diagonal, row[0] = row[0], number
        for place, other in enumerate(found, 1):
            best = min(row[place] + 1, row[place - 1] + 1, diagonal + (one != other))
            diagonal, row[place] = row[place], best
    return row[-1]
