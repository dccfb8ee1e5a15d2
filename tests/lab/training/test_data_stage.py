"""Shards hold clips that are described frame by frame, and are made only once."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from lab.training.acoustics import NUM_BANDS, ROWS_PER_FRAME
from lab.training.data_stage import aligned_clip, make_shards, plain_clip
from lab.training.espeak import SAMPLE_RATE, Espeak
from lab.training.shards import ALIGNED, PLAIN, read_shard, shard_paths


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


def test_a_plain_clip_keeps_its_wave(synthesiser: Espeak) -> None:
    clip = plain_clip("A plain one.", 1, random.Random(0))

    assert clip is not None
    assert clip.num_frames == int(np.ceil(len(clip.wave) / SAMPLE_RATE * 44100 / 2048))
    assert not len(clip.letters)


def test_silence_and_novels_make_no_clip(synthesiser: Espeak) -> None:
    assert aligned_clip("...", 0) is None
    assert aligned_clip("and so on " * 40, 0) is None


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
