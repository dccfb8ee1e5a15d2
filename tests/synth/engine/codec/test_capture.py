"""Test how graphs are recorded, with a stand-in that notes what is asked of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from synth.engine.codec.capture import WARM_UP_RUNS, CudaCapture, keep_eager


class FakeGraph:
    """Note what is asked, and fail at the end where something failed before, as CUDA does."""

    asked: list[object]  # of all graphs

    def capture_begin(self, **options: Any) -> None:
        self.asked.append(("begin", options["pool"], options["capture_error_mode"]))

    def capture_end(self) -> None:
        self.asked.append("end")
        if "failed" in self.asked:
            raise RuntimeError("operation failed due to a previous error during capture")

    def replay(self) -> None:
        self.asked.append("replay")


class FakeStream:
    def synchronize(self) -> None:
        FakeGraph.asked.append("synchronize")


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> CudaCapture:
    handles: Iterator[tuple[int, int]] = ((0, number) for number in range(9))
    FakeGraph.asked = []
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream())
    return CudaCapture(torch.device("cuda:0"))


def test_work_is_warmed_up_recorded_and_replayed(capture: CudaCapture) -> None:
    replay = capture(lambda: FakeGraph.asked.append("work"))
    replay()

    recorded = [("begin", (0, 0), "thread_local"), "work", "end", "replay"]
    assert FakeGraph.asked == ["work"] * WARM_UP_RUNS + ["synchronize", *recorded]


def test_all_graphs_share_one_pool(capture: CudaCapture) -> None:
    for _ in range(3):
        capture(lambda: None)

    assert [item[1] for item in FakeGraph.asked if isinstance(item, tuple)] == [(0, 0)] * 3


def test_an_error_of_the_work_goes_on_and_the_pool_is_not_used_again(capture: CudaCapture) -> None:
    runs: list[int] = []

    def fail() -> None:
        runs.append(1)
        if len(runs) > WARM_UP_RUNS:
            FakeGraph.asked.append("failed")
            raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        capture(fail)

    assert FakeGraph.asked[-1] == "end"
    FakeGraph.asked.clear()
    capture(lambda: None)
    assert ("begin", (0, 1), "thread_local") in FakeGraph.asked


def test_without_graphs_the_work_is_its_own_replay() -> None:
    def work() -> None:
        pass

    assert keep_eager(work) is work
