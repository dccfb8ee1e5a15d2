"""Hold every Triton kernel to its torch form, at the shapes of the full model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lab.gpu_check.steps import Context, Found, NotMeasuredError, Step
from synth.engine.kernels import why_unavailable

if TYPE_CHECKING:
    from lab.gpu_check.kernel_cases import KernelCase, Tensors

COLUMNS = ("kernel", "shape", "error", "allowed", "passed")
# Of the norm of the difference over that of the torch form's result. A product in TF32, some 3e-4
# off, is too much in float32; bfloat16 results are rounded at other places than the torch form's.
ALLOWED = {torch.float32: 1e-4, torch.bfloat16: 1e-2}


def check_kernels(context: Context, dtype: torch.dtype) -> Found:
    """Run each kernel and its torch form on the same inputs, over memory filled with NaN."""
    found = Found(columns=COLUMNS)
    rows = []
    for case in cases_on(context, dtype):
        name = f"{case.name} {case.shape}"
        try:
            with poisoned_memory():
                wrong = compare(_tuple(case.kernel()), _tuple(case.torch_form()))
        except Exception as error:  # of torch, or of whatever compiles the kernel; the others go on  # noqa: BLE001
            found.mismatches.append(f"{name}: {first_line(error)}")
            continue
        passed = wrong <= ALLOWED[dtype]
        if not passed:
            found.mismatches.append(f"{name}: off by {wrong:.3g}")
        rows.append(
            {
                "kernel": case.name,
                "shape": case.shape,
                "error": wrong,
                "allowed": ALLOWED[dtype],
                "passed": passed,
            }
        )
    found.rows = rows
    return found


def cases_on(context: Context, dtype: torch.dtype) -> Sequence[KernelCase]:
    """Return the kernels' cases on the device.

    Raises:
        NotMeasuredError: no kernel runs here.
    """
    context.need_gpu("a compiled kernel")
    reason = why_unavailable(context.device)
    if reason is not None:
        raise NotMeasuredError(reason)
    from lab.gpu_check.kernel_cases import kernel_cases  # needs Triton

    return kernel_cases(context.device, dtype)


def first_line(error: Exception) -> str:
    """Return an error's class and the first line of its text."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def compare(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """Return the largest error of a kernel's results; infinite for other integers or any NaN."""
    if len(found) != len(expected):
        return float("inf")
    return max((_error(a, b) for a, b in zip(found, expected, strict=True)), default=0.0)


def _error(found: Tensor, expected: Tensor) -> float:
    if found.shape != expected.shape or found.dtype is not expected.dtype:
        return float("inf")
    if not expected.is_floating_point():
        return 0.0 if torch.equal(found, expected) else float("inf")
    wanted = expected.double()
    difference = float((found.double() - wanted).norm())
    size = float(wanted.norm())
    # A comparison with NaN is false, so that one gives infinity here and not a small number.
    ratio = difference / size if size else difference
    return ratio if ratio >= 0 else float("inf")


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Have every new tensor hold NaN, or the largest integer, until something is written there."""
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warned)


def _tuple(tensors: Tensors) -> tuple[Tensor, ...]:
    return tensors if isinstance(tensors, tuple) else (tensors,)


STEPS = (
    Step("kernels-float32", 60, partial(check_kernels, dtype=torch.float32)),
    Step("kernels-bfloat16", 60, partial(check_kernels, dtype=torch.bfloat16)),
)
