"""Numbers of the host arrive on the device as they were."""

from __future__ import annotations

import pytest
import torch

from synth.engine.transfer import copy_to, to_device


def test_values_arrive_in_rows_that_are_not_contiguous() -> None:
    values, target = torch.arange(12).view(3, 4).T, torch.zeros(5, 3, dtype=torch.int64)

    copy_to(target[1:], values)

    assert torch.equal(target[1:], values) and not target[0].any()
    assert torch.equal(to_device(values, torch.device("cpu")), values)


@pytest.mark.gpu
def test_values_reach_a_gpu_behind_work_that_is_queued() -> None:
    device = torch.device("cuda")
    queued = torch.randn(2048, 2048, device=device)
    for _ in range(20):
        queued = queued @ queued / 2048

    values = torch.arange(12).view(3, 4).T
    found = to_device(values, device)

    assert found.is_cuda and torch.equal(found.cpu(), values)
