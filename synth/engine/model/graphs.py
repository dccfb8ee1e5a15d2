"""Run decode steps: eagerly, or by replaying one captured CUDA graph per number of slots.

Passes of prompts are captured beside them, one for each size.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch

from synth.engine.device import free_cached_memory, is_out_of_memory
from synth.engine.errors import EngineError, SlotsDoNotFitError
from synth.engine.loading.engine_config import wants_graphs
from synth.engine.model.decode import StepOutput, decode_step, step_tensors
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.prefill import (
    PASS_SIZES,
    PromptPass,
    PromptRunner,
)

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE

logger = logging.getLogger(__name__)
BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)
WARM_UP_RUNS = 3  # compile kernels, choose algorithms and take the libraries' workspaces
_DRIVER = "libcuda.so.1"
_URGENT = -1  # kernels keep the priority of the stream they were captured on: frames go first


class GraphCaptureError(EngineError):
    """The decode step could not be captured as a graph; the text says what stood in the way."""

    code = "graph_capture_failed"


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Captured(Generic[T]):
    """Hold captured work: `replay` computes it and leaves what it gave in `output`.

    `num_nodes` counts what the device does one after another; None where it could not be counted.
    """

    output: T
    replay: Callable[[], None]
    num_nodes: int | None


class GraphBackend(Protocol):
    """Capture steps and passes. All of one backend share their working memory."""

    def capture(self, run: Callable[[], T]) -> Captured[T]:
        """Capture what `run` does, after running it a few times, and replay it once.

        Raises:
            Exception: whatever the device has against it, memory that ran out included.
        """
        ...


class StepRunner:
    """Advance the first slots of one decode state, in the numbers that `buckets` has, ascending.

    `prompts` runs what goes before a slot's first step.

    Steps are computed when they are asked for, over the live positions or over `length`, or
    captured ones are replayed. Nothing that those read or write is ever replaced: the tensors of
    state and model stay where they were; new weights would have to be copied into the old ones.
    """

    def __init__(
        self,
        model: DualAR,
        state: DecodeState,
        captured: Mapping[int, tuple[Captured[StepOutput], float]] | None = None,
        *,
        length: int | None = None,
        prompts: PromptRunner | None = None,
    ) -> None:
        if prompts is None:
            sizes = () if length is None else PASS_SIZES
            passes = {size: PromptPass.eager(model, state, size) for size in sizes}
            prompts = PromptRunner(model, state, passes)
        self.prompts = prompts
        self._model, self._state, self._length = model, state, length
        self._captured = captured
        self.buckets: Sequence[int] = sorted(captured or bucket_sizes(state))

    def step(self, num_slots: int) -> StepOutput:
        """Advance the active ones among the first slots by a frame; `num_slots` is a bucket.

        The output is good until the next call: a graph writes the next one over it.
        """
        part = self._state.bucket(num_slots)
        if self._captured is None and self._length is None:
            return decode_step(self._model, part)
        if self._captured is None:
            output = step_tensors(self._model, part, length=self._length or 0)
        else:
            captured, _ = self._captured[num_slots]
            captured.replay()
            output = captured.output
        part.note_step()
        return output

    def describe(self) -> dict[str, Any]:
        """Return what pages and logs show; `graph_nodes` are those of a frame of all slots."""
        if self._captured is None:
            return {"graphs": "off", "graph_nodes": None, "graph_buckets": []}
        buckets = [
            {"slots": size, "nodes": step.num_nodes, "seconds": round(seconds, 3)}
            for size, (step, seconds) in sorted(self._captured.items())
        ]
        return {"graphs": "on", "graph_nodes": buckets[-1]["nodes"], "graph_buckets": buckets}


def capture_steps(model: DualAR, state: DecodeState, backend: GraphBackend) -> StepRunner:
    """Capture the step of every bucket of a state whose slots are free, the largest first.

    Every step attends over all positions that a slot has, as its shapes are fixed. A bucket for
    which memory runs out is left out: with the largest ones missing fewer slots may be used.

    Raises:
        SlotsDoNotFitError: there is no memory to capture even one; of a strict state, the only one.
        GraphCaptureError: the step cannot be captured on this device.
    """
    captured: dict[int, tuple[Captured[StepOutput], float]] = {}
    for size in reversed(bucket_sizes(state)):
        started = time.perf_counter()
        part = state.bucket(size)
        run = partial(step_tensors, model, part, length=part.cache.num_positions)
        step = _capture(f"The decode step of {size} slots", run, backend)
        if step is not None:
            captured[size] = step, time.perf_counter() - started
            continue
        logger.warning("memory ran out while a graph was captured: slots=%d, left out", size)
        free_cached_memory(model.device)
    if not captured:
        raise SlotsDoNotFitError(
            f"Memory ran out while the graphs of {state.num_slots} slots of {state.max_positions} "
            "positions were captured: set TTS_ENGINE_SLOTS or TTS_ENGINE_MAX_POSITIONS to less, or "
            "TTS_ENGINE_WITHOUT=graphs."
        )
    prompts = PromptRunner(model, state, _capture_passes(model, state, backend))
    steps = StepRunner(model, state, captured, prompts=prompts)
    if steps.buckets[-1] < state.num_slots:
        logger.warning("slots that may be used: %d of %d", steps.buckets[-1], state.num_slots)
    logger.info(
        "graphs captured: buckets=%s nodes=%s seconds=%.1f",
        ",".join(map(str, steps.buckets)),
        captured[steps.buckets[-1]][0].num_nodes,
        sum(seconds for _, seconds in captured.values()),
    )
    return steps


def _capture_passes(
    model: DualAR, state: DecodeState, backend: GraphBackend
) -> dict[int, PromptPass]:
    """Capture passes of prompts, the largest first; one for which memory runs out is left out."""
    passes: dict[int, PromptPass] = {}
    for size in reversed(PASS_SIZES):
        eager = PromptPass.eager(model, state, size)
        captured = _capture(f"A pass of {size} positions of prompts", eager.run, backend)
        if captured is not None:
            passes[size] = PromptPass(eager.inputs, captured.replay)
            continue
        logger.warning("memory ran out while a pass was captured: positions=%d, left out", size)
        free_cached_memory(model.device)
    return passes


def _capture(what: str, run: Callable[[], T], backend: GraphBackend) -> Captured[T] | None:
    """Capture a step or a pass; None where memory ran out."""
    try:
        return backend.capture(run)
    except Exception as error:
        # And those it was raised behind: ending a capture that failed fails as well.
        cause: BaseException | None = error
        while cause is not None:
            if is_out_of_memory(cause):
                return None
            cause = cause.__cause__ or cause.__context__
        raise GraphCaptureError(
            f"{what} could not be captured as a graph: {error} "
            "Set TTS_ENGINE_WITHOUT=graphs to do without, at some cost in speed."
        ) from error


def bucket_sizes(state: DecodeState) -> list[int]:
    """Return the numbers of slots of a state that are computed together, ascending.

    A strict state is always computed whole, so that every product has one shape.
    """
    if state.strict:
        return [state.num_slots]
    return [size for size in BUCKETS if size < state.num_slots] + [state.num_slots]


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

    def capture(self, run: Callable[[], T]) -> Captured[T]:
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
            return Captured(output, graph.replay, _count_nodes(graph))


def _count_nodes(graph: torch.cuda.CUDAGraph) -> int | None:
    """Return how many nodes a captured graph has, asking the driver; None where it does not say."""
    number = ctypes.c_size_t()
    try:
        handle = ctypes.c_void_p(graph.raw_cuda_graph())
        status = ctypes.CDLL(_DRIVER).cuGraphGetNodes(handle, None, ctypes.byref(number))
        if status:
            raise RuntimeError(f"the driver answered {status}")
    except Exception as error:  # a figure for reports, and no reason to stop  # noqa: BLE001
        logger.warning("the nodes of a graph could not be counted: %s", error)
        return None
    return number.value
