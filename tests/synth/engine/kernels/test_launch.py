"""Whether kernels can run is known without importing triton, and why not is said."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
import torch

from synth.engine.kernels import is_available, why_unavailable

CPU = torch.device("cpu")


def test_missing_triton_is_named_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    assert not is_available(CPU)
    assert "Triton is not installed" in str(why_unavailable(CPU))


@pytest.mark.parametrize(("value", "available"), [("1", True), ("true", True), ("0", False)])
def test_kernels_run_on_a_cpu_in_the_interpreter_alone(
    monkeypatch: pytest.MonkeyPatch, value: str, available: bool
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setenv("TRITON_INTERPRET", value)

    assert is_available(CPU) is available


@pytest.mark.parametrize(
    ("interpreted", "capability", "reason"),
    [("", (9, 0), None), ("", (7, 5), "this device has 7.5"), ("1", (9, 0), "unset it")],
)
def test_cuda_device_needs_bfloat16_and_compiled_kernels(
    monkeypatch: pytest.MonkeyPatch,
    interpreted: str,
    capability: tuple[int, int],
    reason: str | None,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)

    found = why_unavailable(torch.device("cuda"))

    assert found is None if reason is None else reason in str(found)


def test_other_devices_are_refused_by_name() -> None:
    assert "meta" in str(why_unavailable(torch.device("meta"))) or not importlib.util.find_spec(
        "triton"
    )


def test_package_and_its_question_import_no_triton() -> None:
    code = "from synth.engine import kernels; kernels.is_available(); import sys; "
    check = "assert 'triton' not in sys.modules"

    subprocess.run([sys.executable, "-c", code + check], check=True)
