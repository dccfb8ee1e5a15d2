"""Capture decode steps as CUDA graphs, and count what they consist of."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.profiler import ProfilerActivity, profile

from synth.engine.loading.engine_config import wants_graphs
from synth.engine.model.decode import StepOutput
from synth.engine.model.graphs import CapturedStep, GraphBackend

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

logger = logging.getLogger(__name__)

WARM_UP_RUNS = 3  # compile kernels, choose algorithms and take the libraries' workspaces
_DRIVER = "libcuda.so.1"
_URGENT = -1  # kernels keep the priority of the stream they were captured on: frames go first


def find_backend(name: str, device: torch.device) -> GraphBackend | None:
    """Return what captures graphs on a device, None where steps are to be eager.

    Raises:
        InvalidSpecError: as for `wants_graphs`.
    """
    return CudaGraphs(device) if wants_graphs(name, device) else None


class CudaGraphs:
    """Capture on a stream of its own into one memory pool.

    To be called while nothing else works on the device, the largest step first: the smaller ones
    then find room in the pool. A step is replayed on whichever stream is the caller's, and no two
    at a time.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device, priority=_URGENT)  # type: ignore[no-untyped-call]  # torch's own
        self._pool: _POOL_HANDLE | None = None  # of the graphs captured; one that failed has none

    def capture(self, run: Callable[[], StepOutput]) -> CapturedStep:
        """Capture a step; see GraphBackend."""
        pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph(keep_graph=True)  # kept, so that its nodes can be counted
        torch.cuda.synchronize(self._device)
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            for _ in range(WARM_UP_RUNS):
                run()
            # Other threads may allocate meanwhile: another engine's on this device, or its codec's.
            with torch.cuda.graph(
                graph, pool=pool, stream=self._stream, capture_error_mode="thread_local"
            ):
                output = run()
            graph.instantiate()
            graph.replay()  # the first replay takes longer; slots are free, so it changes nothing
            torch.cuda.synchronize(self._device)
            self._pool = pool
            return CapturedStep(output, graph.replay, _count(graph, run))


def _count(graph: torch.cuda.CUDAGraph, run: Callable[[], StepOutput]) -> int | None:
    """Return the graph's nodes, else the kernels of one eager run, else None; never raises."""
    ways: tuple[Callable[[], int], ...] = (partial(count_nodes, graph), partial(count_kernels, run))
    for count in ways:
        try:
            return count()
        except Exception as error:  # a figure for reports, and no reason to stop
            logger.warning("the nodes of a graph could not be counted: %s", error)
    return None


def count_nodes(graph: torch.cuda.CUDAGraph) -> int:
    """Return how many nodes a captured graph has, asking the driver.

    Raises:
        OSError, AttributeError: the driver's library cannot be loaded, or does not offer it.
        RuntimeError: the graph was not kept, or the driver refuses.
    """
    driver = ctypes.CDLL(_DRIVER)
    number = ctypes.c_size_t()
    handle = ctypes.c_void_p(graph.raw_cuda_graph())
    status = driver.cuGraphGetNodes(handle, None, ctypes.byref(number))
    if status:
        raise RuntimeError(f"the driver answered {status}")
    return number.value


def count_kernels(run: Callable[[], StepOutput]) -> int:
    """Return how many kernels and copies one eager run puts on the device.

    Raises:
        RuntimeError: the profiler saw none.
    """
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    events = profiled.events() or []
    found = len([event for event in events if event.device_type.name == "CUDA"])
    if not found:
        raise RuntimeError("the profiler saw no kernel")
    return found
