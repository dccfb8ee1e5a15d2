"""Speak as a teacher, or as a speaker who is made from one."""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt
import torch

from lab.training.flite import flite
from lab.training.sound.clips import Clip, plain_clip
from lab.training.sound.pitch import SIXTEENTHS, phases_at_ends
from lab.training.sound.synthesis import synthesise
from lab.training.sound.timing import FRAME_SAMPLES
from lab.training.speakers import Speaker

_NO_FRAMES = np.zeros(0, np.float32)


def speak(text: str, speaker: Speaker) -> npt.NDArray[np.float32]:
    """Return a text in a speaker's voice, [N] at 16 kHz, full scale at 1.

    A teacher speaks with its own waveform; other speakers' speech is synthesised.

    Raises:
        FliteMissingError: flite is not installed.
    """
    utterance = flite().say(text, speaker.teacher)
    if speaker.is_teacher:
        return np.asarray(utterance.wave / 32768.0, np.float32)
    return sound_of(plain_clip(utterance, speaker), seed=zlib.crc32(text.encode()))


def sound_of(clip: Clip, seed: int) -> npt.NDArray[np.float32]:
    """Return the sound of a clip, [640 T]."""
    if not clip.num_frames:
        return _NO_FRAMES
    rows = torch.from_numpy(np.concatenate([clip.rows[:1], clip.rows]))[None]
    pitches = torch.from_numpy(clip.pitches)[None].float()
    phase = torch.tensor([float(phases_at_ends(clip.pitches, 0)[0]) / SIXTEENTHS])
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(1, clip.num_frames * FRAME_SAMPLES, generator=generator)
    with torch.inference_mode():
        harmonic, rest = synthesise(rows, pitches, phase, noise)
    return np.asarray((harmonic + rest)[0].numpy(), np.float32)
