"""Bring a waveform to another sample rate, by torchaudio or by an equal filter of our own."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.codec.torchaudio_import import import_torchaudio
from synth.engine.errors import ReferenceAudioError, ResamplerUnavailableError

# torchaudio's default is a Hann-windowed sinc of six zero crossings a side, cut off at 0.99 of the
# lower Nyquist frequency. It convolves with all taps of a phase, nearly all of them zero when the
# rates have no large common divisor; here each phase keeps only the taps inside the window.

ZERO_CROSSINGS = 6
ROLLOFF = 0.99
MAX_PRODUCTS = 1 << 23  # of samples with taps, at once: 32 MiB
MAX_RATE = 384_000  # Hz; far above any clip, and it bounds a filter's size
MAX_FILTERS = 8
# torchaudio keeps all taps of all phases, 15 GB for 44101 -> 44100 Hz; ours the non-zero ones.
MAX_TORCHAUDIO_TAPS = 1 << 24
_Resample = Callable[[Tensor], Tensor]


def reduced_rates(rate_in: int, rate_out: int) -> tuple[int, int, int]:
    """Return the taps' reach in samples, the input samples of a period, and its output phases."""
    divisor = math.gcd(rate_in, rate_out)
    step, phases = rate_in // divisor, rate_out // divisor
    reach = math.ceil(ZERO_CROSSINGS * step / (ROLLOFF * min(step, phases)))
    return reach, step, phases


class SincFilter:
    """Hold the taps between two rates on one device; calling it resamples a waveform.

    `taps_dtype` float64 is torchaudio's `Resample` transform, float32 its function of that name.
    """

    def __init__(
        self,
        rate_in: int,
        rate_out: int,
        device: torch.device | str = "cpu",
        taps_dtype: torch.dtype = torch.float64,
    ) -> None:
        self._reach, self._step, self._phases = reduced_rates(rate_in, rate_out)
        starts, taps = self._taps(taps_dtype)
        self._taps_of_phase = taps.to(device)
        columns = starts[:, None] + torch.arange(taps.shape[1]) + self._reach
        self._columns = columns.to(device)  # into a period's padded input

    def __call__(self, waveform: Tensor) -> Tensor:
        """Return float32 [ceil(N * phases / step)] for float32 [N] on the same device."""
        length = -(-waveform.shape[0] * self._phases // self._step)
        periods = -(-length // self._phases)
        span = 2 * self._reach + self._step + 1
        padded = F.pad(
            waveform, (self._reach, (periods - 1) * self._step + span - waveform.shape[0])
        )
        windows = padded.unfold(0, span, self._step)[:periods]  # [periods, span], a view
        at_once = max(1, MAX_PRODUCTS // self._columns.numel())
        pieces = [
            (windows[at : at + at_once, self._columns] * self._taps_of_phase).sum(-1).flatten()
            for at in range(0, periods, at_once)
        ]
        return torch.cat(pieces)[:length]

    def _taps(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the first input sample of each phase, and float32 taps [phases, 2 reach + 2]."""
        base = ROLLOFF * min(self._step, self._phases)
        phase = torch.arange(self._phases)
        starts = phase * self._step // self._phases - self._reach
        inputs = starts[:, None] + torch.arange(2 * self._reach + 2)
        # The phase's own time is rounded to float32 in either variant; the rest need not be.
        times = inputs.to(dtype) / self._step - (phase.float() / self._phases)[:, None].to(dtype)
        times = (times * base).clamp(-ZERO_CROSSINGS, ZERO_CROSSINGS)
        window = (times * (math.pi / ZERO_CROSSINGS / 2)).cos().square()
        angle = times * math.pi
        sinc = torch.where(angle == 0, torch.ones_like(angle), angle.sin() / angle)
        return starts, (sinc * window * (base / self._step)).float()


class ResamplerChoice(enum.StrEnum):
    """Say which resampler to use; `auto` is torchaudio where it imports and fits."""

    AUTO = "auto"
    TORCHAUDIO = "torchaudio"
    BUILTIN = "builtin"


def resample_waveform(
    waveform: Tensor, rate_in: int, rate_out: int, choice: ResamplerChoice = ResamplerChoice.AUTO
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
    return resampling_filter(name, rate_in, rate_out, waveform.device)(waveform), name


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
            f"torchaudio cannot be used: {problem}. Install a torchaudio that "
            "fits this torch, or set TTS_ENGINE_WITHOUT=torchaudio, which gives the same result."
        )
    return "builtin"


def torchaudio_problem(rate_in: int, rate_out: int) -> str | None:
    """Return why torchaudio cannot resample between these rates here, or None where it can."""
    found = import_torchaudio()
    if found.module is None:
        return str(found)
    reach, step, phases = reduced_rates(rate_in, rate_out)
    if phases * (2 * reach + step) > MAX_TORCHAUDIO_TAPS:
        return f"its filter from {rate_in} to {rate_out} Hz is too large"
    return None


@functools.lru_cache(maxsize=MAX_FILTERS)
def resampling_filter(name: str, rate_in: int, rate_out: int, device: torch.device) -> _Resample:
    """Return the filter between these rates, kept for each device."""
    if name == "builtin":
        return SincFilter(rate_in, rate_out, device)
    torchaudio: Any = import_torchaudio().module
    transform: _Resample = torchaudio.transforms.Resample(rate_in, rate_out).to(device)
    return transform
