"""Put what is said in place of what is written, piece by piece; what is written stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from synth.text.normalise import TextRejectedError, is_speakable
from synth.text.pauses import DEFAULT_PAUSES, Pauses
from synth.text.replacing import Change, Layer
from synth.text.rules import Budget
from synth.text.segments import Piece
from synth.text.sentences import cut_long
from synth.text.speller import places_inside

# What is spoken may be longer than what is written, within reason: it is stored and rendered.
MAX_GROWTH = 10
MIN_SPOKEN_CHARS = 10_000
_SPEAKER_TAG = re.compile(r"<\|speaker:\d+\|>")
SPELLED = "normalise"  # names what spelling out has changed, where others have a lexicon's name


@dataclass(frozen=True, slots=True)
class SpokenPiece(Piece):
    """Hold a piece and what in it is spoken otherwise; changes count from the start of `text`."""

    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Speech:
    """Hold how one speaker's words are spoken: layers, first ones first, then spelling out."""

    layers: Sequence[Layer] = ()
    spell_out: Callable[[str], Iterable[tuple[int, int, str]]] | None = None
    language: str = ""  # says what belongs together where a piece is cut again

    def changes(self, text: str, budget: Budget) -> list[Change]:
        """Return the changes of a text in order; none overlap.

        Raises:
            TooSlowError: the time is used up.
        """
        found: list[Change] = []
        for layer in self.layers:
            found += list(layer.find(text, found, budget))
        if self.spell_out is not None:
            for start, end, said in self.spell_out(text):
                if not any(start < other.end and other.start < end for other in found):
                    found.append(Change(start, end, said, SPELLED))
        return sorted(found, key=lambda change: change.start)


def respeak(
    pieces: Sequence[Piece],
    speech_of: Callable[[int], Speech],
    *,
    max_chars: int,
    budget: Budget,
    pauses: Pauses = DEFAULT_PAUSES,
) -> list[Piece]:
    """Return the pieces as they are spoken; those without a change are returned as they came.

    A piece that has grown beyond `max_chars` is cut again. One that has nothing left to speak is
    dropped: its text joins a neighbour's, and of both pauses the longer one stays.

    Args:
        speech_of: returns how a speaker's words are spoken.
        budget: seconds for finding.
        pauses: how long the silence is where a piece is cut again.

    Raises:
        TextRejectedError: text_unspeakable, nothing is left at all; spoken_too_long;
            spoken_invalid, a speaker's tag would be spoken.
        TooSlowError: the time is used up.
    """
    allowed = max(MIN_SPOKEN_CHARS, MAX_GROWTH * sum(len(piece.spoken_text) for piece in pieces))
    spoken: list[Piece] = []
    for piece in pieces:
        speech = speech_of(piece.speaker)
        changes = speech.changes(piece.spoken_text, budget)
        parts = _apply_changes(piece, changes, max_chars, pauses, speech) if changes else [piece]
        allowed -= sum(len(part.spoken_text) for part in parts)
        if allowed < 0:
            raise TextRejectedError(
                "spoken_too_long",
                f"With the lexicons applied, the spoken text is more than {MAX_GROWTH} "
                "times as long as the text. Make the entries' replacements shorter.",
            )
        spoken += parts
    return _join_silent(spoken)


def _apply_changes(
    piece: Piece, changes: Sequence[Change], max_chars: int, pauses: Pauses, speech: Speech
) -> list[Piece]:
    """Return a piece with its changes, in as many parts as its length asks for."""
    said, origins, spelled = _apply(piece.spoken_text, changes)
    if _SPEAKER_TAG.search(said):  # put together of a group and what stands beside it
        raise TextRejectedError(
            "spoken_invalid",
            "A lexicon's replacement contains a speaker tag; only the text itself may "
            "contain such tags.",
        )
    offset = max(0, piece.text.rfind(piece.spoken_text))
    is_number = places_inside(said, speech.language)  # as such; the others were spelled out

    def inside(place: int) -> bool:
        return any(start < place < end for start, end in spelled) or is_number(place)

    spans = list(cut_long(said, 0, len(said), max_chars, pauses, inside=inside))
    parts: list[Piece] = []
    begin = 0  # in the piece's text
    for number, (start, end, pause_ms) in enumerate(spans, 1):
        is_last = number == len(spans)
        finish = len(piece.text) if is_last else offset + origins[end - 1]
        text = piece.text[begin:finish]
        blanks = len(text) - len(text.lstrip()) if len(spans) > 1 else 0
        own = [
            change
            for change in changes
            if begin <= offset + change.start and (is_last or offset + change.start < finish)
        ]
        parts.append(
            SpokenPiece(
                text=text.strip() if len(spans) > 1 else text,
                spoken_text=said[start:end].rstrip(),
                pause_after_ms=piece.pause_after_ms if is_last else pause_ms,
                speaker=piece.speaker,
                changes=_move(own, offset - begin - blanks),
            )
        )
        begin = finish
    return parts


def _move(changes: Iterable[Change], by: int) -> tuple[Change, ...]:
    return tuple(replace(one, start=one.start + by, end=one.end + by) for one in changes)


def _apply(text: str, changes: Sequence[Change]) -> tuple[str, list[int], list[tuple[int, int]]]:
    """Return what is said, with single blanks, and for each character where its source ends.

    Last come the places of what was spelled out.
    """
    letters: list[str] = []
    origins: list[int] = []
    spelled: list[tuple[int, int]] = []

    def add(said: str, ends: Iterable[int]) -> None:
        for letter, end in zip(said, ends, strict=True):
            if letter == " " and (not letters or letters[-1] == " "):
                continue
            letters.append(letter)
            origins.append(end)

    place = 0
    for change in changes:
        add(text[place : change.start], range(place + 1, change.start + 1))
        first = len(letters)
        add(change.said, [change.end] * len(change.said))
        if change.by == SPELLED:
            spelled.append((first, len(letters)))
        place = change.end
    add(text[place:], range(place + 1, len(text) + 1))
    while letters and letters[-1] == " ":
        letters.pop()
        origins.pop()
    return "".join(letters), origins, spelled


def _join_silent(pieces: Sequence[Piece]) -> list[Piece]:
    """Give the texts of pieces that have nothing to speak to a neighbour.

    Raises:
        TextRejectedError: text_unspeakable, there is no other piece.
    """
    kept: list[Piece] = []
    before = ""  # the first piece that is spoken
    for piece in pieces:
        if is_speakable(piece.spoken_text):
            kept.append(_prepend(piece, before) if before else piece)
            before = ""
        elif kept:
            pause_ms = max(kept[-1].pause_after_ms, piece.pause_after_ms)
            text = _join(kept[-1].text, piece.text)
            kept[-1] = replace(kept[-1], text=text, pause_after_ms=pause_ms)
        else:
            before = _join(before, piece.text)
    if not kept:
        raise TextRejectedError(
            "text_unspeakable", "With the lexicons applied, no letter or digit is left to speak."
        )
    if kept[-1].pause_after_ms:
        kept[-1] = replace(kept[-1], pause_after_ms=0)
    return kept


def _prepend(piece: Piece, before: str) -> Piece:
    text = _join(before, piece.text)
    if not isinstance(piece, SpokenPiece):
        return replace(piece, text=text)
    moved = _move(piece.changes, len(text) - len(piece.text))
    return replace(piece, text=text, changes=moved)


def _join(*texts: str) -> str:
    return " ".join(text for text in texts if text)
