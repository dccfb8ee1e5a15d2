"""Comparing a kernel with its torch form can fail."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from lab.gpu_check.kernels import check_kernels, compare, poisoned_memory
from lab.gpu_check.steps import Context, NotMeasuredError

INF = float("inf")
ONES = torch.ones(4)


@pytest.mark.parametrize(
    ("found", "expected", "error"),
    [
        (ONES, ONES, 0.0),
        (1.5 * ONES, ONES, 0.5),
        (torch.tensor([1.0, 1.0, 1.0, float("nan")]), ONES, INF),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), 0.0),
        (torch.tensor([1, 3]), torch.tensor([1, 2]), INF),
        (ONES[:3], ONES, INF),
        (ONES.bfloat16(), ONES, INF),
        (ONES, torch.zeros(4), 2.0),
    ],
)
def test_the_error_is_a_share_and_infinite_where_nothing_is_equal(
    found: torch.Tensor, expected: torch.Tensor, error: float
) -> None:
    assert compare([found], [expected]) == pytest.approx(error)


def test_the_worst_result_counts_and_a_missing_one_is_a_mismatch() -> None:
    assert compare([ONES, 2 * ONES], [ONES, ONES]) == pytest.approx(1.0)
    assert compare([ONES], [ONES, ONES]) == INF


def test_new_memory_holds_nan_until_it_is_written() -> None:
    with poisoned_memory():
        assert torch.empty(1000).isnan().all()
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_cpu_runs_no_kernel(tmp_path: Path) -> None:
    context = Context(torch.device("cpu"), "tiny", tmp_path, tmp_path, lambda line: None)
    with pytest.raises(NotMeasuredError, match="needs a GPU"):
        check_kernels(context, torch.float32)
