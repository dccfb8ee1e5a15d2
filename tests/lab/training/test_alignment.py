"""Every phone gets whole frames, and each frame knows its phone and its letter."""

from __future__ import annotations

import numpy as np
import pytest

from lab.training.acoustics import FRAME_SECONDS, ROWS_PER_FRAME
from lab.training.alignment import (
    letter_positions,
    plain_states,
    row_clarity,
    row_times,
    spans_of,
    states_of,
)
from lab.training.espeak import SAMPLE_RATE, Utterance

SECONDS = 1.0


@pytest.fixture
def spoken() -> Utterance:
    """Return "so on": two words, a sound of three frames and a long pause inside."""
    return Utterance(
        wave=np.zeros(int(SECONDS * SAMPLE_RATE), np.int16),
        phones=((0.02, "s"), (0.12, "oU"), (0.26, "_:"), (0.70, "0"), (0.78, "n"), (0.9, "_")),
        words=((0.02, 0, 2), (0.70, 3, 2)),
    )


def test_frames_of_a_phone_are_its_time_rounded(spoken: Utterance) -> None:
    spans = spans_of(spoken)

    assert [(span.phone, span.frames) for span in spans] == [
        ("s", 2), ("oU", 3), ("_", 5), ("0", 2), ("n", 3), ("_", 1),
    ]  # fmt: skip
    assert round(0.14 / FRAME_SECONDS) == 3


def test_states_count_a_phone_s_frames_up_to_three(spoken: Utterance) -> None:
    assert states_of(spans_of(spoken))[:7] == ["s 1", "s 2", "oU 1", "oU 2", "oU 3", "_ 1", "_ 2"]
    assert states_of(spans_of(spoken))[8:10] == ["_ 3", "_ 3"]


def test_rows_walk_evenly_through_each_phone(spoken: Utterance) -> None:
    times = row_times(spans_of(spoken))
    first = times[: 2 * ROWS_PER_FRAME]

    assert len(times) == 16 * ROWS_PER_FRAME
    assert (np.diff(times) > 0).all()
    assert 0.02 < first[0] < first[-1] < 0.12
    assert np.allclose(np.diff(first), 0.1 / len(first))


def test_a_voiceless_phone_is_noise_above(spoken: Utterance) -> None:
    clarity = row_clarity(spans_of(spoken))

    assert not clarity[: 2 * ROWS_PER_FRAME].any()
    assert clarity[2 * ROWS_PER_FRAME] == 0.9


def test_letters_go_with_the_words_they_belong_to(spoken: Utterance) -> None:
    letters = letter_positions(spoken, spans_of(spoken), letters=5)

    assert all(0 <= letter < 2 for letter in letters[:5])
    assert all(3 <= letter <= 4 for letter in letters[10:])
    assert letters == sorted(letters)


def test_plain_states_follow_the_clock_and_not_the_phones(spoken: Utterance) -> None:
    states = plain_states(spoken)

    assert len(states) == int(np.ceil(SECONDS / FRAME_SECONDS))
    assert states[0] == "s 1"
    assert states[2] == "s 3" or states[2] == "s 2"
    assert states[4].startswith("oU")
