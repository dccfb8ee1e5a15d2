"""Hold the cutting of long sentences to its order of places and its limit."""

from __future__ import annotations

import time

import pytest

from synth.text.long_sentences import (
    cut_long,
    is_inside_character,
)


def parts(text: str, max_chars: int) -> list[tuple[str, int]]:
    return [
        (text[start:end], pause) for start, end, pause in cut_long(text, 0, len(text), max_chars)
    ]


@pytest.mark.parametrize(
    ("text", "max_chars", "expected"),
    [
        (
            "“One ends here. Two, is here, and goes on.”",
            30,
            [("“One ends here.", 300), ("Two, is here, and goes on.”", 300)],
        ),
        (
            "first, a clause; then, another one",
            25,
            [("first, a clause;", 150), ("then, another one", 300)],
        ),
        (
            "a price of 1,000.50 at 12:30, nothing more to say",
            40,
            [("a price of 1,000.50 at 12:30,", 150), ("nothing more to say", 300)],
        ),
        ("one two three four", 10, [("one two", 50), ("three four", 300)]),
        ("abcdefghij", 4, [("abcd", 0), ("efgh", 0), ("ij", 300)]),
        (
            "これは長い文で、途中に読点がある",
            10,
            [("これは長い文で、", 150), ("途中に読点がある", 300)],
        ),
        ("short", 5, [("short", 300)]),
    ],
)
def test_long_sentence_is_cut_at_its_best_places(
    text: str, max_chars: int, expected: list[tuple[str, int]]
) -> None:
    assert parts(text, max_chars) == expected


def test_parts_come_out_even_and_not_as_a_full_one_and_a_rest() -> None:
    lengths = [len(part) for part, _ in parts("word " * 13 + "end", 60)]

    assert len(lengths) == 2
    assert max(lengths) - min(lengths) <= 10


@pytest.mark.parametrize(
    "character",
    ["x\u0301\u0323", "👩\u200d🚀", "👍🏽", "🇩🇪", "क्ष", "\u1112\u1161\u11ab", "❤\ufe0f"],
)
def test_no_cut_falls_inside_a_written_character(character: str) -> None:
    text = character * 40

    for part, _ in parts(text, 17):
        assert len(part) <= 17
        assert len(part) % len(character) == 0


def test_a_character_longer_than_the_limit_is_cut_all_the_same() -> None:
    text = "z" + "\u0308" * 100

    assert max(len(part) for part, _ in parts(text, 10)) == 10


@pytest.mark.parametrize("place", [0, 1, 3])
def test_places_between_letters_are_outside(place: int) -> None:
    assert not is_inside_character("abc", place)


@pytest.mark.parametrize("unit", ["🇩🇪", "x\u0301", "word ", "a,", "\u0301"])
def test_time_grows_no_faster_than_the_text(unit: str) -> None:
    started = time.process_time()

    parts(unit * 200_000, 60)

    assert time.process_time() - started < 5
