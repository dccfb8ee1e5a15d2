"""How long a text should take is told from its letters, in every script, and from its voice."""

from __future__ import annotations

import numpy as np
import pytest

from synth.contract import Reference
from workers.rendering.quality import (
    USUAL_LETTERS_PER_SECOND,
    expected_seconds,
    letters_of,
    most_repeats,
    num_cues,
    pace_of,
)


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("Hello there.", 10),
        ("<|speaker:1|>Hello [laugh] there.", 10),
        ("In 1984", 2 + 16),
        ("5 %", 4 + 6),
        ("你好", 6),
        ("こんにちは", 10),
        ("안녕", 5),
        ("Привет", 6),
        ("naïve", 5),
        ("…", 0),
        ("", 0),
    ],
)
def test_letters_are_counted_by_how_long_they_take(text: str, letters: float) -> None:
    assert letters_of(text) == letters


def test_voice_speaks_as_fast_as_its_clips() -> None:
    reference = Reference("a" * 48, np.zeros((4, 86), dtype=np.int16))

    pace = pace_of([reference], seconds_per_frame=0.05)

    assert pace == pytest.approx(48 / 4)
    assert expected_seconds("b" * 24, pace) == pytest.approx(0.3 + 2)


@pytest.mark.parametrize(
    ("text", "frames", "pace"),
    [("a", 400, 9.0), ("a" * 400, 40, 20.0), ("", 40, USUAL_LETTERS_PER_SECOND)],
)
def test_clip_that_does_not_fit_its_transcript_moves_the_pace_within_bounds(
    text: str, frames: int, pace: float
) -> None:
    reference = Reference(text, np.zeros((4, frames), dtype=np.int16))

    assert pace_of([reference], seconds_per_frame=0.05) == pace


def test_cues_and_repeats_are_counted() -> None:
    assert num_cues("[laugh] Well, [long pause] yes.") == 2
    assert most_repeats("No, no, no, no!") == 4
    assert most_repeats("By and by and by and by we came.") == 3
    assert most_repeats("One after the other.") == 1
    assert most_repeats("") == 1
