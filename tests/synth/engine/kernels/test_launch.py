"""Whether kernels can run is known without importing triton, and why not is said."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch

import synth.engine.kernels as launch
from lab.bench.models.shapes import preset
from synth.engine.kernels import why_unavailable
from synth.engine.loading import engine_config
from synth.engine.loading.engine_config import Card, choose_numbers


@pytest.mark.parametrize(
    ("kind", "is_installed", "interpreted", "capability", "reason"),
    [
        ("cpu", False, "1", (9, 0), "Triton is not installed"),
        ("cpu", True, "1", (9, 0), None),
        ("cpu", True, "true", (9, 0), None),
        ("cpu", True, "0", (9, 0), "need a CUDA device"),
        ("cuda", True, "", (9, 0), None),
        ("cuda", True, "", (7, 5), "this device has 7.5"),
        ("cuda", True, "1", (9, 0), "unset it"),
        ("meta", True, "", (9, 0), "not meta"),
    ],
)
def test_a_device_has_kernels_or_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    is_installed: bool,
    interpreted: str,
    capability: tuple[int, int],
    reason: str | None,
) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: object() if is_installed else None
    )
    monkeypatch.setattr(launch, "why_nothing_compiles", lambda: None)
    monkeypatch.setattr(launch, "why_nothing_runs", lambda device: None)
    pretend_cuda(monkeypatch, capability)
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    found = why_unavailable(torch.device(kind))
    assert found is None if reason is None else reason in str(found)


def pretend_cuda(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] = (9, 0)) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    card = Card("NVIDIA H200", capability, 140 * 2**30)
    monkeypatch.setattr(engine_config, "find_card", lambda device: card)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """A device on which only the compiler may be missing; earlier findings are forgotten."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.delenv("CC", raising=False)
    pretend_cuda(monkeypatch)
    monkeypatch.setattr(launch, "why_nothing_runs", lambda device: None)
    launch.why_nothing_compiles.cache_clear()
    yield torch.device("cuda")
    launch.why_nothing_compiles.cache_clear()


@pytest.mark.compiler
def test_python_without_its_header_is_the_reason(
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    monkeypatch.delenv("CPATH", raising=False)
    reason = str(why_unavailable(cuda))
    assert reason.startswith(f"Triton finds no Python.h in {tmp_path}; ")
    assert "apt-get install python3-dev" in reason


def test_compiler_that_fails_or_is_not_there_is_the_reason(
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\necho 'fatal error: stdio.h: No such file' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    words = "fails (fatal error: stdio.h: No such file); run apt-get install gcc libc6-dev"
    assert words in str(why_unavailable(cuda))
    monkeypatch.setenv("CC", "/nowhere/cc")
    launch.why_nothing_compiles.cache_clear()
    assert "/nowhere/cc cannot be run" in str(why_unavailable(cuda))


@pytest.mark.compiler
def test_an_extension_is_compiled_as_triton_compiles_its_own(cuda: torch.device) -> None:
    include = Path(sysconfig.get_paths()["include"]) / "Python.h"
    found = why_unavailable(cuda)
    assert (found is None) is include.is_file(), found


def test_kernel_that_does_not_run_or_computes_wrong_numbers_is_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rowwise = SimpleNamespace(swiglu=lambda x: x[:, :1])
    monkeypatch.setattr(importlib, "import_module", lambda name: rowwise)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    where = torch.device("cpu")  # stands for a card
    look = launch.why_nothing_runs.__wrapped__
    assert "compute wrong numbers" in str(look(where))
    rowwise.swiglu = lambda x: torch.nn.functional.silu(x[:, :1]) * x[:, 1:]
    assert look(where) is None
    rowwise.swiglu = Mock(side_effect=RuntimeError("PTX version 9.1 is too new\nmore"))
    assert str(look(where)).endswith("(RuntimeError: PTX version 9.1 is too new).")


def test_frames_on_cuda_are_said_with_why_they_are_slow(
    cuda: torch.device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    why = "Triton finds no C compiler; run apt-get install gcc libc6-dev, or set CC."
    assert why_unavailable(cuda) == why
    numbers = choose_numbers("auto", cuda, preset("tiny").config)
    assert numbers.frames == f"PyTorch, slower: {why}"
    assert choose_numbers("auto", cuda, preset("tiny").config, kernels="off").frames == (
        "PyTorch (TTS_ENGINE_WITHOUT=kernels)"
    )


def test_package_and_its_question_import_no_triton() -> None:
    code = "from synth.engine import kernels; kernels.why_unavailable(); import sys; "
    check = "assert 'triton' not in sys.modules"
    subprocess.run([sys.executable, "-c", code + check], check=True)
