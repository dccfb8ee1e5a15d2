"""Test graph_capture as far as it goes without a device."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from synth.engine.model import graph_capture
from synth.engine.model.decode import StepOutput
from synth.engine.model.graph_capture import CudaGraphs, find_backend


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


@dataclass
class Device:
    """Stand in for torch.cuda: note in which order it is used, and with which pools."""

    calls: list[str] = field(default_factory=list)
    pools: list[tuple[int, int]] = field(default_factory=list)
    fails: bool = False

    def graph_pool_handle(self) -> tuple[int, int]:
        return (0, len(self.pools) + 1)

    @contextmanager
    def graph(
        self, graph: object, *, pool: tuple[int, int], stream: str, capture_error_mode: str
    ) -> Iterator[None]:
        assert (stream, capture_error_mode) == ("urgent", "thread_local")
        self.pools.append(pool)
        self.calls.append("begin")
        if self.fails:
            raise torch.OutOfMemoryError("no memory")
        yield
        self.calls.append("end")

    def cuda_graph(self, *, keep_graph: bool) -> Device:
        assert keep_graph
        return self

    def instantiate(self) -> None:
        self.calls.append("instantiate")

    def replay(self) -> None:
        self.calls.append("replay")

    def run(self) -> StepOutput:
        self.calls.append("run")
        return run()


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    found = Device()
    monkeypatch.setattr(
        torch,
        "cuda",
        SimpleNamespace(
            Stream=lambda device, priority: "urgent" if priority < 0 else "usual",
            device=nullcontext,
            stream=nullcontext,
            synchronize=lambda device=None: found.calls.append("wait"),
            CUDAGraph=found.cuda_graph,
            graph=found.graph,
            graph_pool_handle=found.graph_pool_handle,
            OutOfMemoryError=torch.cuda.OutOfMemoryError,
        ),
    )
    monkeypatch.setattr(graph_capture, "_count", lambda graph, run: 7)
    return found


def test_a_step_is_run_captured_and_replayed_once_before_it_is_used(device: Device) -> None:
    captured = CudaGraphs(torch.device("cuda:0")).capture(device.run)

    warm_up = ["run"] * graph_capture.WARM_UP_RUNS
    capture = ["begin", "run", "end", "instantiate", "replay", "wait"]
    assert device.calls == ["wait", *warm_up, *capture]
    assert captured.num_nodes == 7
    captured.replay()
    assert device.calls[-1] == "replay"


def test_graphs_share_a_pool_but_for_that_of_a_capture_that_failed(device: Device) -> None:
    graphs = CudaGraphs(torch.device("cuda:0"))

    device.fails = True
    with pytest.raises(torch.OutOfMemoryError):
        graphs.capture(device.run)
    device.fails = False
    for _ in range(3):
        graphs.capture(device.run)

    failed, *shared = device.pools
    assert len(set(shared)) == 1
    assert failed not in shared


def test_a_cpu_captures_nothing() -> None:
    assert find_backend("auto", torch.device("cpu")) is None
