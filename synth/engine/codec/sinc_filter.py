"""Filter a waveform to another sample rate by a windowed sinc, as torchaudio's default does.

Facts of that default: a Hann-windowed sinc of six zero crossings a side, cut off at 0.99 of the
lower Nyquist frequency. torchaudio convolves with all taps of a phase, nearly all of them zero when
the rates have no large common divisor; here each phase keeps only the taps inside the window.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

ZERO_CROSSINGS = 6
ROLLOFF = 0.99
MAX_PRODUCTS = 1 << 23  # of samples with taps, at once: 32 MiB


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
