"""Show how a text would be spoken: the code of submitting, without a row or a sound."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import AbstractBaseUser

from synth.jobs.planning import Order, Planner
from synth.lexicons.book import LexiconBook
from synth.text.respeaking import SpokenPiece
from synth.text.segments import Piece
from synth.text.spelling.words import WORDS, has_rules

_LETTERS_PER_SECOND = 14.0  # read aloud in most alphabets, short pauses included
_FULL_WIDTH = "\u2e80"  # an ideograph, a syllable of Kana or Hangul takes as long as some letters
_LETTERS_OF_FULL_WIDTH = 2.5


@dataclass(frozen=True)
class Preview:
    """Hold what a job would speak."""

    language: str
    pieces: list[Piece]
    warnings: list[str]

    @property
    def characters(self) -> int:
        """Return how many characters would be spoken."""
        return sum(len(piece.spoken_text) for piece in self.pieces)

    @property
    def estimated_seconds(self) -> float:
        """Return about how long the audio would be at a usual pace, pauses included."""
        letters = sum(map(_letters, self.pieces))
        pauses_ms = sum(piece.pause_after_ms for piece in self.pieces)
        return round(letters / _LETTERS_PER_SECOND + pauses_ms / 1000, 1)


def preview_order(order: Order, *, owner: AbstractBaseUser | None) -> Preview:
    """Return how an order's text would be spoken; nothing is written.

    Raises:
        SubmitRejectedError: as submitting does.
    """
    planned = Planner(owner).plan_text(order)
    warnings = []
    if order.normalise and not has_rules(planned.language):
        known = ", ".join(sorted(WORDS))
        warnings.append(
            "Numbers are not spelled out: there are no rules for the language "
            f"{planned.language!r}, only for {known}."
        )
    if not order.voice and not order.voices:
        warnings.append("No voice is given, so the lexicons of voices are not applied.")
    return Preview(planned.language, planned.pieces, warnings)


def preview_lexicons(order: Order, *, owner: AbstractBaseUser | None) -> Preview:
    """Return what the lexicons and entries of an order alone would change in its text.

    Raises:
        SubmitRejectedError: as submitting does, of what concerns text and lexicons.
    """
    planner, book = Planner(owner), LexiconBook(owner)
    cut = planner.cut_text(order, {})
    layers = book.first_layers(order.lexicon, order.lexicons, cut.language)
    pieces = book.speak_by(cut.pieces, layers, max_chars=planner.card.segment_chars)
    return Preview(cut.language, pieces, [])


def changes_of(piece: Piece) -> list[dict[str, object]]:
    """Return what is spoken otherwise in a piece; `start` counts from the start of its text."""
    if not isinstance(piece, SpokenPiece):
        return []
    return [
        {
            "found": piece.text[change.start : change.end],
            "said": change.said,
            "by": change.by,
            "start": change.start,
        }
        for change in piece.changes
    ]


def _letters(piece: Piece) -> float:
    return sum(
        _LETTERS_OF_FULL_WIDTH if character >= _FULL_WIDTH else 1.0
        for character in piece.spoken_text
    )
