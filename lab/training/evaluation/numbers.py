"""Write sentences with digits, dates and sums of money, and others that differ in one number."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from synth.text.languages import WORDS
from synth.text.respeaking import Speech, respeak
from synth.text.rules import Budget
from synth.text.segments import Piece
from synth.text.speller import speller

NUM_NUMBERS, NUM_ALTERNATIVES = 50, 10
_LANGUAGE = "en"
_NO_RULES = Budget(60.0)  # spelling out takes none of it
_MOST_CHARS = 1000


@dataclass(frozen=True, slots=True)
class NumberSentence:
    """Hold a sentence in digits, and what is said of it and of nine others; the right one first."""

    written: str
    alternatives: tuple[str, ...]


def number_sentences() -> list[NumberSentence]:
    """Return the fifty sentences, always the same."""
    rng = random.Random(0)
    return [_draw(*_KINDS[index % len(_KINDS)], rng) for index in range(NUM_NUMBERS)]


def spell_out(text: str) -> str:
    """Return a text as the service has it said where its numbers are to be spelled out."""
    speech = Speech((), speller(_LANGUAGE), _LANGUAGE)
    pieces = respeak(
        [Piece(text, text, 0)], lambda _: speech, max_chars=_MOST_CHARS, budget=_NO_RULES
    )
    return " ".join(piece.spoken_text for piece in pieces)


Numbers = tuple[int, ...]


def _draw(
    form: str, limits: tuple[tuple[int, int], ...], write: Callable[[Numbers], str],
    rng: random.Random,
) -> NumberSentence:  # fmt: skip
    """Return one sentence of a form, with others in which one number is another."""
    right = tuple(rng.randint(low, high) for low, high in limits)
    written = form.format(write(right))
    alternatives = [spell_out(written)]
    while len(alternatives) < NUM_ALTERNATIVES:
        place = rng.randrange(len(right))
        low, high = limits[place]
        other = _change_digit(right[place], rng) if rng.random() < 0.8 else rng.randint(low, high)
        if not low <= other <= high:
            continue
        said = spell_out(form.format(write((*right[:place], other, *right[place + 1 :]))))
        if said not in alternatives:
            alternatives.append(said)
    return NumberSentence(written, tuple(alternatives))


def _change_digit(number: int, rng: random.Random) -> int:
    digits = list(str(number))
    digits[rng.randrange(len(digits))] = str(rng.randrange(10))
    return int("".join(digits))


def _date(numbers: Numbers) -> str:
    day, month, year = numbers
    return f"{day} {WORDS[_LANGUAGE].months[month - 1]} {year}"


_ONE = "{0[0]}".format
_KINDS: tuple[tuple[str, tuple[tuple[int, int], ...], Callable[[Numbers], str]], ...] = (
    ("There were {} people in the room.", ((13, 999),), _ONE),
    ("My sister was born on {}.", ((2, 28), (1, 12), (1900, 1999)), _date),
    ("They paid {} for the book.", ((10, 99), (10, 99)), lambda n: f"${n[0]}.{n[1]}"),
    ("The train will leave at {}.", ((1, 12), (10, 59)), lambda n: f"{n[0]}:{n[1]}"),
    ("We sold {} houses this year.", ((1000, 9999),), lambda n: f"{n[0]:,}"),
    ("The church was built in {}.", ((1110, 1999),), _ONE),
    ("About {} of them came back.", ((11, 99),), lambda n: f"{n[0]}%"),
    ("The old farm cost {} in all.", ((120, 980),), lambda n: f"${n[0]}"),
    ("The village is {} miles away.", ((11, 99), (1, 9)), lambda n: f"{n[0]}.{n[1]}"),
    ("He came home on the {} of the month.", ((2, 28),), lambda n: _place(n[0])),
)


def _place(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 11 <= number <= 13 else ending}"
