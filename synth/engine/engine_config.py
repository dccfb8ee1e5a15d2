"""Describe how an engine is to be loaded, and resolve what is left to the machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from synth.engine.codec.resample import ResamplerChoice
from synth.engine.errors import InvalidSpecError

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Hold what `Engine.load` needs; every value is explicit, `auto` depends on the machine alone.

    `slots` streams are decoded at once, each with `max_positions` positions of prompt and speech.
    `threads` 0 leaves torch's own choice. `cache_dir` keeps digests of weights between starts.
    """

    checkpoint: Path
    device: str = "auto"
    dtype: str = "auto"
    codec_encode_dtype: str = "float32"
    codec_decode_dtype: str = "float32"
    resampler: str = "auto"
    slots: int = 8
    max_positions: int = 4096
    threads: int = 0
    cache_dir: Path | None = None


def resolve_device(name: str) -> torch.device:
    """Return the device of a setting: `auto` is CUDA where present, else the CPU.

    Raises:
        InvalidSpecError: the name is unknown to torch, or the machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidSpecError(f"{name!r} is not a device: use auto, cpu or cuda:N.") from error
    if device.type not in ("cpu", "cuda"):
        raise InvalidSpecError(f"{name!r} is not supported: use auto, cpu or cuda:N.")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise InvalidSpecError(
                f"{name!r} was asked for and torch {torch.__version__} sees {count} CUDA devices: "
                "use auto or cpu, or install a CUDA build with TTS_TORCH=cuda."
            )
        return torch.device("cuda", device.index or 0)
    return torch.device("cpu")


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the transformers' dtype: `auto` is bfloat16 on CUDA and float32 elsewhere."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return named_dtype(name)


def named_dtype(name: str) -> torch.dtype:
    """Return float32 or bfloat16 by its name; raise InvalidSpecError for any other."""
    if name not in _DTYPES:
        raise InvalidSpecError(f"{name!r} is not a number format: use float32 or bfloat16.")
    return _DTYPES[name]


def resampler_choice(name: str) -> ResamplerChoice:
    """Return the resampler of a setting; raise InvalidSpecError for an unknown name."""
    try:
        return ResamplerChoice(name)
    except ValueError as error:
        raise InvalidSpecError(
            f"{name!r} is not a resampler: use auto, torchaudio or builtin."
        ) from error
