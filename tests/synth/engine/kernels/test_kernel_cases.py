"""A benchmark finds every kernel, with inputs that stay the same from run to run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.gpu_check import kernel_cases
from synth.engine import kernels


def test_every_module_with_kernels_beside_a_torch_form_has_cases() -> None:
    folder = Path(kernels.__file__).parent
    paired = {path.stem for path in folder.glob("*.py") if "_torch(" in path.read_text("utf-8")}

    assert paired >= {"attention", "embed", "gemv", "heads", "norm", "sampler", "swiglu"}
    assert set(kernel_cases.CASES) == paired


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
