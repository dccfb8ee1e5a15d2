"""A perfect speaker reaches every figure, one that says something else reaches none."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from lab.training.espeak import HELD_OUT, VOICES, EspeakVoice
from lab.training.evaluation.clean_speech import (
    VOICES_FILE,
    MeasuredVoices,
    clean_wave,
    measured_voices,
)
from lab.training.evaluation.measure import (
    Evaluation,
    Figures,
    Floats,
    cepstra,
    distances,
    evaluation_sentences,
    frame_pitches,
    log_mel,
    median_pitch,
    one_word_changed,
)
from lab.training.evaluation.report import encode_png, write_spectrograms
from lab.training.evaluation.speaking import Speaker, Spoken, Wave

MEASURED = MeasuredVoices({voice.name: voice.espeak for voice in VOICES[::2]}, HELD_OUT.espeak)


needs_speech = pytest.mark.usefixtures("synthesiser")


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
    speaker, sentences = cast("Speaker", parrot), evaluation_sentences()[:8]
    return Evaluation(speaker, MEASURED, sentences, lambda line: None).run()


@needs_speech
def test_clean_speech_reaches_everything() -> None:
    shares = {name: tally.share for name, tally in figures_of(Parrot()).shares.items()}
    assert shares.pop("early") == shares.pop("runaway") == 0
    assert set(shares.values()) == {1.0}
    assert {"one_word_of_10", "one_word_roundtrip", "heldout_nearest_of_40"} <= set(shares)


@needs_speech
def test_another_sentence_in_another_voice_is_found_out() -> None:
    figures = figures_of(Parrot(text="Quite another thing was said by somebody else."))
    assert figures.shares["nearest_of_40"].share < 0.3
    assert figures.controls["nearest_of_40"].share == 1.0


@needs_speech
@pytest.mark.parametrize(
    ("parrot", "early", "runaway"),
    [(Parrot(length=0.5), 1, 0), (Parrot(length=1.8), 0, 1), (Parrot(ended=False), 0, 1)],
)
def test_ends_are_told_by_length_and_by_the_end_token(
    parrot: Parrot, early: float, runaway: float
) -> None:
    shares = figures_of(parrot).shares
    assert (shares["early"].share, shares["runaway"].share) == (early, runaway)


@needs_speech
def test_a_checkpoint_may_name_its_own_voices(tmp_path: Path) -> None:
    assert list(measured_voices(tmp_path).trained) == [voice.name for voice in VOICES]
    (tmp_path / VOICES_FILE).write_text('{"trained": {"x": {"variant": "en"}}}')
    with pytest.raises(ValueError, match="does not describe voices"):
        measured_voices(tmp_path)


RATE = 44100


def plain_cost(said: Floats, candidate: Floats) -> float:
    """Return the warping cost by the textbook's double loop."""
    best = np.full((len(said) + 1, len(candidate) + 1), np.inf)
    best[0, 0] = 0
    for i in range(1, len(said) + 1):
        for j in range(1, len(candidate) + 1):
            before = min(best[i - 1, j - 1], best[i - 1, j], best[i, j - 1])
            best[i, j] = before + np.linalg.norm(said[i - 1] - candidate[j - 1])
    return float(best[-1, -1] / (len(said) + len(candidate)))


def test_costs_are_those_of_the_plain_algorithm() -> None:
    rng = np.random.default_rng(0)
    said = rng.normal(size=(13, 4))
    candidates = [rng.normal(size=(length, 4)) for length in (5, 13, 20)]
    found = distances(said, candidates)
    assert found == pytest.approx([plain_cost(said, candidate) for candidate in candidates])
    said, other = rng.normal(size=(2, 20, 6))  # a slower copy is nearer than another sequence
    costs = distances(said, [other, np.repeat(said, 2, axis=0)])
    assert costs[1] < 1e-6 < costs[0]


def test_cepstra_do_not_hear_the_level_and_a_row_is_one_hop() -> None:
    rng = np.random.default_rng(2)
    wave = rng.normal(0, 0.3, RATE) * np.repeat(rng.uniform(0.5, 1, 10), RATE // 10)
    assert np.allclose(cepstra(log_mel(wave)), cepstra(log_mel(wave * 0.7)), atol=0.05)
    assert log_mel(np.zeros(RATE)).shape == (RATE // 512 + 1, 80)


TIMES = np.arange(RATE) / RATE


def harmonics(hz: float, count: int = 30, first: int = 1) -> Floats:
    """Return one second of harmonics that fall off like a voice's."""
    return np.asarray(
        sum(np.sin(2 * np.pi * k * hz * TIMES + k * k) / k for k in range(first, first + count))
    )


@pytest.mark.parametrize("hz", [70.0, 86.13, 129.2, 172.27, 215.33, 330.0])
def test_pitch_is_right_within_half_a_percent(hz: float) -> None:
    assert median_pitch(harmonics(hz)) == pytest.approx(hz, rel=0.005)


def test_pitch_is_of_the_voice_and_not_of_overtones_noise_or_hum() -> None:
    assert median_pitch(harmonics(110.0, first=2)) == pytest.approx(110.0, rel=0.01)
    noise = np.random.default_rng(0).normal(0, 0.1, RATE)
    assert (frame_pitches(noise) > 0).mean() < 0.2
    wave = np.concatenate([harmonics(200.0)[: RATE // 2], 0.01 * harmonics(90.0)])
    assert median_pitch(wave) == pytest.approx(200.0, rel=0.01)
    assert median_pitch(np.zeros(RATE)) is None
    assert median_pitch(harmonics(100.0)[:800]) is None


def test_there_are_forty_sentences_and_always_the_same() -> None:
    assert len(set(evaluation_sentences())) == 40
    assert evaluation_sentences() == evaluation_sentences()


def test_candidates_differ_from_the_first_in_exactly_one_word_of_the_same_length() -> None:
    sentences = evaluation_sentences()

    for index, sentence in enumerate(sentences):
        first, *others = one_word_changed(sentence, sentences, seed=index)
        assert first == sentence
        assert len(set(others)) == 9
        for other in others:
            pairs = list(zip(sentence.split(), other.split(), strict=True))
            changed = [(old, new) for old, new in pairs if old != new]
            assert len(changed) == 1
            assert len(changed[0][0]) == len(changed[0][1])


def test_pixels_come_back_from_the_file() -> None:
    pixels = np.arange(35, dtype=np.uint8).reshape(5, 7)

    png = encode_png(pixels)

    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", png[16:24]) == (7, 5)
    start = png.index(b"IDAT") + 4
    (size,) = struct.unpack(">I", png[start - 8 : start - 4])
    lines = np.frombuffer(zlib.decompress(png[start : start + size]), np.uint8).reshape(5, 8)
    assert (lines[:, 1:] == pixels).all()
    assert struct.unpack(">I", png[start + size : start + size + 4])[0] == zlib.crc32(
        png[start - 4 : start + size]
    )


def test_a_tone_is_a_dark_line_in_a_light_picture(tmp_path: Path) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 1000 * np.arange(44100) / 44100)
    write_spectrograms(tmp_path / "out" / "s.png", [[tone, tone], [tone, tone]])
    assert (tmp_path / "out" / "s.png").stat().st_size > 200
