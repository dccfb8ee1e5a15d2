"""Cut a text into pieces, one per engine call, with the pause that each cut implies.

Of a text that is still being written, sentences are given out as soon as they are whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from synth.text.normalise import TextRejectedError, is_speakable
from synth.text.pauses import DEFAULT_PAUSES, Pauses
from synth.text.sentences import (
    CLOSERS,
    COMMAS,
    LINE_ENDS,
    SENTENCE_ENDS,
    cut_long,
    split_sentences,
)
from synth.text.speller import places_inside

# A model speaks one or two words badly on their own, so they join a neighbour.
TINY_CHARS = 25
HEADING_CHARS = 80
WRAPPED_CHARS = 50  # a line this long without an end mark was broken by its column, not its author

MAX_SPEAKER = 9999  # stands for every larger number; far more speakers than any job has
SPEAKER_TAG = re.compile(r"<\|speaker:(\d+)\|>")
_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")
_LIST_ITEM = re.compile(r"[-*•‣–—] |\(?[0-9]{1,3}[.)] ")  # noqa: RUF001  # dashes begin items


@dataclass(frozen=True, slots=True)
class Piece:
    """Hold one piece: what the text says and what is spoken of it.

    `text` keeps every non-blank character of the input, blanks collapsed. `spoken_text` is without
    speaker tags and ornament lines, and has at most the asked number of characters. The last
    piece has no pause after it.
    """

    text: str
    spoken_text: str
    pause_after_ms: int
    speaker: int = 0


class _Part(NamedTuple):
    """A piece and whether a paragraph ends with it; what it speaks may be an ornament."""

    piece: Piece
    ends_paragraph: bool


class _Span(NamedTuple):
    """A part of a block: text[start:end], and the pause after it."""

    start: int
    end: int
    pause_ms: int

    @property
    def is_tiny(self) -> bool:
        return self.end - self.start < TINY_CHARS


def cut_text(
    text: str,
    *,
    max_chars: int,
    language: str = "en",
    pauses: Pauses = DEFAULT_PAUSES,
    speaker: int = 0,
) -> list[Piece]:
    """Cut a cleaned text by paragraphs, lines, speakers, sentences and size.

    One sentence makes one piece: text put in elsewhere then leaves a piece, and so its take, as it
    is. Tiny sentences join a neighbour of their paragraph; a sentence over `max_chars` is cut at
    its clauses, then at blanks, then between written characters. Numbers, dates, times and sums
    stay whole wherever they are not longer than a piece.

    Args:
        text: as `clean_text` returns it.
        max_chars: most characters of a piece's spoken text, 1 or more.
        language: the tag of the text's language.
        pauses: how long the silence after each cut is; nothing else depends on them.
        speaker: who speaks before the first tag.

    Raises:
        TextRejectedError: `text_unspeakable`, there is no letter and no digit in the text.
    """
    if max_chars < 1:
        raise ValueError(f"max_chars is {max_chars}; it must be 1 or more")
    if not is_speakable(SPEAKER_TAG.sub("", text)):
        raise TextRejectedError(
            "text_unspeakable", "The text has no letter or digit, so there is nothing to speak."
        )
    pieces = _absorb_ornaments(_parts(text, max_chars, language, pauses, speaker), pauses)
    pieces[-1] = replace(pieces[-1], pause_after_ms=0)
    return pieces


def _parts(
    text: str, max_chars: int, language: str, pauses: Pauses, speaker: int
) -> Iterator[_Part]:
    """Yield the pieces in order; those of ornaments have nothing to speak yet."""
    for block, block_pause, ends_paragraph in _blocks(text, pauses):
        turns = list(_turns(block, speaker))
        for number, (tag, speaker, said) in enumerate(turns, 1):
            ends_block = number == len(turns)
            spans = _spans(said, max_chars, language, pauses)
            for place, (start, end, pause_ms) in enumerate(spans, 1):
                ends_turn = place == len(spans)
                if ends_turn:
                    pause_ms = block_pause if ends_block else pauses.speaker
                spoken = said[start:end]
                piece = Piece(tag + spoken if place == 1 else spoken, spoken, pause_ms, speaker)
                yield _Part(piece, ends_turn and ends_block and ends_paragraph)
            if not spans and tag:
                yield _Part(Piece(tag, "", 0, speaker), ends_paragraph=False)


def _blocks(text: str, pauses: Pauses) -> Iterator[tuple[str, int, bool]]:
    """Yield headings, lines and paragraphs: text with blanks collapsed, the pause after it, and
    whether a paragraph ends with it.
    """
    paragraphs = [part for part in _PARAGRAPH_BREAK.split(text) if part.strip()]
    for number, paragraph in enumerate(paragraphs, 1):
        *lines, last = _unwrap(paragraph)
        yield from ((line, pauses.line, False) for line in lines)
        is_heading = not lines and number < len(paragraphs) and _looks_like_heading(last)
        yield last, pauses.heading if is_heading else pauses.paragraph, True


def _unwrap(paragraph: str) -> list[str]:
    """Return the lines of a paragraph, joined where a line end only wraps a sentence."""
    lines: list[list[str]] = []
    for raw in paragraph.split("\n"):
        line = " ".join(raw.split())
        if line and lines and _goes_on(lines[-1][-1], line):
            lines[-1].append(line)
        elif line:
            lines.append([line])
    return [" ".join(parts) for parts in lines]


def _goes_on(line: str, following: str) -> bool:
    """Say whether the line end after `line` is there for the width of a page alone."""
    if _LIST_ITEM.match(following):
        return False
    if len(line) >= WRAPPED_CHARS:
        return True
    end = line.rstrip(CLOSERS)[-1:] or line[-1]
    return end in COMMAS or (end not in LINE_ENDS and following[0].islower())


def _looks_like_heading(line: str) -> bool:
    end = line.rstrip(CLOSERS)[-1:]
    is_complete = end in LINE_ENDS + COMMAS
    return len(line) <= HEADING_CHARS and is_speakable(line) and not is_complete


def _turns(text: str, speaker: int) -> Iterator[tuple[str, int, str]]:
    """Yield (tag, speaker, what is said) for each speaker tag; no tag goes on with `speaker`."""
    parts = SPEAKER_TAG.split(text)
    if parts[0].strip() or len(parts) == 1:
        yield "", speaker, parts[0].strip()
    tags = SPEAKER_TAG.findall(text)
    for digits, said in zip(tags, parts[2::2], strict=True):
        number = int(digits) if len(digits) <= 4 else MAX_SPEAKER
        yield f"<|speaker:{digits}|>", number, said.strip()


def _spans(text: str, max_chars: int, language: str, pauses: Pauses) -> list[_Span]:
    """Return the sentences of a block, long ones cut, tiny ones joined."""
    spans: list[_Span] = []
    inside = places_inside(text, language)

    def add(start: int, end: int) -> None:
        end = start + len(text[start:end].rstrip())
        parts = cut_long(text, start, end, max_chars, pauses, inside=inside) if end > start else ()
        spans.extend(_Span(*part) for part in parts)

    start = place = 0
    for sentence in split_sentences(text, language):
        if place > start and not inside(place):
            add(start, place)
            start = place
        place += len(sentence)
    add(start, place)
    # A tiny one joins the next, or else the one before, where that fits.
    forward: list[_Span] = []
    for span in spans:
        _join_or_append(forward, span, max_chars, joins=bool(forward) and forward[-1].is_tiny)
    joined: list[_Span] = []
    for span in forward:
        _join_or_append(joined, span, max_chars, joins=bool(joined) and span.is_tiny)
    return joined


def _join_or_append(spans: list[_Span], span: _Span, max_chars: int, *, joins: bool) -> None:
    if joins and span.end - spans[-1].start <= max_chars:
        spans[-1] = span._replace(start=spans[-1].start)
    else:
        spans.append(span)


def _absorb_ornaments(parts: Iterable[_Part], pauses: Pauses) -> list[Piece]:
    """Give pieces without letters or digits to a neighbour's text; they are not spoken."""
    kept: list[Piece] = []
    texts: list[list[str]] = [[]]  # of each kept piece; the first starts before it is found
    for piece, ends_paragraph in parts:
        if is_speakable(piece.spoken_text):
            if kept:
                texts.append([])
            kept.append(piece)
        elif kept:
            pause_ms = max(kept[-1].pause_after_ms, piece.pause_after_ms)
            if piece.spoken_text and ends_paragraph:  # on a line of its own
                pause_ms = pauses.scene
            kept[-1] = replace(kept[-1], pause_after_ms=pause_ms)
        texts[-1].append(piece.text)
    return [replace(piece, text=" ".join(said)) for piece, said in zip(kept, texts, strict=True)]


# Without any end of a sentence this is cut at a blank: looking for an end takes time, and each
# piece of text is looked at together with what is unfinished.
MOST_UNFINISHED_CHARS = 2000
# Put behind a blank at the end to see whether a sentence would begin here: behind an abbreviation
# none does.
_PROBE = "Next"


@dataclass(frozen=True, slots=True)
class Passage:
    """Hold whole sentences that follow each other, and the pause in ms that is heard after them."""

    text: str
    pause_after_ms: int


class GrowingText:
    """Hold what was written and not given out yet.

    A sentence is whole when another one begins behind it, or would behind the blank after it, at
    the end of a paragraph, or at the end of the text; `3.` may go on as `3.14`.
    """

    def __init__(self, language: str = "") -> None:
        self._language = language
        self._whole: list[str] = []
        self._unfinished = ""

    @property
    def num_chars(self) -> int:
        """Return how many characters were not given out."""
        return sum(map(len, self._whole)) + len(self._unfinished)

    def add(self, text: str) -> None:
        *paragraphs, last = (self._unfinished + text).split("\n")
        for paragraph in paragraphs:
            self._whole.append(f"{paragraph}\n")
        *sentences, self._unfinished = self._sentences(last) or [""]
        self._whole += sentences
        if len(self._unfinished) > MOST_UNFINISHED_CHARS:
            cut = self._unfinished.rfind(" ", 1, MOST_UNFINISHED_CHARS) + 1
            cut = cut or MOST_UNFINISHED_CHARS
            self._whole.append(self._unfinished[:cut])
            self._unfinished = self._unfinished[cut:]

    def end_sentence(self) -> None:
        """Take what looks like a sentence's end for one: nothing has followed for a while."""
        bare = self._unfinished.rstrip().rstrip(CLOSERS)
        if bare.endswith(tuple(SENTENCE_ENDS)):
            self.end()

    def end(self) -> None:
        """Take what is left for whole."""
        self._whole.append(self._unfinished)
        self._unfinished = ""

    def take(self, *, most_chars: int | None = None) -> Passage | None:
        """Return whole sentences that were not given out; None where none can be spoken.

        Args:
            most_chars: what more sentences would exceed comes with the next call; at least
                `MOST_UNFINISHED_CHARS`, which one sentence may have.
        """
        count, num_chars = 0, 0
        for sentence in self._whole:
            num_chars += len(sentence)
            if most_chars is not None and count and num_chars > most_chars:
                break
            count += 1
        text, self._whole = "".join(self._whole[:count]), self._whole[count:]
        if not is_speakable(text):
            return self.take(most_chars=most_chars) if self._whole else None
        pauses = DEFAULT_PAUSES
        pause = pauses.paragraph if text.endswith("\n") else pauses.sentence
        return Passage(text.strip(), pause)

    def _sentences(self, text: str) -> list[str]:
        if not text.strip():
            return [text]
        language = self._language or "en"
        if text[-1].isspace():
            *found, probe = split_sentences(text + _PROBE, language)
            if probe == _PROBE:
                return [*found, ""]
        return split_sentences(text, language)
