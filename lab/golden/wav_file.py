"""Read the vectors' sound files, also where the library for it is missing."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lab.golden.case import GoldenFolderError

_PCM16_BYTES, _PCM16_SCALE = 2, 32768.0


def read_wav(path: Path) -> tuple[Tensor, int]:
    """Return a file's samples, float32 [channels, N] with full scale at 1, and its rate in Hz.

    Raises:
        GoldenFolderError: the package soundfile is missing and the file is not PCM of 16 bits.
    """
    try:
        import soundfile
    except ImportError:
        return _read_pcm16(path)
    samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    return torch.from_numpy(samples).t(), rate


def _read_pcm16(path: Path) -> tuple[Tensor, int]:
    try:
        with wave.open(str(path), "rb") as file:
            width, rate, channels = file.getsampwidth(), file.getframerate(), file.getnchannels()
            content = file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise GoldenFolderError(f"{path} needs the package soundfile: {error}.") from error
    if width != _PCM16_BYTES:
        raise GoldenFolderError(f"{path} needs the package soundfile: it is no PCM of 16 bits.")
    samples = np.frombuffer(content, dtype="<i2").reshape(-1, channels)
    return torch.from_numpy(samples.astype(np.float32) / _PCM16_SCALE).t(), rate
