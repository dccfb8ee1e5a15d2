"""Tell what somebody should look at before a book is rendered."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from synth.books.rules import SkipReason
from synth.text.languages import base_of
from ttsweb.counted import counted

if TYPE_CHECKING:
    from synth.books.plan import Plan

LONG_PARAGRAPH_CHARS = 5000
SHORT_CHAPTER_CHARS = 30
_ODD_CATEGORIES = frozenset({"Cc", "Cn", "Co", "Cs"})
_MAX_SHOWN = 10
_MAX_TITLE_CHARS = 40
_MAX_BEGINNING_CHARS = 30
_TAG = re.compile(r"[A-Za-z]{2,3}(?:-[A-Za-z0-9]{1,8})*\Z")
_UNKNOWN = frozenset({"und", "zxx", "mul", "mis", "un"})
# What accents and quotes of UTF-8 become where they were read as Windows-1252.
_MOJIBAKE = re.compile("[ÃÂ][\u0080-\u00bf]|â€[œ\u009d™˜“”¦]|Ã¢â‚¬")  # noqa: RUF001
_MIN_MOJIBAKE = 2
_MIN_HIDDEN_CHARS = 200  # fewer are titles and labels for machines


def warnings_of(plan: Plan) -> Iterator[str]:
    """Yield warnings about what is spoken, each a sentence that says where."""
    yield from _of_characters(plan)
    yield from _of_languages(plan)
    for chapter in plan.included:
        title = _shorten(chapter.title)
        spoken = list(chapter.spoken())
        longest = max((block.text for block in spoken), key=len, default="")
        if len(longest) > LONG_PARAGRAPH_CHARS:
            beginning = longest[:_MAX_BEGINNING_CHARS].rsplit(" ", 1)[0]
            yield (
                f"{title} has a paragraph of {len(longest)} characters ({beginning}…). It "
                "is cut between sentences, or at blanks if it has none."
            )
        if sum(len(block.text) for block in spoken) < SHORT_CHAPTER_CHARS:
            yield (
                f"{title} is very short; merge it with the chapter before or after it, or "
                "exclude it."
            )
    for path, (chars, text) in _count_hidden(plan).items():
        yield (
            f"{path} hides {counted(chars, 'character')} from its readers ({text}…). "
            "Include them in the plan if they belong to the book."
        )
    if not plan.included:
        yield "No chapter is included, so there is nothing to render."


def _count_hidden(plan: Plan) -> dict[str, tuple[int, str]]:
    """Return how much the files of a book hide, by their paths, and how it begins."""
    found: dict[str, tuple[int, str]] = {}
    for chapter in plan.chapters:
        for planned in chapter.blocks:
            if chapter.reason_of(planned) is SkipReason.HIDDEN:
                chars, text = found.get(planned.path, (0, ""))
                text = text or planned.block.text[:_MAX_TITLE_CHARS]
                found[planned.path] = (chars + planned.block.source_chars, text)
    return {path: one for path, one in found.items() if one[0] >= _MIN_HIDDEN_CHARS}


def _shorten(title: str) -> str:
    return repr(title if len(title) <= _MAX_TITLE_CHARS else f"{title[:_MAX_TITLE_CHARS]}…")


def _of_characters(plan: Plan) -> Iterator[str]:
    odd: dict[str, tuple[int, str]] = {}  # how often, and the chapter that it is first in
    garbled: dict[str, int] = {}
    for chapter in plan.included:
        for block in chapter.spoken():
            if block.text.isascii() and block.text.isprintable():
                continue
            for character in block.text:
                category = unicodedata.category(character)
                if character != "\ufffd" and category not in _ODD_CATEGORIES:
                    continue
                count, first = odd.get(character, (0, chapter.title))
                odd[character] = (count + 1, first)
            if found := len(_MOJIBAKE.findall(block.text)):
                garbled[chapter.title] = garbled.get(chapter.title, 0) + found
    if odd:
        most = sorted(odd.items(), key=lambda item: -item[1][0])[:_MAX_SHOWN]
        shown = ", ".join(
            f"U+{ord(character):04X} ({count}, first in {_shorten(title)})"
            for character, (count, title) in most
        )
        yield f"Some characters are not text, perhaps because of a wrong encoding: {shown}."
    if sum(garbled.values()) >= _MIN_MOJIBAKE:
        yield (
            f"{sum(garbled.values())} letters look as if they were read with a wrong "
            f"encoding ('Ã©' for 'é'), first in {_shorten(next(iter(garbled)))}. Look for a "
            "better file."
        )


def _of_languages(plan: Plan) -> Iterator[str]:
    found: dict[str, str] = {}  # the chapter in which each language is first
    for chapter in plan.included:
        found.setdefault(chapter.language, chapter.title)
        for block in chapter.spoken():
            if block.language:
                found.setdefault(block.language, chapter.title)
    if "" in found:
        yield "The book does not name its language; set the language before you start the book."
    for language in sorted(found.keys() - {""}):
        if not _TAG.match(language) or base_of(language) in _UNKNOWN:
            yield (
                f"The language {language!r}, first in {_shorten(found[language])}, is "
                "unknown; set the language before you start the book."
            )
