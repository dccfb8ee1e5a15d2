"""Have clips heard by the trained encoder, so that prompts in training are those of the service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lab.training.flite import Utterance
from lab.training.run_folder import RunFolder
from lab.training.shards import read_shard, shard_paths
from lab.training.sound.clips import plain_clip
from lab.training.sound.timing import FRAME_SECONDS
from lab.training.speakers import OF_EACH, Speaker, trained_speaker
from lab.training.teaching import sound_of
from synth.engine.codec.halves import CodecEncoder

CLIP_FRAMES = (25, 130)  # of a clip that a voice is taken from: 1 to 5 seconds
_NAME = "heard"
_TEACHER_SHARE = 0.4  # of the clips whose waveform was kept: those are the teacher's own


class Heard(NamedTuple):
    """Hold a clip of a speaker as the encoder heard it: codes int16 [K, T]."""

    text: str
    speaker: Speaker
    codes: Tensor


def hear_clips(
    run: RunFolder, encoder: CodecEncoder, count: int, report: Callable[[str], None]
) -> None:
    """Save `count` clips of speakers to train on, from all shards in equal parts, as `heard`."""
    paths, rng = shard_paths(run.speech), np.random.default_rng(0)
    found: list[Heard] = []
    for index, path in enumerate(paths):
        speech = [each for each in read_shard(path) if _has_clip_length(each)]
        wanted = count * (index + 1) // len(paths) - len(found)
        chosen = rng.permutation(len(speech))[:wanted]
        found += [_hear(speech[int(number)], encoder, rng) for number in chosen]
        report(f"lm: the encoder heard {len(found)} clips")
    run.save(
        _NAME,
        {
            "texts": [each.text for each in found],
            "speakers": [astuple(each.speaker) for each in found],
            "codes": [each.codes for each in found],
        },
    )


def load_heard(run: RunFolder) -> list[Heard]:
    """Return what `hear_clips` saved."""
    saved = run.load(_NAME)
    return [
        Heard(text, Speaker(*speaker), codes)
        for text, speaker, codes in zip(
            saved["texts"], saved["speakers"], saved["codes"], strict=True
        )
    ]


def has_heard(run: RunFolder) -> bool:
    """Return whether `hear_clips` has saved anything."""
    return run.has(_NAME)


def _has_clip_length(utterance: Utterance) -> bool:
    frames = utterance.seconds / FRAME_SECONDS
    return CLIP_FRAMES[0] <= frames <= CLIP_FRAMES[1]


def _hear(utterance: Utterance, encoder: CodecEncoder, rng: np.random.Generator) -> Heard:
    teacher = utterance.teacher
    speaker = trained_speaker(teacher, int(rng.integers(OF_EACH)))
    if len(utterance.wave) and rng.random() < _TEACHER_SHARE:
        speaker = Speaker(teacher, teacher, 1, 1, 1, 1)
        wave = torch.from_numpy(utterance.wave) / 32768
    else:
        seed = int(rng.integers(2**31))
        wave = torch.from_numpy(sound_of(plain_clip(utterance, speaker), seed))
    return Heard(utterance.text, speaker, encoder.encode(wave).to(torch.int16))
