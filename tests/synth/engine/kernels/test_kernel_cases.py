"""A benchmark finds every kernel, with inputs that stay the same from run to run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.gpu_check import kernel_cases
from synth.engine import kernels


def test_every_module_with_kernels_has_cases() -> None:
    folder = Path(kernels.__file__).parent
    found = {path.stem for path in folder.glob("*.py") if "@triton.jit" in path.read_text("utf-8")}
    assert found >= {"attention", "frame", "gemv", "rowwise", "sampler"}
    assert set(kernel_cases.CASES) == found | {"snake"}


def test_random_inputs_are_the_same_in_every_run(device: torch.device) -> None:
    first, second = (
        kernel_cases.random(3, 5, device=device, dtype=torch.bfloat16, scale=0.5) for _ in range(2)
    )
    assert torch.equal(first, second)
    assert first.shape == (3, 5) and first.dtype is torch.bfloat16


@pytest.mark.gpu
def test_every_case_is_close_to_its_torch_form_at_the_full_models_shape() -> None:
    for case in kernel_cases.kernel_cases(torch.device("cuda"), torch.bfloat16):
        found, expected = (as_tuple(form()) for form in (case.kernel, case.torch_form))
        for one, other in zip(found, expected, strict=True):
            error = (one.double() - other.double()).norm() / other.double().norm()
            assert error < 1e-2, f"{case.name} {case.shape}"


def as_tuple(tensors: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tensors if isinstance(tensors, tuple) else (tensors,)


PROJECT = Path(__file__).resolve().parents[4]


_MOST_STACK = 32  # bytes, which a sine takes; more is registers that were spilled


@pytest.mark.thorough
def test_kernels_compile_at_the_full_models_shapes_without_spilling(tmp_path: Path) -> None:
    environment = {key: os.environ[key] for key in os.environ if key != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"}

    run = subprocess.run(
        [sys.executable, "-m", "tests.synth.engine.kernels.compile_cases"],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr
    stacks = {line: int(line.split(" B stack")[0].split()[-1]) for line in run.stdout.splitlines()}
    assert len(stacks) > 10
    assert [line for line, stack in stacks.items() if stack > _MOST_STACK] == []
