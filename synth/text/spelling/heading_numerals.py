"""Say the Roman numerals of headings: a chapter called X is the tenth, and no letter."""

from __future__ import annotations

from functools import lru_cache

import regex

from synth.text.spelling import numbers
from synth.text.spelling.romans import Pattern, roman_patterns, roman_value
from synth.text.spelling.speller import base_of, has_rules
from synth.text.spelling.words import WORDS

MOST_CHAPTERS = 200  # above it a heading such as MIX or CD is rather a word than a number
# Alone, or before the title that it counts; `I remember` and `X marks the spot` are sentences.
_COUNTS = regex.compile(r"^(?P<roman>[CLXVI]{1,9})(?=$|\.$|[.:] |\s?[—\u2013] )")


def say_numerals(heading: str, language: str) -> str:
    """Return a heading with its Roman numerals in words, else as it came.

    Args:
        language: a tag; of a language without rules for numbers nothing is changed.
    """
    if not has_rules(language):
        return heading
    found = _COUNTS.match(heading)
    if found is not None and 0 < (value := roman_value(found["roman"])) <= MOST_CHAPTERS:
        return numbers.counted(value, base_of(language)) + heading[found.end() :]
    for pattern, make in _patterns(base_of(language)):
        heading = pattern.sub(lambda match, make=make: make(match) or match[0], heading)
    return heading


@lru_cache(maxsize=16)
def _patterns(base: str) -> tuple[Pattern, ...]:
    return tuple(roman_patterns(base, WORDS[base]))
