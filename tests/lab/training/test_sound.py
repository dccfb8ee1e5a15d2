"""Clips lie on code frames, codes' numbers tell the phase, and the synthesis follows them."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch

from lab.training.flite import ROW_SECONDS, SAMPLE_RATE
from lab.training.sound.acoustics import NUM_FEATURES, warp_matrix
from lab.training.sound.clips import aligned_clip, fewest_frames, plain_clip
from lab.training.sound.pitch import (
    GRID_HZ,
    HIGHEST,
    LOWEST,
    SIXTEENTHS,
    phase_numbers,
    phases_at_ends,
    pitch_numbers,
)
from lab.training.sound.spectral_loss import SpectralLoss
from lab.training.sound.synthesis import envelope, phases_within, synthesise
from lab.training.sound.targets import NUM_PHASE_TARGETS, NUM_TARGETS, latent_targets
from lab.training.sound.timing import (
    FRAME_SAMPLES,
    FRAME_SECONDS,
    ROWS_PER_FRAME,
    letter_positions,
    row_times,
    spans_of,
    states_of,
)
from lab.training.speakers import DEMO, draw_speaker
from tests.lab.training.utterances import make_speech, make_utterance

CLARA = DEMO[0]


def test_every_phone_lasts_whole_frames_and_the_end_does_not_drift() -> None:
    said = make_utterance(3, words=12)
    spans = spans_of(said, rate=1.0)
    assert [span.phone for span in spans] == [phone for _, _, phone in said.phones]
    assert spans[0].frames == spans[-1].frames == 1  # pauses at the ends are cut
    inner = spans[1:-1]
    seconds = sum(span.end - span.start for span in inner)
    assert sum(span.frames for span in inner) * FRAME_SECONDS == pytest.approx(seconds, abs=0.08)
    longer = spans_of(said, rate=1.5)[1:-1]
    assert sum(span.frames for span in longer) * FRAME_SECONDS == pytest.approx(
        1.5 * seconds, abs=0.08
    )
    short = [span for span in inner if span.phone == "pau"]
    assert all(span.frames <= 6 for span in short)


def test_states_count_a_phone_s_frames_and_rows_walk_through_it() -> None:
    said = make_utterance(1)
    spans = spans_of(said, rate=1.0)
    states, times = states_of(spans), row_times(spans)
    long = next(index for index, span in enumerate(spans) if span.frames >= 4)
    first = sum(span.frames for span in spans[:long])
    phone = spans[long].phone
    assert states[first : first + 4] == [f"{phone} 1", f"{phone} 2", f"{phone} 3", f"{phone} 3"]
    assert len(times) == ROWS_PER_FRAME * len(states)
    assert (np.diff(times) > 0).all()
    own = times[first * ROWS_PER_FRAME : (first + spans[long].frames) * ROWS_PER_FRAME]
    assert spans[long].start < own[0] < own[-1] < spans[long].end


def test_the_letter_that_is_spoken_moves_from_word_to_word() -> None:
    said = make_utterance(2, words=4)
    spans = spans_of(said, rate=1.0)
    letters = letter_positions(said, spans)
    assert letters is not None
    assert (np.diff(letters) >= 0).all()
    # Words are letters with a space between them.
    starts = {int(letter) for letter in letters[2:]}
    assert starts <= {0, 2, 4, 6}
    assert letter_positions(replace(said, text="Quite other words."), spans) is None


@pytest.mark.parametrize("speaker", [CLARA, draw_speaker(9001)], ids=lambda each: each.name)
def test_a_clip_s_parts_have_one_length(speaker: object) -> None:
    who = cast("type(CLARA)", speaker)  # type: ignore[valid-type]
    for said in make_speech(6):
        aligned, plain = aligned_clip(said, who), plain_clip(said, who)
        for clip in (aligned, plain):
            assert clip.rows.shape == (ROWS_PER_FRAME * clip.num_frames, NUM_FEATURES)
            assert len(clip.pitches) == clip.num_frames + 1
            assert clip.pitches.min() >= LOWEST and clip.pitches.max() <= HIGHEST
        assert aligned.letters is not None and len(aligned.letters) == aligned.num_frames
        assert fewest_frames(said) <= aligned.num_frames
        assert plain.num_frames == int(said.seconds * who.rate / FRAME_SECONDS)


def test_speech_in_which_nothing_is_voiced_has_a_pitch_too() -> None:
    said = make_utterance()
    silent = replace(said, pitch=np.zeros_like(said.pitch))
    clip = aligned_clip(silent, CLARA)
    assert len(set(clip.pitches.tolist())) == 1
    assert not clip.rows[:, -5:].any()


def test_a_warped_spectrum_has_its_peaks_higher() -> None:
    hz = torch.linspace(100, 6000, 400)
    cepstra = np.zeros(25)
    cepstra[[0, 3]] = 8, 1.5
    peaks = [
        int(envelope(torch.from_numpy(each).float(), hz).argmax())
        for each in (cepstra, warp_matrix(1.1) @ cepstra)
    ]
    place = [float(hz[peak]) for peak in peaks]
    assert place[1] / place[0] == pytest.approx(1.1, abs=0.03)
    assert np.allclose(warp_matrix(1.0), np.eye(25), atol=1e-6)


def test_phase_numbers_tell_the_phase_that_pitches_lead_to() -> None:
    pitches = pitch_numbers(np.random.default_rng(0).uniform(50, 420, 60))
    for start in (0, 5):
        ends = phases_at_ends(pitches, start)
        hz = pitches * GRID_HZ
        periods = np.cumsum(FRAME_SECONDS * (hz[:-1] + hz[1:]) / 2)
        wanted = (ends[0] / SIXTEENTHS + periods) % 1
        off = np.abs(ends[1:] / SIXTEENTHS - wanted)
        assert np.minimum(off, 1 - off).max() < 1e-9
        # And a frame's number follows from the one before and its pitch.
        numbers = phase_numbers(pitches, start)
        assert ((numbers[1:] - numbers[:-1] - pitches[2:]) % 8 == 0).all()


def test_targets_are_the_phase_of_the_synthesised_wave() -> None:
    pitches, phase = torch.full((1, 5), 48.0), torch.tensor([0.25])
    periods, hz = phases_within(pitches, phase, 20)
    assert torch.allclose(hz, torch.tensor(150.0))
    assert float(periods[0, 0]) == pytest.approx(0.25 + 150 * FRAME_SECONDS / 40, abs=1e-5)
    targets = latent_targets(torch.zeros(1, 16, NUM_FEATURES), pitches, phase, 20)
    assert targets.shape == (1, 80, NUM_TARGETS)
    assert float(targets[..., NUM_PHASE_TARGETS].abs().max()) < 1e-5  # 150 Hz is the middle
    angle = torch.atan2(targets[0, :, 1], targets[0, :, 0])
    assert torch.allclose(torch.cos(angle), torch.cos(2 * torch.pi * periods[0]), atol=1e-4)


def steady(
    pitch: int = 48, strength: float = 0.9, level: float = 6.0, frames: int = 12
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the harmonic and the noise part of a sound held, each [1, N]."""
    rows = torch.zeros(1, ROWS_PER_FRAME * frames + 1, NUM_FEATURES)
    rows[..., 0] = level
    rows[..., 25:] = strength
    pitches = torch.full((1, frames + 1), float(pitch))
    noise = torch.randn(1, frames * FRAME_SAMPLES, generator=torch.Generator().manual_seed(1))
    return synthesise(rows, pitches, torch.zeros(1), noise)


@pytest.mark.parametrize("pitch", [24, 48, 96])
def test_harmonics_lie_at_multiples_of_the_pitch(pitch: int) -> None:
    harmonic = steady(pitch, frames=25)[0][0]  # a second: bins of 1 Hz
    power = torch.fft.rfft(harmonic).abs().square()
    multiples = torch.arange(1, int(7500 / (pitch * GRID_HZ))) * pitch * GRID_HZ
    at = sum(float(power[multiples.round().long() + offset].sum()) for offset in (-1, 0, 1))
    assert at / float(power.sum()) > 0.95
    assert float(power[round(pitch * GRID_HZ)]) > 0.5 * float(power[: 2 * pitch * 3].max())


def test_strength_and_level_move_power() -> None:
    harmonic, noise = steady(strength=1.0)
    assert float(noise.abs().max()) < 1e-4 < float(harmonic.std())
    harmonic, noise = steady(strength=0.0)
    assert float(harmonic.abs().max()) < 1e-6 < float(noise.std())
    loud, quiet = (steady(level=level)[0].std() for level in (6.0, 5.0))
    assert float(loud / quiet) == pytest.approx(np.e, rel=1e-3)
    # Both parts of a flat spectrum have the same power.
    voiced, unvoiced = steady(strength=1.0)[0].std(), steady(strength=0.0)[1].std()
    assert float(voiced / unvoiced) == pytest.approx(1, abs=0.2)


def test_a_held_sound_repeats_with_its_period() -> None:
    harmonic, _ = steady(pitch=64)  # 200 Hz
    period = SAMPLE_RATE // 200
    wave = harmonic[0, FRAME_SAMPLES:]
    assert torch.allclose(wave[:-period], wave[period:], atol=1e-4)
    assert period == ROW_SECONDS * SAMPLE_RATE


def test_the_right_wave_costs_nothing_and_silence_the_whole() -> None:
    (harmonic, noise), (wrong, _) = steady(), steady(pitch=57)
    loss = SpectralLoss()

    def cost(wave: torch.Tensor) -> dict[str, float]:
        return {name: float(part) for name, part in loss(wave, harmonic, noise).items()}

    right, silent = cost(harmonic + noise), cost(torch.zeros_like(harmonic))
    assert right["mel"] == right["magnitude"] == 0
    assert silent["wave"] > 0.95 and silent["mel"] > 0.5
    # Another pitch costs more than another noise.
    off_pitch, off_noise = cost(wrong + noise), cost(harmonic - noise)
    assert all(off_pitch[part] > 2 * off_noise[part] for part in ("magnitude", "wave"))
    shifted = cost(torch.roll(harmonic + noise, 40, dims=1))  # told by its phase alone
    assert shifted["wave"] > 0.5 and shifted["magnitude"] < 0.15
