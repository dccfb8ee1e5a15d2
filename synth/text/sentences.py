"""Find the sentences of a paragraph, and cut those that are too long for one piece.

Sentences are those of sentencex, repaired where it cuts too early. What is too long is cut at
clauses, then at blanks, then between characters.
"""

# ruff: noqa: RUF001  # look-alikes of ASCII are what texts are written in

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator

import sentencex

from synth.text.languages import base_of
from synth.text.normalise import is_speakable
from synth.text.pauses import DEFAULT_PAUSES, Pauses

# They end a sentence. Latin and Indic ones do so before a blank, full-width ones anywhere.
SPACED_ENDS = ".!?…।؟۔"
FULL_WIDTH_ENDS = "。！？"
SPACED_CLAUSE_ENDS = ";:"
FULL_WIDTH_CLAUSE_ENDS = "；："
SPACED_COMMAS = ",،"
FULL_WIDTH_COMMAS = "、，"
DASHES = "—–"

SENTENCE_ENDS = SPACED_ENDS + FULL_WIDTH_ENDS
# A line that ends like this is complete: no heading, and not wrapped by its column.
LINE_ENDS = SENTENCE_ENDS + SPACED_CLAUSE_ENDS + FULL_WIDTH_CLAUSE_ENDS
COMMAS = SPACED_COMMAS + FULL_WIDTH_COMMAS

BRACKET_CLOSERS = "」』）)】〉》］]}"  # what can only close; quotes may as well open
CLOSERS = "\"'”’»«›‹" + BRACKET_CLOSERS

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
    base = base_of(language) or "en"
    # A text written without capitals says nothing by a small letter.
    has_capitals = any(character.isupper() for character in text)
    sentences: list[list[str]] = []  # each as its fragments: joining as we go would be quadratic
    is_open = True  # no letter or digit yet in the last sentence
    for fragment in _fragments(text, base):
        rest = fragment
        if sentences and fragment[:1] in BRACKET_CLOSERS:  # they belong to the sentence before
            rest = fragment.lstrip(BRACKET_CLOSERS).lstrip()
            sentences[-1].append(fragment[: len(fragment) - len(rest)])
        if not rest:
            continue
        is_said = is_speakable(rest)
        goes_on = sentences and (
            is_open
            or not is_said
            or _cut_too_early("".join(sentences[-1][-2:]), rest, base, has_capitals=has_capitals)
        )
        if goes_on:
            sentences[-1].append(rest)
        else:
            sentences.append([rest])
        is_open = not is_said and (is_open or not goes_on)
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


def _cut_too_early(left: str, right: str, language: str, *, has_capitals: bool) -> bool:
    """Say whether the sentence that ends with `left` goes on with `right`."""
    end, first = left.rstrip(), right.lstrip()[0]
    # A closed quote goes on with its sentence: `she said`, `と言った`.
    if end[-1] in CLOSERS and (first.islower() or "\u3041" <= first <= "\u309f"):
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


MIN_SHARE = 0.35  # a cut earlier in the limit leaves a piece too short to speak well

# Where to cut, best first, and the name of the pause there. Latin marks count only before a blank,
# so that 3.14, 1,000, 12:30 and addresses stay whole; full-width marks stand without one.
_CLOSING = f"[{re.escape(CLOSERS)}]*"


def _after(spaced: str, full_width: str) -> re.Pattern[str]:
    """Return what finds the marks and the quotes that they end."""
    return re.compile(f"[{re.escape(spaced)}]{_CLOSING}(?= )|[{re.escape(full_width)}]{_CLOSING}")


_BLANK = re.compile(r" ")
_PLACES = (
    (_after(SPACED_ENDS, FULL_WIDTH_ENDS), "sentence"),
    (_after(SPACED_CLAUSE_ENDS, FULL_WIDTH_CLAUSE_ENDS), "phrase"),
    (_after(SPACED_COMMAS + DASHES, FULL_WIDTH_COMMAS), "phrase"),
    (re.compile(r" (?=[(\[])"), "phrase"),
    (_BLANK, "word"),
)
_ZWJ = "\u200d"
_VIRAMA_CLASS = 9  # a consonant after a virama is written into the same character
_JAMO = re.compile("[\u1100-\u11ff\uac00-\ud7a3]")
_MODIFIER = re.compile("[\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]")  # skin, regional flags


def cut_long(
    text: str,
    start: int,
    end: int,
    max_chars: int,
    pauses: Pauses = DEFAULT_PAUSES,
    *,
    inside: Callable[[int], bool] = lambda place: False,
) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, pause after it in ms) of each part of text[start:end].

    Each part has at most `max_chars` characters, and they are cut where they come out even. The
    last part's pause is that of a sentence.

    Args:
        inside: says of a place that a cut there would divide what belongs together; it is done
            only where that is longer than a part by itself.
    """
    while end - start > max_chars:
        cut, pause = _best_cut(text, start, end, max_chars, inside)
        yield start, cut, getattr(pauses, pause) if pause else 0
        start = cut
        while text[start] == " ":
            start += 1
    yield start, end, pauses.sentence


def _best_cut(
    text: str, start: int, end: int, max_chars: int, inside: Callable[[int], bool]
) -> tuple[int, str]:
    """Return the best place to end the part that begins at `start`, and its pause's name."""
    parts = -(-(end - start) // max_chars)
    even = start + (end - start) / parts
    lowest, highest = start + max(1, int(max_chars * MIN_SHARE)), start + max_chars
    for pattern, pause in _PLACES:
        for place in _places(text, pattern, lowest, highest, end, even):
            if not inside(place):
                return place, pause
    # What belongs together fills the rest of the part: then the part ends before it.
    for place in _places(text, _BLANK, start + 1, lowest - 1, end, even):
        if not inside(place):
            return place, "word"
    place = _character_end(text, start, highest, inside)
    blanks = _places(text, _BLANK, lowest, highest, end, even) if inside(place) else []
    return (blanks[0], "word") if blanks else (place, "")  # inside a word: no pause


def _places(
    text: str, pattern: re.Pattern[str], lowest: int, highest: int, end: int, even: float
) -> list[int]:
    """Return where a part may end by a pattern, the places nearest to `even` first."""
    # One character further, for the blank that a mark must stand before.
    found = pattern.finditer(text, lowest - 1, min(end, highest + 1))
    ends = [match.start() if match[0] == " " else match.end() for match in found]
    return sorted(
        (place for place in ends if lowest <= place <= highest), key=lambda one: abs(one - even)
    )


def _character_end(text: str, start: int, highest: int, inside: Callable[[int], bool]) -> int:
    """Return the last place up to `highest` that is not inside a written character, or a number.

    What is longer than a whole part is cut all the same: the limit is what protects memory.
    """
    between = [
        place for place in range(highest, start, -1) if not is_inside_character(text, place, start)
    ]
    apart = next((place for place in between if not inside(place)), None)
    return apart or (between[0] if between else highest)


def is_inside_character(text: str, place: int, start: int = 0) -> bool:
    """Say whether a cut at `place` would part a letter from its marks, or one emoji in two.

    `start` is a place that is known to be between characters.
    """
    if not start < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if "\U0001f1e6" <= after <= "\U0001f1ff":
        first = place  # where the flag letters that end at the place begin: two make one flag
        while first > start and "\U0001f1e6" <= text[first - 1] <= "\U0001f1ff":
            first -= 1
        return (place - first) % 2 == 1 or before == _ZWJ
    return (
        unicodedata.category(after).startswith("M")
        or _ZWJ in (before, after)
        or after == "\u200c"
        or (unicodedata.combining(before) == _VIRAMA_CLASS and after.isalpha())
        or _MODIFIER.match(after) is not None
        or (_JAMO.match(before) is not None and "\u1160" <= after <= "\u11ff")
    )
