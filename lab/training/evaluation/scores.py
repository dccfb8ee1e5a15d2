"""Collect what is measured into figures, and say which of them are good enough."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

SUBJECTS = ("words", "one_word", "pitch", "speaker", "ends", "numbers")


@dataclass(frozen=True, slots=True)
class Goal:
    """Hold what a figure has to reach and what it aims at.

    With `over_teacher` both count from the teacher's figure; with `low` less is better.
    """

    reach: float | None = None
    aim: float | None = None
    low: bool = False
    over_teacher: bool = False


_WORDS = Goal(0.15, 0.05, low=True, over_teacher=True)
_PITCH = Goal(0.8, 0.95)
GOALS = {
    "words_wrong": _WORDS,
    "words_wrong_book": _WORDS,
    "one_word_of_10": Goal(0.9, 0.97),
    "pitch_contour": Goal(0.6, 0.8),
    "pitch_within_20": _PITCH,
    "pitch_within_20_held_out": _PITCH,
    "speaker_of_20": Goal(0.6, 0.85),
    "long_said_to_the_end": Goal(0.95, 0.99),
    "numbers_of_10": Goal(0.8, 0.95),
    "early": Goal(0.03, 0.01, low=True),
    "runaway": Goal(0.03, 0.01, low=True),
    "length_ratio": Goal(),
    "real_time_factor": Goal(0.4, low=True),
    "bytes": Goal(30e6, low=True),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """Hold a figure of the model's speech, of the teacher's and of the codec's round trip.

    `count` is how many were measured: words, sentences or speakers.
    """

    value: float
    teacher: float | None
    round_trip: float | None
    reach: float | None
    aim: float | None
    count: int

    def verdict(self, name: str) -> str:
        """Return `aim`, `reach` or `short`; nothing for a figure without a goal."""
        for word, bound in (("aim", self.aim), ("reach", self.reach)):
            if bound is not None and (
                self.value <= bound if GOALS[name].low else self.value >= bound
            ):
                return word
        return "short" if self.reach is not None else ""


@dataclass(slots=True)
class _Sum:
    totals: list[float] = field(default_factory=list)
    weight: int = 0


class Scores:
    """Sum what is measured, name by name."""

    def __init__(self) -> None:
        self._sums: dict[str, _Sum] = {}

    def add(self, name: str, values: Sequence[float], weight: int = 1) -> None:
        """Add one try of a figure.

        Args:
            values: of the model and, where they have one, of the teacher and the round trip.
            weight: tries that the values are sums of, such as the words of a sentence.
        """
        known = self._sums.setdefault(name, _Sum([0.0] * len(values)))
        known.totals = [total + value for total, value in zip(known.totals, values, strict=True)]
        known.weight += weight

    def figures(self) -> dict[str, Figure]:
        """Return the means of what was added, in the order of `GOALS`."""
        return {name: self._figure(name) for name in GOALS if name in self._sums}

    def _figure(self, name: str) -> Figure:
        known, goal = self._sums[name], GOALS[name]
        means = [round(total / max(known.weight, 1), 4) for total in known.totals]
        value = means[0]
        teacher, round_trip = means[1:] or (None, None)
        base = (teacher or 0.0) if goal.over_teacher else 0.0
        bounds = [
            None if bound is None else round(bound + base, 4) for bound in (goal.reach, goal.aim)
        ]
        return Figure(value, teacher, round_trip, bounds[0], bounds[1], known.weight)


def as_json(figures: dict[str, Figure]) -> dict[str, dict[str, float | None]]:
    """Return the figures as an object in JSON; what is not a number is null."""
    return {
        name: {
            key: None if isinstance(number, float) and math.isnan(number) else number
            for key, number in asdict(figure).items()
        }
        for name, figure in figures.items()
    }
