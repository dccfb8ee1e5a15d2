"""Tell what somebody should look at before a book is rendered."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from synth.books.plan import Plan

LONG_PARAGRAPH_CHARS = 5000
SHORT_CHAPTER_CHARS = 30
_ODD_CATEGORIES = frozenset({"Cc", "Cn", "Co", "Cs"})
_MAX_SHOWN = 10
_TAG = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*\Z")
_UNKNOWN = frozenset({"und", "zxx", "mul", "mis", "un"})


def warnings_of(plan: Plan) -> Iterator[str]:
    """Yield warnings about what is spoken, each a sentence."""
    yield from _of_characters(plan)
    yield from _of_languages(plan)
    for chapter in plan.included:
        spoken = list(chapter.spoken())
        longest = max((len(block.text) for block in spoken), default=0)
        if longest > LONG_PARAGRAPH_CHARS:
            yield (
                f"{chapter.title!r} has a paragraph of {longest} characters; it is cut at its "
                "sentences, or at blanks where there are none."
            )
        if sum(len(block.text) for block in spoken) < SHORT_CHAPTER_CHARS:
            yield f"{chapter.title!r} is very short; merge it with its neighbour or exclude it."
    if not plan.included:
        yield "No chapter is included: there is nothing to render."


def _of_characters(plan: Plan) -> Iterator[str]:
    odd: Counter[str] = Counter()
    for chapter in plan.included:
        for block in chapter.spoken():
            if not block.text.isascii():
                odd.update(c for c in block.text if c == "\ufffd" or _is_odd(c))
            elif not block.text.isprintable():
                odd.update(c for c in block.text if _is_odd(c))
    if odd:
        shown = ", ".join(f"U+{ord(c):04X} ({n})" for c, n in odd.most_common(_MAX_SHOWN))
        yield f"There are characters that are no text, perhaps of a wrong encoding: {shown}."


def _is_odd(character: str) -> bool:
    return unicodedata.category(character) in _ODD_CATEGORIES


def _of_languages(plan: Plan) -> Iterator[str]:
    languages = {chapter.language for chapter in plan.included}
    if "" in languages:
        yield "The book does not say in which language it is; set it before rendering."
    for language in sorted(languages - {""}):
        if not _TAG.match(language) or language.lower().partition("-")[0] in _UNKNOWN:
            yield f"The language {language!r} is none that is known; set it before rendering."
