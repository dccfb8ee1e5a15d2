"""What is known of a device, and what passes between it and the host, arrives as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from synth.engine import device as heap
from synth.engine.device import DeviceCopy, HostCopy, copy_to, find_memory, to_device

CPU = torch.device("cpu")


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
    whole, copy = torch.randn(3, 1000), HostCopy(CPU, buffered=buffered)
    tensors = [whole[1, :333], torch.arange(30, dtype=torch.int32).view(10, 3), whole[:, ::7]]
    empty = [torch.empty(0), torch.empty(10, 0, dtype=torch.int32)]
    large = [torch.randn(300_000), torch.randn(200_001), torch.randn(10)]  # the buffer grows

    assert copy.take([]) == []
    for group in (tensors, empty, large):
        found = copy.take(group)
        for array, tensor in zip(found, group, strict=True):
            assert array.base is None
            assert (array.dtype, array.shape) == (tensor.numpy().dtype, tuple(tensor.shape))
            assert np.array_equal(array, tensor.numpy())
        kept = [array.copy() for array in found]
        whole.add_(1)  # nor does what came change with what comes next
        copy.take([torch.ones(50)])
        assert all(np.array_equal(*pair) for pair in zip(found, kept, strict=True))


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


MB = 2**20


def write(root: Path, files: dict[str, str]) -> None:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="ascii")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine of 8 GB with 6 GB available, and no control group."""
    meminfo = f"MemTotal: {8192 * 1024} kB\nMemFree: 10 kB\nMemAvailable: {6144 * 1024} kB\n"
    write(tmp_path, {"proc/meminfo": meminfo})
    return tmp_path


V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"


@pytest.mark.parametrize(
    ("group", "files", "expected"),
    [
        pytest.param("", {}, (6144 * MB, 8192 * MB, "this machine"), id="no group"),
        pytest.param(
            "0::/",
            {
                f"{V2}/memory.max": f"{2048 * MB}",
                f"{V2}/memory.current": f"{1500 * MB}",
                f"{V2}/memory.stat": (
                    f"anon {500 * MB}\ninactive_file {700 * MB}\nactive_file {300 * MB}"
                ),
            },
            (1548 * MB, 2048 * MB, "this container"),
            id="pages of files count as free",
        ),
        pytest.param(
            "0::/outer/inner",
            {
                f"{V2}/outer/inner/memory.max": "max",
                f"{V2}/outer/inner/memory.current": f"{100 * MB}",
                f"{V2}/outer/memory.max": f"{1024 * MB}",
                f"{V2}/outer/memory.current": f"{200 * MB}",
            },
            (824 * MB, 1024 * MB, "this container"),
            id="the limit of a group further out counts",
        ),
        pytest.param(
            "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/",
            {
                f"{V1}/memory.limit_in_bytes": f"{1024 * MB}",
                f"{V1}/memory.usage_in_bytes": f"{900 * MB}",
                f"{V1}/memory.stat": (
                    f"inactive_file 5\ntotal_inactive_file {300 * MB}\ntotal_active_file 0"
                ),
            },
            (424 * MB, 1024 * MB, "this container"),
            id="the older interface, where the group is seen as the root",
        ),
        pytest.param(
            "4:memory:/",
            {
                f"{V1}/memory.limit_in_bytes": "9223372036854771712",
                f"{V1}/memory.usage_in_bytes": "1000",
            },
            (6144 * MB, 8192 * MB, "this machine"),
            id="no limit in the older interface",
        ),
        pytest.param(
            "0::/",
            {f"{V2}/memory.max": f"{64000 * MB}", f"{V2}/memory.current": "0"},
            (6144 * MB, 8192 * MB, "this machine"),
            id="a limit above the machine adds no memory",
        ),
    ],
)
def test_a_container_has_its_tightest_limit(
    machine: Path, group: str, files: dict[str, str], expected: tuple[int, int, str]
) -> None:
    write(machine, {"proc/self/cgroup": f"{group}\n"} | files if group else {})
    found = find_memory(CPU, root=machine)
    assert (found.free, found.total, found.source) == expected
    here = find_memory(CPU)
    assert 0 < here.free <= here.total


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the heap is of Linux's C library")

PROGRAM = """
import resource
import torch
from synth.engine.device import keep_heap

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        torch.ones(2 * 2**20)  # 8 MB, which are let go of at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
faults()
keep_heap()
faults()
print(faults())
"""


@pytest.mark.thorough
def test_memory_between_tensors_is_kept() -> None:
    """Count how often pages are got anew while 50 tensors of 2,048 pages come and go."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 2048


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_a_choice_that_was_made_for_the_process_holds(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda *choice: made.append(choice))
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    monkeypatch.setenv(name, "1")
    heap.keep_heap()
    assert not made
    monkeypatch.delenv(name)
    heap.keep_heap()
    assert len(made) == 2


@pytest.mark.parametrize("shape", [(), (7,), (5, 3), (0, 4), (64,)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_copies_in_pieces_through_two_buffers_are_the_tensors(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    copy = DeviceCopy(CPU, buffer_bytes=16)
    first = torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = copy(first)
    again = copy(first.flip(0) if shape else first)  # the buffers are used again
    assert torch.equal(found, first) and found.dtype is dtype
    assert torch.equal(again, first.flip(0) if shape else first)
    first.fill_(3)
    assert not shape or not shape[0] or not torch.equal(found, first)
