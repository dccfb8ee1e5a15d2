"""The synthesiser and the clips that are made of what it says."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from lab.training.acoustics import FRAME_SECONDS, NUM_BANDS, ROWS_PER_FRAME
from lab.training.data_stage import (
    aligned_clip,
    letter_positions,
    make_shards,
    plain_clip,
    plain_states,
    row_clarity,
    row_times,
    spans_of,
    states_of,
)
from lab.training.espeak import (
    HELD_OUT,
    PITCH_GRID_HZ,
    REFERENCE_TEXT,
    SAMPLE_RATE,
    VOICES,
    Espeak,
    TrainedVoice,
    Utterance,
)
from lab.training.evaluation.pitch import median_pitch
from lab.training.evaluation.spectra import RATE
from lab.training.shards import ALIGNED, PLAIN, read_shard, shard_paths
from synth.audio.filters import resample


def test_words_and_phones_lie_inside_the_audio(synthesiser: Espeak) -> None:
    spoken = synthesiser.say("Two words", VOICES[0].espeak)
    seconds = len(spoken.wave) / SAMPLE_RATE
    assert [(first, length) for _, first, length in spoken.words] == [(0, 3), (4, 5)]
    assert 0 <= spoken.phones[0][0] < spoken.words[1][0] < spoken.phones[-1][0] <= seconds
    assert len(spoken.phones) > 5


def test_the_same_text_takes_the_same_course_and_no_two_voices_are_the_same(
    synthesiser: Espeak,
) -> None:
    first = synthesiser.say("Once more.", VOICES[2].espeak)
    synthesiser.say("Something else.", VOICES[1].espeak)
    again = synthesiser.say("Once more.", VOICES[2].espeak)
    assert again.phones == first.phones
    assert len(again.wave) == len(first.wave)
    assert len({voice.grid_multiple for voice in VOICES}) == len(VOICES)
    assert HELD_OUT.espeak.variant not in {voice.espeak.variant for voice in VOICES}


@pytest.mark.parametrize("voice", VOICES, ids=lambda voice: voice.name)
def test_a_voice_s_pitch_is_on_the_grid(synthesiser: Espeak, voice: TrainedVoice) -> None:
    spoken = synthesiser.say(REFERENCE_TEXT, voice.espeak).wave.astype(np.float32) / 32768
    measured = median_pitch(np.concatenate(list(resample([spoken], SAMPLE_RATE, RATE))))
    assert measured == pytest.approx(voice.grid_multiple * PITCH_GRID_HZ, rel=0.015)


def test_an_aligned_clip_has_states_letters_and_features_for_every_frame(
    synthesiser: Espeak,
) -> None:
    clip = aligned_clip("She sells sea shells.", 2)
    assert clip is not None
    assert len(clip.states) == len(clip.letters) == clip.num_frames
    assert clip.features.shape[0] == ROWS_PER_FRAME * clip.num_frames
    voiced = clip.features[:, NUM_BANDS].astype(float).reshape(-1, ROWS_PER_FRAME).mean(1)
    hissed = [state.startswith("s ") for state in clip.states]
    assert voiced[hissed].mean() < 0.35 < voiced[[not hiss for hiss in hissed]].mean()
    assert aligned_clip("...", 0) is None
    assert aligned_clip("and so on " * 40, 0) is None


def test_a_plain_clip_keeps_its_wave(synthesiser: Espeak) -> None:
    clip = plain_clip("A plain one.", 1, random.Random(0))
    assert clip is not None
    assert clip.num_frames == int(np.ceil(len(clip.wave) / SAMPLE_RATE * 44100 / 2048))
    assert not len(clip.letters)


def test_shards_are_made_once_and_read_back(synthesiser: Espeak, tmp_path: Path) -> None:
    lines: list[str] = []
    for _ in range(2):
        make_shards(tmp_path, ALIGNED, 2, 3, lines.append)
    make_shards(tmp_path, PLAIN, 1, 3, lines.append)

    clips = read_shard(shard_paths(tmp_path, ALIGNED)[1])
    plain = read_shard(shard_paths(tmp_path, PLAIN)[0])

    assert len(lines) == 3
    assert [clip.voice for clip in clips] == [0, 1, 2]
    assert all(len(clip.states) == clip.num_frames == len(clip.letters) for clip in clips)
    assert all(len(clip.wave) for clip in plain)


SECONDS = 1.0


@pytest.fixture
def spoken() -> Utterance:
    """Return "so on": two words, a sound of three frames and a long pause inside."""
    return Utterance(
        wave=np.zeros(int(SECONDS * SAMPLE_RATE), np.int16),
        phones=((0.02, "s"), (0.12, "oU"), (0.26, "_:"), (0.70, "0"), (0.78, "n"), (0.9, "_")),
        words=((0.02, 0, 2), (0.70, 3, 2)),
    )


def test_frames_are_described_by_their_phone_its_time_and_its_word(spoken: Utterance) -> None:
    spans = spans_of(spoken)
    assert [(span.phone, span.frames) for span in spans] == [
        ("s", 2), ("oU", 3), ("_", 5), ("0", 2), ("n", 3), ("_", 1),
    ]  # fmt: skip
    assert round(0.14 / FRAME_SECONDS) == 3

    assert states_of(spans_of(spoken))[:7] == ["s 1", "s 2", "oU 1", "oU 2", "oU 3", "_ 1", "_ 2"]
    assert states_of(spans_of(spoken))[8:10] == ["_ 3", "_ 3"]

    clarity = row_clarity(spans_of(spoken))
    assert not clarity[: 2 * ROWS_PER_FRAME].any()
    assert clarity[2 * ROWS_PER_FRAME] == 0.9

    letters = letter_positions(spoken, spans_of(spoken), letters=5)
    assert all(0 <= letter < 2 for letter in letters[:5])
    assert all(3 <= letter <= 4 for letter in letters[10:])
    assert letters == sorted(letters)


def test_rows_walk_evenly_through_each_phone(spoken: Utterance) -> None:
    times = row_times(spans_of(spoken))
    first = times[: 2 * ROWS_PER_FRAME]
    assert len(times) == 16 * ROWS_PER_FRAME
    assert (np.diff(times) > 0).all()
    assert 0.02 < first[0] < first[-1] < 0.12
    assert np.allclose(np.diff(first), 0.1 / len(first))


def test_plain_states_follow_the_clock_and_not_the_phones(spoken: Utterance) -> None:
    states = plain_states(spoken)
    assert len(states) == int(np.ceil(SECONDS / FRAME_SECONDS))
    assert states[0] == "s 1"
    assert states[2] == "s 3" or states[2] == "s 2"
    assert states[4].startswith("oU")
