"""Run kernels compiled where a CUDA device is, else in Triton's interpreter on the CPU.

Test modules here begin with `pytest.importorskip("triton")`, so that they are skipped by name where
triton is not installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
import torch

from tests.synth.engine.kernels.interpreter import hasten, round_like_a_device

# Triton looks at this when it is imported and when a kernel is defined, which is when test modules
# are imported: a fixture would be too late.
if not torch.cuda.is_available():
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("triton was imported before its interpreter could be chosen")
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(autouse=True)
def poisoned_memory() -> Iterator[None]:
    """Fill what torch.empty returns with NaN or large integers: unwritten results are seen."""
    was = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(was)


@pytest.fixture(autouse=True)
def interpreter(monkeypatch: pytest.MonkeyPatch, device: torch.device) -> None:
    """Let the interpreter round to bfloat16 as a device does, and be quicker."""
    if device.type == "cpu":
        pytest.importorskip("triton", reason="Triton is not installed")
        round_like_a_device(monkeypatch)
        hasten(monkeypatch)


@pytest.fixture
def generator(device: torch.device) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(7)
