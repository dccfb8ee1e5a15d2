"""A perfect speaker reaches every figure, one that says something else reaches none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from lab.training.espeak import HELD_OUT, VOICES, Espeak, EspeakVoice
from lab.training.evaluation.clean_speech import (
    VOICES_FILE,
    MeasuredVoices,
    clean_wave,
    measured_voices,
)
from lab.training.evaluation.measure import Evaluation, Figures
from lab.training.evaluation.sentences import evaluation_sentences
from lab.training.evaluation.speaking import Speaker, Spoken, Wave

MEASURED = MeasuredVoices({voice.name: voice.espeak for voice in VOICES[::2]}, HELD_OUT.espeak)


class Parrot:
    """Say what is asked with the synthesiser itself, a little faster; the codec changes nothing."""

    def __init__(self, *, text: str | None = None, ended: bool = True, length: float = 1.0) -> None:
        self._text, self._ended, self._length = text, ended, length

    def say(self, text: str, voice: EspeakVoice, seed: int) -> Spoken:
        """Return clean speech, of another text where one was given, cut or stretched by silence."""
        wave = clean_wave(self._text or text, replace(voice, rate=voice.rate + 8))
        size = int(len(wave) * self._length)
        return Spoken(np.pad(wave, (0, max(0, size - len(wave))))[:size], self._ended)

    def round_trip(self, wave: Wave) -> Wave:
        """Return the wave."""
        return wave


def figures_of(parrot: Parrot) -> Figures:
    """Return the figures over eight sentences and two voices."""
    speaker = cast("Speaker", parrot)
    sentences = evaluation_sentences()[:8]
    return Evaluation(speaker, MEASURED, sentences, lambda line: None).run()


@pytest.fixture(scope="module", autouse=True)
def _needs_espeak(synthesiser: Espeak) -> None:
    """Skip where there is no synthesiser."""


def test_clean_speech_reaches_everything() -> None:
    shares = {name: tally.share for name, tally in figures_of(Parrot()).shares.items()}

    assert shares.pop("early") == shares.pop("runaway") == 0
    assert set(shares.values()) == {1.0}
    assert {"one_word_of_10", "one_word_roundtrip", "heldout_nearest_of_40"} <= set(shares)


def test_another_sentence_in_another_voice_is_found_out() -> None:
    figures = figures_of(Parrot(text="Quite another thing was said by somebody else."))

    assert figures.shares["nearest_of_40"].share < 0.3
    assert figures.controls["nearest_of_40"].share == 1.0


@pytest.mark.parametrize(
    ("parrot", "early", "runaway"),
    [(Parrot(length=0.5), 1, 0), (Parrot(length=1.8), 0, 1), (Parrot(ended=False), 0, 1)],
)
def test_ends_are_told_by_length_and_by_the_end_token(
    parrot: Parrot, early: float, runaway: float
) -> None:
    shares = figures_of(parrot).shares

    assert (shares["early"].share, shares["runaway"].share) == (early, runaway)


def test_a_checkpoint_may_name_its_own_voices(tmp_path: Path) -> None:
    assert list(measured_voices(tmp_path).trained) == [voice.name for voice in VOICES]

    (tmp_path / VOICES_FILE).write_text('{"trained": {"x": {"variant": "en"}}}')

    with pytest.raises(ValueError, match="does not describe voices"):
        measured_voices(tmp_path)
