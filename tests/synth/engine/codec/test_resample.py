"""Test which resampler runs, what it refuses, that filters are kept, and torchaudio's import.

torchaudio imports beside every torch: whole, or without a binary part that does not load.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

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

BUILTIN, TORCHAUDIO = ResamplerChoice.BUILTIN, ResamplerChoice.TORCHAUDIO


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
    assert name == "torchaudio" and wave.shape == (441,)
    kept = resampling_filter("torchaudio", 48000, 44100, torch.device("cpu"))
    assert resampling_filter.cache_info().hits == 1
    assert type(kept).__module__.startswith("torchaudio.transforms")


@pytest.mark.usefixtures("without_torchaudio")
def test_where_torchaudio_fails_to_import_the_builtin_is_taken_unless_it_was_forced() -> None:
    wave, name = resample_waveform(torch.randn(480), 48000, 44100)
    assert name == "builtin" and wave.shape == (441,)
    assert torchaudio_problem(48000, 44100) is not None
    with pytest.raises(ResamplerUnavailableError) as refused:
        resample_waveform(torch.randn(480), 48000, 44100, TORCHAUDIO)
    assert refused.value.code == "resampler_unavailable"
    assert "cannot be imported (ModuleNotFoundError: " in str(refused.value)
    assert "TTS_ENGINE_WITHOUT=torchaudio" in str(refused.value)


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 32000, 48000, 88200, 96000])
def test_torchaudio_and_the_builtin_give_the_same_wave(rate: int) -> None:
    for length in (1, 2, 173, 4000):
        wave = torch.rand(length, generator=torch.Generator().manual_seed(rate)) * 2 - 1
        found, name = resample_waveform(wave, rate, 44100, TORCHAUDIO)
        assert name == TORCHAUDIO
        torch.testing.assert_close(found, SincFilter(rate, 44100)(wave), atol=1e-6, rtol=0)


def test_rates_whose_torchaudio_filter_would_fill_memory_take_the_builtin() -> None:
    assert resample_waveform(torch.randn(100), 44101, 44100)[1] == "builtin"
    assert torchaudio_problem(44101, 44100) is not None
    with pytest.raises(ResamplerUnavailableError, match="too large"):
        resample_waveform(torch.randn(100), 44101, 44100, TORCHAUDIO)


@pytest.mark.parametrize("choice", [BUILTIN, TORCHAUDIO])
def test_a_filter_is_made_once_for_its_rates(choice: ResamplerChoice) -> None:
    for _ in range(3):
        resample_waveform(torch.randn(10), 48000, 44100, choice)
        resample_waveform(torch.randn(10), 32000, 44100, choice)
    made = resampling_filter.cache_info()
    assert (made.misses, made.hits, made.maxsize) == (2, 4, MAX_FILTERS)


@pytest.mark.parametrize(
    ("wave", "rate", "words"),
    [
        (torch.randn(10), 0, "sample rate"),
        (torch.randn(10), -44100, "sample rate"),
        (torch.randn(10), 384_001, "sample rate"),
        (torch.randn(2, 10), 48000, "float32"),
        (torch.randn(10).double(), 48000, "float32"),
    ],
)
def test_a_rate_shape_or_dtype_that_no_clip_has_is_refused(
    wave: Tensor, rate: int, words: str
) -> None:
    with pytest.raises(ReferenceAudioError, match=words):
        resample_waveform(wave, rate, 44100)


def test_choices_are_spelled_as_the_setting_is_and_equal_rates_leave_the_wave() -> None:
    assert [str(choice) for choice in ResamplerChoice] == ["auto", "torchaudio", "builtin"]
    wave = torch.randn(100)
    found, name = resample_waveform(wave, 44100, 44100, BUILTIN)
    assert found is wave and name == "builtin"


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


# How 2.9 and 2.10 ask for their binary part; the installed version's way is tested as it is.
UP_TO_2_10 = """
from torchaudio._internal.module_utils import fail_with_message, is_module_available, no_op
from .utils import _check_cuda_version, _load_lib

_IS_TORCHAUDIO_EXT_AVAILABLE = is_module_available("torchaudio.lib._torchaudio")
if _IS_TORCHAUDIO_EXT_AVAILABLE:
    _load_lib("libtorchaudio")
    import torchaudio.lib._torchaudio
fail_if_no_align = fail_with_message("alignment")
"""
COMPARE = """
import json, logging, torch
logging.basicConfig(level="INFO")
from synth.engine.codec.resample import ResamplerChoice, resample_waveform
wave = torch.rand(4800) * 2 - 1
ours, _ = resample_waveform(wave, 48000, 44100, ResamplerChoice.BUILTIN)
theirs, name = resample_waveform(wave, 48000, 44100)
import torchaudio
print(json.dumps([name, float((ours - theirs).abs().max()), torchaudio.__file__]))
"""


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Return a folder with the installed torchaudio, whose binary part does not load."""
    spec = PathFinder.find_spec("torchaudio")
    assert spec is not None and spec.origin is not None
    lib = shutil.copytree(Path(spec.origin).parent, tmp_path / "torchaudio") / "lib"
    shutil.rmtree(lib, ignore_errors=True)
    lib.mkdir()
    for name in ("_torchaudio.abi3.so", "_torchaudio.so", "libtorchaudio.so", "__init__.py"):
        (lib / name).write_text("no library\n" if name.endswith("so") else "", encoding="utf-8")
    return tmp_path


def run(first: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{first}{os.pathsep}{Path.cwd()}"}
    return subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "way", ["installed", pytest.param("up to 2.10", marks=pytest.mark.thorough)]
)
def test_a_binary_part_that_does_not_load_is_left_out_and_logged(damaged: Path, way: str) -> None:
    if way == "up to 2.10":
        extension = damaged / "torchaudio" / "_extension" / "__init__.py"
        extension.write_text(UP_TO_2_10, encoding="utf-8")
    ended = run(damaged, "-c", COMPARE)
    assert ended.returncode == 0, ended.stderr
    name, apart, file = json.loads(ended.stdout)
    assert (name, Path(file).parent.parent) == ("torchaudio", damaged)
    assert apart <= 1e-6
    assert "without its binary part, which cannot be loaded (OSError: " in ended.stderr


def test_the_installers_check_says_what_is_left_out(damaged: Path) -> None:
    ended = run(damaged, torchaudio_import.__file__)
    assert ended.returncode == torchaudio_import.EXIT_WITHOUT_BINARY
    assert ended.stdout.startswith("torchaudio 2.")
    assert "without its binary part" in ended.stdout


@pytest.mark.thorough
def test_the_installers_check_says_why_nothing_is_left(damaged: Path) -> None:
    (damaged / "torchaudio" / "_extension" / "utils.py").rename(damaged / "utils.py")
    ended = run(damaged, torchaudio_import.__file__)
    assert ended.returncode == 1
    assert "loads its binary part in an unknown way" in ended.stdout

    (damaged / "utils.py").rename(damaged / "torchaudio" / "_extension" / "utils.py")
    shutil.rmtree(damaged / "torchaudio" / "transforms")
    ended = run(damaged, torchaudio_import.__file__)
    assert ended.returncode == 1
    assert ended.stdout.startswith("torchaudio cannot be imported (OSError: ")
    assert "No module named 'torchaudio.transforms'" in ended.stdout
