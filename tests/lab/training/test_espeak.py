"""The synthesiser gives audio with the times of its phones and words."""

from __future__ import annotations

import pytest

from lab.training.espeak import (
    HELD_OUT,
    PITCH_GRID_HZ,
    REFERENCE_TEXT,
    SAMPLE_RATE,
    VOICES,
    Espeak,
    TrainedVoice,
)
from lab.training.evaluation.clean_speech import clean_wave
from lab.training.evaluation.measure import median_pitch


def test_words_and_phones_lie_inside_the_audio(synthesiser: Espeak) -> None:
    spoken = synthesiser.say("Two words", VOICES[0].espeak)
    seconds = len(spoken.wave) / SAMPLE_RATE

    assert [(first, length) for _, first, length in spoken.words] == [(0, 3), (4, 5)]
    assert 0 <= spoken.phones[0][0] < spoken.words[1][0] < spoken.phones[-1][0] <= seconds
    assert len(spoken.phones) > 5


def test_the_same_text_takes_the_same_course(synthesiser: Espeak) -> None:
    first = synthesiser.say("Once more.", VOICES[2].espeak)
    synthesiser.say("Something else.", VOICES[1].espeak)
    again = synthesiser.say("Once more.", VOICES[2].espeak)

    assert again.phones == first.phones
    assert len(again.wave) == len(first.wave)


@pytest.mark.parametrize("voice", VOICES, ids=lambda voice: voice.name)
def test_a_voice_s_pitch_is_on_the_grid(synthesiser: Espeak, voice: TrainedVoice) -> None:
    measured = median_pitch(clean_wave(REFERENCE_TEXT, voice.espeak))
    assert measured == pytest.approx(voice.grid_multiple * PITCH_GRID_HZ, rel=0.015)


def test_no_two_voices_are_the_same() -> None:
    assert len({voice.grid_multiple for voice in VOICES}) == len(VOICES)
    assert HELD_OUT.espeak.variant not in {voice.espeak.variant for voice in VOICES}
