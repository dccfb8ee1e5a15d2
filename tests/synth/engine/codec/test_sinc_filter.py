"""Test the resampling filter against its plain definition and against bounded memory."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from synth.engine.codec.resample import SincFilter, reduced_rates


def by_definition(wave: list[float], rate_in: int, rate_out: int) -> list[float]:
    """Resample sample by sample in Python floats, with nothing shared between phases."""
    divisor = math.gcd(rate_in, rate_out)
    o, n = rate_in // divisor, rate_out // divisor
    b = 0.99 * min(o, n)
    out = []
    for index in range(math.ceil(n * len(wave) / o)):
        total = 0.0
        for position, value in enumerate(wave):
            phase, period = index % n, index // n
            # The phase's time, not the sample's, is rounded to float32: it shows at 1e-5.
            t = (position / o - period - float(np.float32(phase) / np.float32(n))) * b
            if abs(t) < 6:
                sinc = 1.0 if t == 0 else math.sin(math.pi * t) / (math.pi * t)
                total += value * sinc * math.cos(math.pi * t / 12) ** 2 * b / o
        out.append(total)
    return out


@pytest.mark.parametrize("rates", [(3, 2), (2, 3), (1, 4), (4, 1), (160, 147), (147, 160), (7, 5)])
@pytest.mark.parametrize("length", [1, 2, 40, 173])
def test_the_filter_is_its_definition(rates: tuple[int, int], length: int) -> None:
    wave = torch.randn(length, generator=torch.Generator().manual_seed(length))

    found = SincFilter(*rates)(wave)

    expected = torch.tensor(by_definition(wave.tolist(), *rates))
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


def tone(frequency: float, rate: int) -> Tensor:
    """Return a fifth of a second of a sine, float32."""
    time = torch.arange(rate // 5, dtype=torch.float64) / rate
    return (2 * math.pi * frequency * time).sin().float()


def test_a_low_tone_survives_and_one_above_the_new_limit_does_not() -> None:
    resampler, inner = SincFilter(96000, 44100), slice(50, -50)

    torch.testing.assert_close(
        resampler(tone(1000, 96000))[inner], tone(1000, 44100)[inner], atol=2e-3, rtol=0
    )
    # Six zero crossings damp it by 46 dB or so, no more.
    assert resampler(tone(30000, 96000))[inner].abs().max() < 1e-2


def test_pieces_of_a_long_wave_join_without_a_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    wave, resampler = torch.randn(5000), SincFilter(160, 147)
    whole = resampler(wave)

    monkeypatch.setattr("synth.engine.codec.resample.MAX_PRODUCTS", 1)

    assert torch.equal(resampler(wave), whole)


def test_rates_without_a_common_divisor_keep_few_taps() -> None:
    reach, step, phases = reduced_rates(44101, 44100)
    resampler = SincFilter(44101, 44100)

    assert (reach, step, phases) == (7, 44101, 44100)
    assert resampler._taps_of_phase.numel() == 44100 * 16
    assert resampler(torch.randn(3000)).shape == (math.ceil(3000 * 44100 / 44101),)


def test_taps_in_float32_differ_in_the_last_bits_only() -> None:
    wave = torch.randn(4000)

    exact, rounded = (
        SincFilter(96000, 44100)(wave),
        SincFilter(96000, 44100, "cpu", torch.float32)(wave),
    )

    assert 0 < (exact - rounded).abs().max() < 1e-4
