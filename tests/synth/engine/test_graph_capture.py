"""Test synth.engine.graph_capture as far as it goes without a device: counting never fails."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from synth.engine import graph_capture
from synth.engine.decode import StepOutput
from synth.engine.graph_capture import find_backend


class KeptGraph:
    """Stand in for a captured graph that was kept."""

    def raw_cuda_graph(self) -> int:
        return 4711


class Driver:
    """Stand in for the driver's library: graph 4711 has 812 nodes, or it answers `status`."""

    def __init__(self, status: int = 0) -> None:
        self.status = status

    def cuGraphGetNodes(self, handle: ctypes.c_void_p, nodes: None, number: Any) -> int:
        """Answer under the driver's own name."""
        assert handle.value == 4711
        number._obj.value = 812
        return self.status


def run() -> StepOutput:
    value = torch.zeros(1)
    return StepOutput(value, value, value, value, value)


def count(graph: object) -> int | None:
    return graph_capture._count(graph, run)  # type: ignore[arg-type]  # as good as one


def test_the_driver_says_how_many_nodes_a_graph_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver())

    assert count(KeptGraph()) == 812


def test_the_kernels_of_an_eager_run_are_counted_where_the_driver_does_not_say(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(status=1))
    monkeypatch.setattr(graph_capture, "count_kernels", lambda run: 99)

    assert count(KeptGraph()) == 99
    assert "could not be counted: the driver answered 1" in caplog.text


@pytest.mark.skipif(torch.cuda.is_available(), reason="a device has both")
def test_with_neither_driver_nor_profiler_there_is_no_number_and_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert count(object()) is None
    assert caplog.text.count("could not be counted") == 2


def test_a_cpu_captures_nothing() -> None:
    assert find_backend("auto", torch.device("cpu")) is None
