"""Let a checkpoint speak through the real engine, and take speech through its codec alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from lab.training.espeak import REFERENCE_TEXT, EspeakVoice
from lab.training.evaluation.clean_speech import clean_wave
from synth.contract import FinishReason, Reference, RenderSpec, Sampling
from synth.engine import Engine
from synth.engine.codec.halves import CodecDecoder
from synth.engine.codec.load import load_decoder

Wave = npt.NDArray[np.float32]
_FRAMES_PER_LETTER, _FRAMES_MORE = 4, 40  # the cap: about three times what a sentence needs


@dataclass(frozen=True, slots=True, eq=False)
class Spoken:
    """Hold one generated sentence at 44.1 kHz; `ended` is False where the frame cap cut it."""

    wave: Wave
    ended: bool


@dataclass(frozen=True, slots=True)
class SamplingChoice:
    """Hold what the card recommends."""

    temperature: float = 0.7
    top_p: float = 0.8
    top_k: int = 30


class Speaker:
    """Clone voices from one clean clip each and speak with them; counts seconds as it goes."""

    def __init__(self, engine: Engine, checkpoint: Path, sampling: SamplingChoice) -> None:
        self._engine, self._sampling = engine, sampling
        self._decoder: CodecDecoder = load_decoder(checkpoint, "cpu")
        self._references: dict[EspeakVoice, Reference] = {}
        self.work_seconds, self.audio_seconds = 0.0, 0.0

    def say(self, text: str, voice: EspeakVoice, seed: int) -> Spoken:
        """Return a sentence in the voice of a clip that says `REFERENCE_TEXT`."""
        reference = self._reference(voice)
        cap = _FRAMES_MORE + _FRAMES_PER_LETTER * len(text)
        sampling = Sampling(
            seed=seed,
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
            top_k=self._sampling.top_k,
            max_frames=cap,
        )
        began = time.perf_counter()
        segment = self._engine.render(RenderSpec(text, reference, sampling))
        self.work_seconds += time.perf_counter() - began
        self.audio_seconds += len(segment.audio) / segment.sample_rate
        return Spoken(segment.audio, segment.finish_reason is FinishReason.END)

    def round_trip(self, wave: Wave) -> Wave:
        """Return what is left of a wave at 44.1 kHz after encoding and decoding."""
        codes = self._engine.encode_reference(wave, self._engine.sample_rate)
        with torch.inference_mode():
            decoded = self._decoder.decode([torch.from_numpy(codes.astype(np.int64))])[0]
        return np.asarray(decoded[: len(wave)].numpy(), np.float32)

    def _reference(self, voice: EspeakVoice) -> Reference:
        if voice not in self._references:
            clip = clean_wave(REFERENCE_TEXT, voice)
            began = time.perf_counter()
            codes = self._engine.encode_reference(clip, self._engine.sample_rate)
            self.work_seconds += time.perf_counter() - began
            self._references[voice] = Reference(REFERENCE_TEXT, codes)
        return self._references[voice]


Report = Callable[[str], None]
