"""Hold cuts to leave numbers, dates, times and sums whole, in every language with rules."""

from __future__ import annotations

import random

import pytest

from synth.text.pauses import DEFAULT_PAUSES
from synth.text.respeaking import Speech, respeak
from synth.text.rules import Budget
from synth.text.segments import Piece, cut_text
from synth.text.spelling.expressions import places_inside
from synth.text.spelling.speller import speller

EXPRESSIONS = {
    "en": (
        "3 May 2026", "May 3rd, 2026", "3:30 p.m.", "$3.5 million", "12 345 km", "1,234,567.89",
        "45 %", "-20 °C", "5/6/2026", "$3.50", "the 2nd", "3 of May",
    ),
    "de": (
        "3. Mai 2026", "14:30 Uhr", "3,5 Millionen €", "12 345 km", "1.234.567,89 €", "45 %",
        "3.5.2026", "20 °C",
    ),
    "fr": ("3 mai 2026", "1er mai", "14 h 30", "3 500,50 €", "12 345 km", "45 %", "20 °C"),
    "es": ("3 de mayo de 2026", "14:30", "3.500,50 €", "12.345 km", "45 %"),
    "it": ("3 maggio 2026", "14:30", "3.500,50 €", "12.345 km", "45 %"),
    "nl": ("3 mei 2026", "14:30", "€ 3.500,50", "12.345 km", "45 %"),
    "pt": ("3 de maio de 2026", "14:30", "3.500,50 €", "12.345 km", "45 %"),
    "pl": ("12 345,67", "45 %", "14:30", "€ 500"),
    "zh": ("12,345.67", "5月", "14:30"),
}  # fmt: skip
WORDS = ("and", "alphabet", "so", "considerably", "—", "oder", "longer", "é", "is;", "he,", "it.")


def squeezed(text: str) -> str:
    return "".join(text.split())


def text_of(language: str, rng: random.Random) -> tuple[str, list[tuple[int, int]]]:
    """Return a text of words and expressions, and where the latter are but for blanks.

    Two expressions never stand side by side, where nobody could tell which sign is whose.
    """
    text, spans = "", []
    may = False
    for _ in range(rng.randint(3, 25)):
        may = not may and rng.random() < 0.6
        if may:
            one = rng.choice(EXPRESSIONS[language])
            start = len(squeezed(text))
            spans.append((start, start + len(squeezed(one))))
        else:
            one = rng.choice(WORDS)
        text += f"{one} "
    return f"{text}end.", spans


def borders(pieces: list[Piece]) -> set[int]:
    """Return where pieces end in their text without blanks."""
    place, found = 0, set()
    for piece in pieces:
        place += len(squeezed(piece.text))
        found.add(place)
    return found


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("language", sorted(EXPRESSIONS))
def test_no_expression_is_divided_and_every_character_is_in_one_piece(
    language: str, seed: int
) -> None:
    rng = random.Random(f"{language} {seed}")
    text, spans = text_of(language, rng)
    max_chars = rng.choice([20, 24, 33, 47, 80])

    pieces = cut_text(text, max_chars=max_chars, language=language)

    assert squeezed("".join(piece.text for piece in pieces)) == squeezed(text)
    assert all(0 < len(piece.spoken_text) <= max_chars for piece in pieces)
    cuts = borders(pieces)
    divided = [
        squeezed(text)[start:end] for start, end in spans if any(start < cut < end for cut in cuts)
    ]
    assert divided == []


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("language", ["de", "en", "es", "fr", "it", "nl", "pt"])
def test_what_is_spelled_out_of_pieces_is_what_is_spelled_out_of_the_whole(
    language: str, seed: int
) -> None:
    rng = random.Random(f"{language} {seed}")
    text, _ = text_of(language, rng)
    spell_out = speller(language)
    assert spell_out is not None

    pieces = cut_text(text, max_chars=60, language=language)

    # What ends a sentence keeps its full stop.
    whole = [
        said.rstrip(".")
        for start, end, said in spell_out(text)
        if any(map(str.isdigit, text[start:end]))
    ]
    parts = [
        said.rstrip(".")
        for piece in pieces
        for start, end, said in spell_out(piece.spoken_text)
        if any(map(str.isdigit, piece.spoken_text[start:end]))
    ]
    assert parts == whole


@pytest.mark.parametrize(
    ("text", "language", "pieces"),
    [
        ("Das Treffen war am 3. Mai 2026 in Bonn.", "de",
         ["Das Treffen war am", "3. Mai 2026 in Bonn."]),
        ("It was on the 3rd of May 2026 that he came.", "en",
         ["It was on", "the 3rd of May 2026", "that he came."]),
        ("Il est parti le 3 mai 2026 à midi.", "fr", ["Il est parti le", "3 mai 2026 à midi."]),
    ],
)  # fmt: skip
def test_part_ends_before_what_belongs_together(
    text: str, language: str, pieces: list[str]
) -> None:
    cut = cut_text(text, max_chars=22, language=language)

    assert [piece.spoken_text for piece in cut] == pieces


def test_expression_that_is_longer_than_a_piece_is_divided_at_its_blanks() -> None:
    pieces = cut_text("1 234 567 890 123 456 789", max_chars=10)

    assert [piece.spoken_text for piece in pieces] == ["1 234 567", "890 123", "456 789"]


def test_digits_without_end_are_cut_all_the_same() -> None:
    pieces = cut_text("7" * 1000, max_chars=60)

    assert "".join(piece.spoken_text for piece in pieces) == "7" * 1000
    assert all(len(piece.spoken_text) <= 60 for piece in pieces)


def test_piece_that_has_grown_keeps_what_a_date_became_together() -> None:
    text = "They met on May 3rd, 2026 and paid $3.50 for it, and nobody ever knew."
    speech = Speech(spell_out=speller("en"), language="en")
    (piece,) = cut_text(text, max_chars=75)

    parts = respeak(
        [piece], lambda _: speech, max_chars=75, budget=Budget(5), pauses=DEFAULT_PAUSES
    )

    spoken = [part.spoken_text for part in parts]
    assert len(spoken) == 2
    assert any("three dollars and fifty cents" in part for part in spoken)
    assert any("May third, twenty twenty-six" in part for part in spoken)


def test_looking_costs_nothing_where_no_digits_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(language: str) -> None:
        raise AssertionError("asked for")

    monkeypatch.setattr("synth.text.spelling.expressions.speller", never)
    inside = places_inside("No digit is anywhere in this text. " * 50)

    assert not any(inside(place) for place in range(1700))
