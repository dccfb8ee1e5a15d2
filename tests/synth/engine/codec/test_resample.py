"""Test which resampler runs, what it refuses, and that filters are kept and bounded."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder

import numpy as np
import pytest
import torch
from torch import Tensor

from synth.engine.codec import resample as module
from synth.engine.codec import torchaudio_import
from synth.engine.codec.resample import (
    MAX_FILTERS,
    ResamplerChoice,
    SincFilter,
    reduced_rates,
    resample_waveform,
    resampling_filter,
    torchaudio_problem,
)
from synth.engine.errors import ReferenceAudioError, ResamplerUnavailableError

AUTO, BUILTIN, TORCHAUDIO = (
    ResamplerChoice.AUTO,
    ResamplerChoice.BUILTIN,
    ResamplerChoice.TORCHAUDIO,
)


@pytest.fixture(autouse=True)
def _no_filters_kept() -> Iterator[None]:
    resampling_filter.cache_clear()
    yield
    resampling_filter.cache_clear()


@pytest.fixture
def without_torchaudio(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torchaudio be missing, as where the installer could not get it."""
    for name in [name for name in sys.modules if name.split(".")[0] == "torchaudio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(PathFinder, "find_spec", lambda *_args: None)
    found = torchaudio_import._try_import()
    monkeypatch.undo()
    monkeypatch.setattr(module, "import_torchaudio", lambda: found)


def test_torchaudio_resamples_on_every_install() -> None:
    wave, name = resample_waveform(torch.randn(480), 48000, 44100)

    assert torchaudio_problem(48000, 44100) is None
    assert name == "torchaudio"
    assert wave.shape == (441,)
    kept = resampling_filter("torchaudio", 48000, 44100, torch.device("cpu"))
    assert resampling_filter.cache_info().hits == 1
    assert type(kept).__module__.startswith("torchaudio.transforms")


@pytest.mark.usefixtures("without_torchaudio")
def test_auto_goes_on_with_the_builtin_where_torchaudio_fails_to_import() -> None:
    wave, name = resample_waveform(torch.randn(480), 48000, 44100)
    assert name == "builtin"
    assert wave.shape == (441,)
    assert torchaudio_problem(48000, 44100) is not None


@pytest.mark.usefixtures("without_torchaudio")
def test_forcing_a_torchaudio_that_fails_to_import_is_an_error_with_the_reason() -> None:
    with pytest.raises(ResamplerUnavailableError) as refused:
        resample_waveform(torch.randn(480), 48000, 44100, TORCHAUDIO)
    assert refused.value.code == "resampler_unavailable"
    assert "cannot be imported (ModuleNotFoundError: " in str(refused.value)
    assert "TTS_ENGINE_WITHOUT=torchaudio" in str(refused.value)


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 32000, 48000, 88200, 96000])
def test_torchaudio_and_the_builtin_give_the_same_wave(rate: int) -> None:
    wave = torch.rand(4000, generator=torch.Generator().manual_seed(rate)) * 2 - 1
    found, name = resample_waveform(wave, rate, 44100, TORCHAUDIO)
    assert name == TORCHAUDIO
    torch.testing.assert_close(found, SincFilter(rate, 44100)(wave), atol=1e-6, rtol=0)


def test_rates_whose_torchaudio_filter_would_fill_memory_take_the_builtin() -> None:
    assert resample_waveform(torch.randn(100), 44101, 44100)[1] == "builtin"
    assert torchaudio_problem(44101, 44100) is not None
    with pytest.raises(ResamplerUnavailableError, match="too large"):
        resample_waveform(torch.randn(100), 44101, 44100, TORCHAUDIO)


def test_equal_rates_leave_the_wave_and_still_name_a_resampler() -> None:
    wave = torch.randn(100)
    found, name = resample_waveform(wave, 44100, 44100, BUILTIN)
    assert found is wave
    assert name == "builtin"


@pytest.mark.parametrize("choice", [BUILTIN, TORCHAUDIO])
def test_a_filter_is_made_once_for_its_rates(choice: ResamplerChoice) -> None:
    for _ in range(3):
        resample_waveform(torch.randn(10), 48000, 44100, choice)
        resample_waveform(torch.randn(10), 32000, 44100, choice)

    made = resampling_filter.cache_info()
    assert (made.misses, made.hits, made.currsize) == (2, 4, 2)


def test_kept_filters_are_bounded_and_the_oldest_goes_first() -> None:
    rates = [8000 + 100 * index for index in range(MAX_FILTERS + 1)]
    for rate in rates[:-1]:
        resample_waveform(torch.randn(10), rate, 44100, BUILTIN)
    resample_waveform(torch.randn(10), rates[0], 44100, BUILTIN)
    resample_waveform(torch.randn(10), rates[-1], 44100, BUILTIN)

    made = resampling_filter.cache_info()
    assert (made.misses, made.hits, made.currsize) == (MAX_FILTERS + 1, 1, MAX_FILTERS)
    for rate, is_kept in ((rates[0], True), (rates[1], False)):
        before = resampling_filter.cache_info().hits
        resample_waveform(torch.randn(10), rate, 44100, BUILTIN)
        assert (resampling_filter.cache_info().hits > before) is is_kept


@pytest.mark.parametrize("rate", [0, -44100, 384_001])
def test_a_rate_that_no_clip_has_is_refused(rate: int) -> None:
    with pytest.raises(ReferenceAudioError, match="sample rate"):
        resample_waveform(torch.randn(10), rate, 44100)


@pytest.mark.parametrize("wave", [torch.randn(2, 10), torch.randn(10).double()])
def test_another_shape_or_dtype_is_refused(wave: Tensor) -> None:
    with pytest.raises(ReferenceAudioError, match="float32"):
        resample_waveform(wave, 48000, 44100)


def test_choices_are_spelled_as_the_setting_is() -> None:
    assert [str(choice) for choice in ResamplerChoice] == ["auto", "torchaudio", "builtin"]
    assert ResamplerChoice("builtin") is BUILTIN


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
