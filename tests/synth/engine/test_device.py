"""Numbers of the host arrive on the device as they were."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from synth.engine.device import HostCopy, copy_to, to_device


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


@pytest.mark.parametrize("buffered", [False, True])
def test_every_tensor_comes_in_its_own_dtype_shape_and_memory(buffered: bool) -> None:
    whole = torch.randn(3, 1000)
    tensors = [whole[1, :333], torch.arange(30, dtype=torch.int32).view(10, 3), whole[:, ::7]]

    found = HostCopy(torch.device("cpu"), buffered=buffered).take(tensors)

    for array, tensor in zip(found, tensors, strict=True):
        assert array.base is None
        assert array.dtype == tensor.numpy().dtype
        assert np.array_equal(array, tensor.numpy())
    kept = found[0].copy()
    whole.zero_()
    assert np.array_equal(found[0], kept)


def test_what_came_does_not_change_with_what_comes_next() -> None:
    copy = HostCopy(torch.device("cpu"), buffered=True)
    (first,) = copy.take([torch.ones(50)])

    (second,) = copy.take([torch.zeros(50)])

    assert first.sum() == 50
    assert second.sum() == 0


def test_the_buffer_grows_with_a_larger_pass() -> None:
    copy = HostCopy(torch.device("cpu"), buffered=True)
    small = torch.randn(10)
    large = [torch.randn(300_000), torch.randn(200_001)]

    copy.take([small])
    found = copy.take([*large, small])

    for array, tensor in zip(found, [*large, small], strict=True):
        assert np.array_equal(array, tensor.numpy())


@pytest.mark.parametrize("buffered", [False, True])
def test_nothing_and_empty_tensors_are_taken(buffered: bool) -> None:
    copy = HostCopy(torch.device("cpu"), buffered=buffered)

    assert copy.take([]) == []
    found = copy.take([torch.empty(0), torch.empty(10, 0, dtype=torch.int32), torch.ones(2)])
    assert [array.shape for array in found] == [(0,), (10, 0), (2,)]
    assert found[2].tolist() == [1.0, 1.0]


@pytest.mark.gpu
def test_it_waits_for_what_was_put_on_the_stream_before() -> None:
    device = torch.device("cuda")
    copy = HostCopy(device)
    with torch.cuda.stream(torch.cuda.Stream(device)):  # type: ignore[no-untyped-call]  # torch's
        x = torch.randn(4096, 4096, device=device)
        for _ in range(20):
            x = (x @ x).sign()
        (found,) = copy.take([x])

    assert np.array_equal(found, x.cpu().numpy())
