"""Render the clean speech that a checkpoint is measured against."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from lab.training.espeak import HELD_OUT, VOICES, EspeakVoice, espeak
from lab.training.synthesis import upsample

VOICES_FILE = "voices.json"
Wave = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class MeasuredVoices:
    """Hold the voices a checkpoint was trained on, by name, and one that it was not."""

    trained: dict[str, EspeakVoice]
    held_out: EspeakVoice


def measured_voices(checkpoint: Path) -> MeasuredVoices:
    """Return what the checkpoint's voices.json names, or this recipe's voices where it has none.

    Raises:
        ValueError: the file cannot be understood.
    """
    path = checkpoint / VOICES_FILE
    if not path.is_file():
        return MeasuredVoices({voice.name: voice.espeak for voice in VOICES}, HELD_OUT.espeak)
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        trained = {name: EspeakVoice(**voice) for name, voice in given["trained"].items()}
        return MeasuredVoices(trained, EspeakVoice(**given["held_out"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} does not describe voices: {error!r}") from error


def voices_json() -> dict[str, Any]:
    """Return the content of voices.json for this recipe's voices."""

    def fields(voice: EspeakVoice) -> dict[str, Any]:
        return {name: getattr(voice, name) for name in EspeakVoice.__slots__}

    return {
        "trained": {voice.name: fields(voice.espeak) for voice in VOICES},
        "held_out": fields(HELD_OUT.espeak),
    }


@lru_cache(maxsize=4096)
def clean_wave(text: str, voice: EspeakVoice) -> Wave:
    """Return the synthesiser's own rendering at 44.1 kHz."""
    spoken = espeak().say(text, voice)
    half_rate = torch.from_numpy(spoken.wave.astype(np.float32) / 32768.0)[None]
    wave: Wave = upsample(half_rate)[0].numpy()
    return wave


def control_wave(text: str, voice: EspeakVoice) -> Wave:
    """Return clean speech at another pitch and a tenth faster: what a perfect model may differ."""
    pitch = min(99, voice.pitch + 20)
    return clean_wave(text, replace(voice, pitch=pitch, rate=round(voice.rate * 1.1)))
