"""Let a checkpoint speak through the real engine, and take speech through its codec alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
import torch

from lab.training.evaluation.spectra import RATE, Wave
from lab.training.evaluation.texts import CLIP_TEXT
from lab.training.speakers import Speaker
from lab.training.teaching import speak
from synth.audio.filters import resample
from synth.contract import FinishReason, Reference, RenderSpec, Sampling
from synth.engine import Engine
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.load import load_decoder

# Seconds after which a sentence is cut: about three times what it needs.
_SECONDS_PER_LETTER, _SECONDS_MORE = 0.2, 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """Hold one generated sentence at `RATE`; `ended` is False where the frame cap cut it."""

    wave: Wave
    ended: bool


@lru_cache(maxsize=512)
def teacher_wave(text: str, speaker: Speaker) -> Wave:
    """Return the teacher's own speech at `RATE`."""
    return speak(text, speaker)


def control_wave(text: str, speaker: Speaker) -> Wave:
    """Return the teacher's speech, a tenth higher and longer: what a perfect model may differ."""
    other = replace(speaker, pitch=speaker.pitch * 1.1, rate=speaker.rate * 1.1)
    return speak(text, other)


class Voices:
    """Clone speakers from one clip each and speak with them; counts seconds as it goes."""

    def __init__(self, engine: Engine, checkpoint: Path, sampling: Sampling) -> None:
        self._engine, self._sampling = engine, sampling
        self._decoder: CodecDecoder = load_decoder(checkpoint, "cpu")
        self._references: dict[Speaker, Reference] = {}
        self.work_seconds, self.audio_seconds = 0.0, 0.0

    def say(self, text: str, speaker: Speaker, seed: int) -> Spoken:
        """Return a sentence in the voice of a clip in which the speaker says `CLIP_TEXT`."""
        reference = self._reference(speaker)
        seconds = _SECONDS_MORE + _SECONDS_PER_LETTER * len(text)
        frames = round(seconds * self._engine.frame_rate)
        sampling = replace(self._sampling, seed=seed, max_frames=frames)
        began = time.perf_counter()
        segment = self._engine.render(RenderSpec(text, reference, sampling))
        self.work_seconds += time.perf_counter() - began
        self.audio_seconds += len(segment.audio) / segment.sample_rate
        return Spoken(self._judged(segment.audio), segment.finish_reason is FinishReason.END)

    def round_trip(self, wave: Wave) -> Wave:
        """Return what is left of a wave at `RATE` after encoding and decoding."""
        codes = self._engine.encode_reference(wave, RATE)
        with torch.inference_mode():
            decoded = self._decoder.decode([torch.from_numpy(codes.astype(np.int64))])[0]
        return self._judged(decoded.numpy())[: len(wave)]

    def _judged(self, wave: Wave) -> Wave:
        blocks = list(resample([np.asarray(wave, np.float32)], self._engine.sample_rate, RATE))
        return np.concatenate([np.zeros(0, np.float32), *blocks])

    def _reference(self, speaker: Speaker) -> Reference:
        if speaker not in self._references:
            clip = teacher_wave(CLIP_TEXT, speaker)
            codes = self._engine.encode_reference(clip, RATE)
            self._references[speaker] = Reference(CLIP_TEXT, codes)
        return self._references[speaker]


class Sample:
    """Hold one sentence by one speaker: as generated, and what it is compared with, made once."""

    def __init__(self, voices: Voices, text: str, speaker: Speaker, seed: int) -> None:
        self._voices = voices
        self.text, self.speaker = text, speaker
        self.said = voices.say(text, speaker, seed)

    @cached_property
    def teacher(self) -> Wave:
        """Return the teacher's own speech."""
        return teacher_wave(self.text, self.speaker)

    @cached_property
    def control(self) -> Wave:
        """Return the teacher's speech, a tenth higher and longer."""
        return control_wave(self.text, self.speaker)

    @cached_property
    def round_trip(self) -> Wave:
        """Return what the codec leaves of the teacher's speech."""
        return self._voices.round_trip(self.teacher)


Report = Callable[[str], None]
