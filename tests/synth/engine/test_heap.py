"""Test heap: what is freed stays with the process, unless that was decided already."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from synth.engine.loading import heap

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the heap is of Linux's C library")

PROGRAM = """
import resource
import torch
from synth.engine.loading.heap import keep_heap

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
