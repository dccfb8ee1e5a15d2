"""Test which resampler runs, what it refuses, and that filters are kept and bounded."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from synth.engine.codec import resample as module
from synth.engine.codec.resample import (
    MAX_FILTERS,
    ResamplerChoice,
    chosen_resampler,
    resample_waveform,
    torchaudio_problem,
    usable_resamplers,
)
from synth.engine.codec.sinc_filter import SincFilter
from synth.engine.errors import ReferenceAudioError, ResamplerUnavailableError

AUTO, BUILTIN, TORCHAUDIO = (
    ResamplerChoice.AUTO,
    ResamplerChoice.BUILTIN,
    ResamplerChoice.TORCHAUDIO,
)


@pytest.fixture(autouse=True)
def _no_filters_kept() -> Iterator[None]:
    module._filters.clear()
    yield
    module._filters.clear()


@pytest.fixture
def stub_torchaudio(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Put a stand-in in torchaudio's place and return the rates it is asked for.

    The real one may be unable to import beside this torch; what is tested is our choosing.
    """
    asked: list[tuple[int, int]] = []

    class Resample(torch.nn.Module):
        def __init__(self, rate_in: int, rate_out: int) -> None:
            super().__init__()
            asked.append((rate_in, rate_out))

        def forward(self, wave: Tensor) -> Tensor:
            return wave * 0 + 7

    stub = types.ModuleType("torchaudio")
    stub.transforms = types.SimpleNamespace(Resample=Resample)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchaudio", stub)
    return asked


@pytest.fixture
def broken_torchaudio(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Put a torchaudio first whose import fails as that of a wheel for another torch does."""
    (tmp_path / "torchaudio.py").write_text(
        "raise OSError('Could not load this library: libtorch_cuda.so')\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchaudio", raising=False)


def test_auto_follows_what_the_torchaudio_of_this_machine_does() -> None:
    wave, name = resample_waveform(torch.randn(480), 48000, 44100)

    assert name == ("torchaudio" if torchaudio_problem() is None else "builtin")
    assert wave.shape == (441,)


@pytest.mark.usefixtures("broken_torchaudio")
def test_auto_goes_on_with_the_builtin_where_torchaudio_fails_to_import() -> None:
    wave, name = resample_waveform(torch.randn(480), 48000, 44100)

    assert name == "builtin"
    assert wave.shape == (441,)


@pytest.mark.usefixtures("broken_torchaudio")
def test_forcing_a_torchaudio_that_fails_to_import_is_an_error_with_the_reason() -> None:
    with pytest.raises(ResamplerUnavailableError) as refused:
        resample_waveform(torch.randn(480), 48000, 44100, TORCHAUDIO)

    assert refused.value.code == "resampler_unavailable"
    assert "OSError: Could not load this library: libtorch_cuda.so" in str(refused.value)
    assert "TTS_RESAMPLER=builtin" in str(refused.value)


def test_a_torchaudio_that_is_not_installed_is_an_error_when_forced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torchaudio", None)

    with pytest.raises(ResamplerUnavailableError, match=r"cannot be imported \(ModuleNotFound"):
        chosen_resampler(TORCHAUDIO, 48000, 44100)
    assert chosen_resampler(AUTO, 48000, 44100) == "builtin"


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44056, 48000, 88200, 96000])
def test_every_resampler_of_this_machine_gives_the_builtins_wave(rate: int) -> None:
    wave = torch.randn(4000)
    expected = SincFilter(rate, 44100)(wave)

    for choice in usable_resamplers():
        found, name = resample_waveform(wave, rate, 44100, choice)

        assert name == choice
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_auto_prefers_a_torchaudio_that_imports(stub_torchaudio: list[tuple[int, int]]) -> None:
    wave, name = resample_waveform(torch.randn(10), 48000, 44100)

    assert (name, set(wave.tolist())) == ("torchaudio", {7.0})
    assert stub_torchaudio == [(48000, 44100)]
    assert resample_waveform(torch.randn(10), 48000, 44100, BUILTIN)[1] == "builtin"


def test_rates_whose_torchaudio_filter_would_fill_memory_take_the_builtin(
    stub_torchaudio: list[tuple[int, int]],
) -> None:
    assert resample_waveform(torch.randn(100), 44101, 44100)[1] == "builtin"
    with pytest.raises(ResamplerUnavailableError, match="too large"):
        resample_waveform(torch.randn(100), 44101, 44100, TORCHAUDIO)
    assert stub_torchaudio == []


def test_equal_rates_leave_the_wave_and_still_name_a_resampler() -> None:
    wave = torch.randn(100)

    found, name = resample_waveform(wave, 44100, 44100, BUILTIN)

    assert found is wave
    assert name == "builtin"


def test_a_filter_is_made_once_for_its_rates(stub_torchaudio: list[tuple[int, int]]) -> None:
    for _ in range(3):
        resample_waveform(torch.randn(10), 48000, 44100)
        resample_waveform(torch.randn(10), 32000, 44100)

    assert stub_torchaudio == [(48000, 44100), (32000, 44100)]


def test_kept_filters_are_bounded_and_the_oldest_goes_first() -> None:
    rates = [8000 + 100 * index for index in range(MAX_FILTERS + 1)]
    for rate in rates[:-1]:
        resample_waveform(torch.randn(10), rate, 44100, BUILTIN)
    resample_waveform(torch.randn(10), rates[0], 44100, BUILTIN)
    resample_waveform(torch.randn(10), rates[-1], 44100, BUILTIN)

    kept = [key[1] for key in module._filters]
    assert len(kept) == MAX_FILTERS
    assert rates[0] in kept and rates[1] not in kept


@pytest.mark.parametrize("rate", [0, -44100, 384_001])
def test_a_rate_that_no_clip_has_is_refused(rate: int) -> None:
    with pytest.raises(ReferenceAudioError, match="sample rate"):
        resample_waveform(torch.randn(10), rate, 44100)


@pytest.mark.parametrize("wave", [torch.randn(2, 10), torch.randn(10).double()])
def test_another_shape_or_dtype_is_refused(wave: Tensor) -> None:
    with pytest.raises(ReferenceAudioError, match="float32"):
        resample_waveform(wave, 48000, 44100)


def test_usable_resamplers_are_those_that_can_be_forced(
    monkeypatch: pytest.MonkeyPatch, stub_torchaudio: list[tuple[int, int]]
) -> None:
    assert usable_resamplers() == [BUILTIN, TORCHAUDIO]

    monkeypatch.setitem(sys.modules, "torchaudio", None)

    assert usable_resamplers() == [BUILTIN]


def test_choices_are_spelled_as_the_setting_is() -> None:
    assert [str(choice) for choice in ResamplerChoice] == ["auto", "torchaudio", "builtin"]
    assert ResamplerChoice("builtin") is BUILTIN
