"""Find the sentences of a paragraph: sentencex, and repairs where it cuts too early."""

from __future__ import annotations

import re
from collections.abc import Iterator

import sentencex

from synth.text.marks import BRACKET_CLOSERS, CLOSERS
from synth.text.normalise import is_speakable

# Fragments that end like this go on with what follows, whatever its first letter.
_INITIAL = re.compile(r"(?:^|[\s(“\"])[^\W\d_]\.$")  # J. K. Rowling, M. Dupont, z. B.
_ABBREVIATIONS = {
    "en": "vol fig figs no nos ch pp rev gen capt lt sgt col hon prof approx est vs messrs mt",
    "de": "nr bd abb hr fr prof dr ca bzw vgl geb str inkl evtl",
    "fr": "mm mme mmes mlle mlles mgr vol chap fig env av éd",
    "es": "sr sra srta dr dra ud uds pág núm vol cap av avda",
    "it": "sig sigg sigra dott prof ing avv pag vol cap",
    "pt": "sr sra dr dra prof profa pág núm vol cap av",
}
_LIST_NUMBER = re.compile(r"^\(?\d{1,3}[.)]$")  # `2.` at the start of an item
_WINDOW_CHARS = 4000
_ELLIPSIS = re.compile(r"(?:\.{2,}|…)$")


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Cut one paragraph into sentences whose join is the paragraph again.

    Args:
        text: one paragraph, with its blanks collapsed to single spaces.
        language: a tag such as `en` or `pt-BR`; an unknown one is cut by general rules.
    """
    base = language.partition("-")[0].lower() or "en"
    # A text written without capitals says nothing by a small letter.
    has_capitals = any(character.isupper() for character in text)
    sentences: list[list[str]] = []  # each as its fragments: joining as we go would be quadratic
    is_open = True  # no letter or digit yet in the last sentence
    for fragment in _fragments(text, base):
        moved, rest = _leading_closers(fragment) if sentences else ("", fragment)
        if moved:
            sentences[-1].append(moved)
        if not rest:
            continue
        goes_on = sentences and (
            is_open
            or not is_speakable(rest)
            or _cut_too_early("".join(sentences[-1][-2:]), rest, base, has_capitals=has_capitals)
        )
        if goes_on:
            sentences[-1].append(rest)
            is_open = is_open and not is_speakable(rest)
        else:
            sentences.append([rest])
            is_open = not is_speakable(rest)
    return ["".join(fragments) for fragments in sentences]


def _fragments(text: str, language: str) -> Iterator[str]:
    """Yield what sentencex takes for sentences, looking at a few thousand characters at a time.

    Its time grows with the square of the text where there are many quotes.
    """
    start, carried = 0, ""
    while start < len(text):
        window = text[start : start + _WINDOW_CHARS]
        start += len(window)
        first, *others = sentencex.segment(language, window)
        found = [carried + first, *others]
        carried = ""
        if start < len(text):  # the last one may go on beyond the window
            carried = found.pop()
            if found:
                start, carried = start - len(carried), ""
        yield from found
    if carried:
        yield carried


def _leading_closers(fragment: str) -> tuple[str, str]:
    """Split off closing brackets that belong to the sentence before."""
    rest = fragment.lstrip(BRACKET_CLOSERS)
    if rest == fragment:
        return "", fragment
    rest = rest.lstrip()
    return fragment[: len(fragment) - len(rest)], rest


def _cut_too_early(left: str, right: str, language: str, *, has_capitals: bool) -> bool:
    """Say whether the sentence that ends with `left` goes on with `right`."""
    end, first = left.rstrip(), right.lstrip()[0]
    if end[-1] in CLOSERS and _continues_quote(first):
        return True
    bare = end.rstrip(CLOSERS)
    if _ELLIPSIS.search(bare):
        return first.islower()
    if not bare.endswith("."):
        return False
    last_word = bare.rsplit(maxsplit=1)[-1]
    return (
        _INITIAL.search(bare) is not None
        or _LIST_NUMBER.match(bare) is not None
        or last_word[:-1].lower() in _ABBREVIATIONS.get(language, "").split()
        or (has_capitals and first.islower())
    )


def _continues_quote(first: str) -> bool:
    """Say whether what follows a closed quote goes on with its sentence: `she said`, `と言った`."""
    return first.islower() or "\u3041" <= first <= "\u309f"
