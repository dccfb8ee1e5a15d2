"""Test workers.worker_process: what a process with an engine sets for all its threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from workers.worker_process import SWITCH_SECONDS, WorkerProcess


@pytest.fixture(autouse=True)
def interval() -> Iterator[float]:
    """Put Python's interval back behind a test; return what it was."""
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


@pytest.mark.parametrize("role", ["gpu", "all"])
def test_an_engines_threads_get_the_interpreter_soon(role: str) -> None:
    WorkerProcess(name="w1", role=role)

    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)


def test_a_worker_of_files_leaves_the_interval_alone(interval: float) -> None:
    WorkerProcess(name="w1", role="cpu")

    assert sys.getswitchinterval() == interval
