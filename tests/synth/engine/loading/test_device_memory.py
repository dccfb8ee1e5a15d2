"""Test device_memory over made-up `proc` and `sys` trees: what bounds a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from synth.engine.loading import device_memory as heap
from synth.engine.loading.device_memory import find_memory

CPU = torch.device("cpu")
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


def test_a_machine_without_limits_has_what_is_available(machine: Path) -> None:
    found = find_memory(CPU, root=machine)

    assert (found.free, found.total, found.source) == (6144 * MB, 8192 * MB, "this machine")


def test_a_container_has_its_limit_and_pages_of_files_count_as_free(machine: Path) -> None:
    write(
        machine,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": f"{2048 * MB}\n",
            "sys/fs/cgroup/memory.current": f"{1500 * MB}\n",
            "sys/fs/cgroup/memory.stat": (
                f"anon {500 * MB}\ninactive_file {700 * MB}\nactive_file {300 * MB}\n"
            ),
        },
    )

    found = find_memory(CPU, root=machine)

    assert (found.free, found.total, found.source) == (1548 * MB, 2048 * MB, "this container")


def test_the_limit_of_a_group_further_out_counts(machine: Path) -> None:
    write(
        machine,
        {
            "proc/self/cgroup": "0::/outer/inner\n",
            "sys/fs/cgroup/outer/inner/memory.max": "max\n",
            "sys/fs/cgroup/outer/inner/memory.current": f"{100 * MB}\n",
            "sys/fs/cgroup/outer/memory.max": f"{1024 * MB}\n",
            "sys/fs/cgroup/outer/memory.current": f"{200 * MB}\n",
        },
    )

    assert find_memory(CPU, root=machine).free == 824 * MB


def test_the_older_interface_is_read_where_the_group_is_seen_as_the_root(machine: Path) -> None:
    write(
        machine,
        {
            "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{1024 * MB}\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{900 * MB}\n",
            "sys/fs/cgroup/memory/memory.stat": (
                f"inactive_file 5\ntotal_inactive_file {300 * MB}\ntotal_active_file 0\n"
            ),
        },
    )

    assert find_memory(CPU, root=machine).free == 424 * MB


def test_no_limit_in_the_older_interface_leaves_the_machine(machine: Path) -> None:
    write(
        machine,
        {
            "proc/self/cgroup": "4:memory:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
        },
    )

    assert find_memory(CPU, root=machine).source == "this machine"


def test_a_limit_above_the_machine_does_not_add_memory(machine: Path) -> None:
    write(
        machine,
        {
            "proc/self/cgroup": "0::/\n",
            "sys/fs/cgroup/memory.max": f"{64000 * MB}\n",
            "sys/fs/cgroup/memory.current": "0\n",
        },
    )

    found = find_memory(CPU, root=machine)

    assert (found.free, found.total) == (6144 * MB, 8192 * MB)


def test_this_machine_has_memory() -> None:
    found = find_memory(CPU)

    assert 0 < found.free <= found.total


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the heap is of Linux's C library")

PROGRAM = """
import resource
import torch
from synth.engine.loading.device_memory import keep_heap

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
