"""torchaudio imports beside every torch: whole, or without a binary part that does not load."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from synth.engine.codec import torchaudio_import

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


@pytest.mark.parametrize("way", ["installed", "up to 2.10"])
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


def test_the_installers_check_says_that_the_binary_part_is_left_out(damaged: Path) -> None:
    ended = run(damaged, torchaudio_import.__file__)
    assert ended.returncode == torchaudio_import.EXIT_WITHOUT_BINARY
    assert ended.stdout.startswith("torchaudio 2.")
    assert "without its binary part" in ended.stdout


def test_a_torchaudio_that_cannot_be_used_at_all_is_said_with_both_reasons(damaged: Path) -> None:
    shutil.rmtree(damaged / "torchaudio" / "transforms")

    ended = run(damaged, torchaudio_import.__file__)

    assert ended.returncode == 1
    assert ended.stdout.startswith("torchaudio cannot be imported (OSError: ")
    assert "No module named 'torchaudio.transforms'" in ended.stdout


def test_a_torchaudio_of_unknown_shape_is_not_taken_apart(damaged: Path) -> None:
    (damaged / "torchaudio" / "_extension" / "utils.py").unlink()
    ended = run(damaged, torchaudio_import.__file__)
    assert ended.returncode == 1
    assert "loads its binary part in an unknown way" in ended.stdout
