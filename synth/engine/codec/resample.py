"""Bring a waveform to another sample rate, by torchaudio or by an equal filter of our own."""

from __future__ import annotations

import enum
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from synth.engine.codec.sinc_filter import SincFilter, reduced_rates
from synth.engine.codec.torchaudio_import import import_torchaudio
from synth.engine.errors import ReferenceAudioError, ResamplerUnavailableError

MAX_RATE = 384_000  # Hz; far above any clip, and it bounds a filter's size
MAX_FILTERS = 8
# torchaudio keeps all taps of all phases, 15 GB for 44101 -> 44100 Hz; ours the non-zero ones.
MAX_TORCHAUDIO_TAPS = 1 << 24

_Resample = Callable[[Tensor], Tensor]
_filters: OrderedDict[tuple[object, ...], _Resample] = OrderedDict()
_filters_lock = threading.Lock()


class ResamplerChoice(enum.StrEnum):
    """Say which resampler to use; `auto` is torchaudio where it imports and fits."""

    AUTO = "auto"
    TORCHAUDIO = "torchaudio"
    BUILTIN = "builtin"


def resample_waveform(
    waveform: Tensor,
    rate_in: int,
    rate_out: int,
    choice: ResamplerChoice = ResamplerChoice.AUTO,
) -> tuple[Tensor, str]:
    """Return a float32 waveform [N] at `rate_out` Hz, on its device, and which resampler ran.

    The result has ceil(N * rate_out / rate_in) samples. The name is `torchaudio` or `builtin`,
    also where the rates are equal and nothing had to be done.

    Raises:
        ReferenceAudioError: a rate is not between 1 and `MAX_RATE`, or the waveform is not one
            axis of float32.
        ResamplerUnavailableError: torchaudio is asked for and cannot be used.
    """
    for rate in (rate_in, rate_out):
        if not 1 <= rate <= MAX_RATE:
            raise ReferenceAudioError(
                f"A sample rate of {rate} Hz is outside 1 to {MAX_RATE} Hz; convert the clip."
            )
    if waveform.dim() != 1 or waveform.dtype is not torch.float32:
        raise ReferenceAudioError(
            f"A waveform to resample must be one axis of float32, not {waveform.dtype} of shape "
            f"{tuple(waveform.shape)}."
        )
    name = chosen_resampler(choice, rate_in, rate_out)
    if rate_in == rate_out or waveform.shape[0] == 0:
        return waveform, name
    return _filter(name, rate_in, rate_out, waveform.device, waveform.dtype)(waveform), name


def chosen_resampler(choice: ResamplerChoice, rate_in: int, rate_out: int) -> str:
    """Return the name of the resampler that `choice` means here for these rates.

    Raises:
        ResamplerUnavailableError: torchaudio is asked for, and it cannot be imported or its filter
            for these rates would not fit in memory.
    """
    if choice is ResamplerChoice.BUILTIN:
        return "builtin"
    problem = torchaudio_problem(rate_in, rate_out)
    if problem is None:
        return "torchaudio"
    if choice is ResamplerChoice.TORCHAUDIO:
        raise ResamplerUnavailableError(
            f"TTS_RESAMPLER=torchaudio cannot be used: {problem}. Install a torchaudio that "
            "fits this torch, or set TTS_RESAMPLER=builtin, which gives the same result."
        )
    return "builtin"


def usable_resamplers(rate_in: int, rate_out: int) -> list[ResamplerChoice]:
    """Return the resamplers that can be forced here between these rates; ours always."""
    if torchaudio_problem(rate_in, rate_out) is None:
        return [ResamplerChoice.BUILTIN, ResamplerChoice.TORCHAUDIO]
    return [ResamplerChoice.BUILTIN]


def torchaudio_problem(rate_in: int, rate_out: int) -> str | None:
    """Return why torchaudio cannot resample between these rates here, or None where it can."""
    found = import_torchaudio()
    if found.module is None:
        return str(found)
    reach, step, phases = reduced_rates(rate_in, rate_out)
    if phases * (2 * reach + step) > MAX_TORCHAUDIO_TAPS:
        return f"its filter from {rate_in} to {rate_out} Hz is too large"
    return None


def _filter(
    name: str, rate_in: int, rate_out: int, device: torch.device, dtype: torch.dtype
) -> _Resample:
    """Return the filter between these rates, made once for each device and dtype."""
    key = (name, rate_in, rate_out, device, dtype)
    with _filters_lock:
        kept = _filters.get(key)
        if kept is None:
            kept = _filters[key] = _make_filter(name, rate_in, rate_out, device)
        _filters.move_to_end(key)
        while len(_filters) > MAX_FILTERS:
            _filters.popitem(last=False)
        return kept


def _make_filter(name: str, rate_in: int, rate_out: int, device: torch.device) -> _Resample:
    if name == "builtin":
        return SincFilter(rate_in, rate_out, device)
    torchaudio: Any = import_torchaudio().module
    transform: _Resample = torchaudio.transforms.Resample(rate_in, rate_out).to(device)
    return transform
