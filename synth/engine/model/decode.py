"""Decode autoregressively: prompts in, codec codes out, one frame of every stream at a time.

Steps run eagerly, or by replaying one captured CUDA graph per number of slots. Passes of prompts
are captured beside them, one for each size.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from synth.engine.device import free_cached_memory, is_out_of_memory
from synth.engine.errors import EngineError, SlotsDoNotFitError
from synth.engine.loading.engine_config import wants_graphs
from synth.engine.model.decode_state import ENDED, FAILED, RUNNING, DecodeState
from synth.engine.model.dual_ar import KERNELS, DualAR
from synth.engine.model.prefill import (
    PASS_SIZES,
    PromptPass,
    PromptRunner,
)
from synth.engine.model.sampling import (
    SECOND_TEMPERATURE,
    SECOND_TOP_P,
    SLOW_DRAWS,
    CounterFrame,
    Cut,
    FrameNoise,
    best_candidates,
    draw,
    draw_words,
    probabilities,
    replace_repeated,
)

if TYPE_CHECKING:
    from torch.cuda import _POOL_HANDLE


@dataclass(frozen=True, slots=True, eq=False)
class StepOutput:
    """Hold one frame of every slot, on the device.

    `columns` int64 [B, 1 + K]: the token and the codes; the old ones where a slot was not active.
    `made` bool [B]: the slot was active, its column is new. `is_speech` bool [B]: it is new and is
    neither an end frame nor one of a failed slot. `first_draw` and `second_draw` int64 [B]: the two
    tokens among which repetition-aware sampling chose.
    """

    columns: Tensor
    made: Tensor
    is_speech: Tensor
    first_draw: Tensor
    second_draw: Tensor


@torch.inference_mode()
def decode_step(model: DualAR, state: DecodeState) -> StepOutput:
    """Advance every active slot by one whole frame, attending over the live positions only.

    `state` may be a bucket of a larger one: the work is that of its slots alone.
    """
    output = step_tensors(model, state, length=state.live_length())
    state.note_step()
    return output


@torch.inference_mode()
def step_tensors(model: DualAR, state: DecodeState, *, length: int) -> StepOutput:
    """Compute a decode step: slow AR, both draws, fast AR, write-back, end flags.

    What goes in is a slot's newest frame or, before its first one, the last column of its prompt.
    A first frame neither looks at the repetition window nor enters it.

    No branch depends on a tensor's value, nothing waits for the device and shapes depend on
    `length` alone: with one `length` this can be captured as a graph, and whoever replays it calls
    `state.note_step()`. A slot that is not active goes through the arithmetic and keeps its state.

    Args:
        length: positions to attend over, above every live one; kernels read it on the device.
    """
    if state.suits_own_code:
        if model.has_kernels:
            kernels: Callable[..., StepOutput] = importlib.import_module(KERNELS).make_kernel_frame
            return kernels(model, state)
        if model.native is not None:
            return model.native.make_frame(model, state)
    position = state.position.clamp(max=state.max_positions - 1)
    hidden = model.slow.step(
        state.columns, position, state.cache, length=length, in_splits=state.strict
    )
    state.position.add_(state.active)
    chosen, is_later = state.active.clone(), state.frame > 0
    frames = state.frame + state.noise_offset
    if state.noise is None:
        noise: FrameNoise = CounterFrame(draw_words(state.seed, frames, model.num_draws))
    else:
        noise = state.noise.frame(state.seed, frames, model.num_draws)
    cut = Cut.of(state.temperature, state.top_p, state.top_k, state.max_top_k)
    logits = model.slow.logits(hidden)
    first, second = _draw_tokens(model, state, logits, noise, cut)
    may_repeat = model.slow.is_semantic(first) & is_later
    token = replace_repeated(first, second, may_repeat, state.window)
    codes, fast_is_finite = _draw_codes(model, state, hidden, token, noise, cut)
    finite = _are_finite([logits.sum(-1)]) & fast_is_finite
    columns = torch.cat([token.unsqueeze(1), codes], dim=1)
    roll_window(state, columns, chosen)
    return advance(model, state, columns, chosen, finite, (first, second))


def _draw_tokens(
    model: DualAR, state: DecodeState, logits: Tensor, noise: FrameNoise, cut: Cut
) -> tuple[Tensor, Tensor]:
    """Draw the slow token and the one that may replace it, int64 [B] each, of logits [B, R]."""
    candidates = best_candidates(logits, state.max_top_k)
    tokens = model.slow.head_tokens[candidates.rows]
    other_cut = Cut.of(
        torch.full_like(state.temperature, SECOND_TEMPERATURE),
        torch.full_like(state.top_p, SECOND_TOP_P),
        state.top_k,
        state.max_top_k,
    )
    weights = (probabilities(candidates, one) for one in (cut, other_cut))
    ranks = [draw(w, noise.uniform(i, tokens)) for i, w in enumerate(weights)]
    one, other = (tokens.gather(1, rank).squeeze(1) for rank in ranks)
    return one, other


def _draw_codes(
    model: DualAR, state: DecodeState, hidden: Tensor, token: Tensor, noise: FrameNoise, cut: Cut
) -> tuple[Tensor, Tensor]:
    """Return a frame's codes int64 [B, K] behind its token, and whether all logits were finite."""
    fast, cache = model.fast, state.fast_cache
    code = (token - model.special.semantic_begin).clamp(0, fast.codebook_size - 1)
    codes, sums = [code], []
    for codebook in range(1, fast.num_codebooks):
        is_begun = codebook > 1
        logits = fast.next(code, codebook, cache) if is_begun else fast.first(hidden, code, cache)
        sums.append(logits.sum(-1))
        best = best_candidates(logits, state.max_top_k)
        rank = draw(probabilities(best, cut), noise.uniform(SLOW_DRAWS + codebook - 1, best.rows))
        code = best.rows.gather(1, rank).squeeze(1)
        codes.append(code)
    return torch.stack(codes, dim=1), _are_finite(sums)


def _are_finite(sums: list[Tensor]) -> Tensor:
    """Say for each stream, bool [B], whether all of the numbers in its sums, [B] each, are finite.

    A sum is finite only if every number in it is; looking at the numbers takes five times as long.
    """
    return torch.stack(sums).isfinite().all(0)


def roll_window(state: DecodeState, columns: Tensor, chosen: Tensor) -> None:
    """Enter the tokens of new columns [B, 1 + K] into the chosen slots' repetition windows.

    Those of first frames stay out; to be called before `advance`.
    """
    rolled = torch.cat([state.window[:, 1:], columns[:, :1]], dim=1)
    enters = (chosen & (state.frame > 0)).unsqueeze(1)
    state.window.copy_(torch.where(enters, rolled, state.window))


def advance(
    model: DualAR,
    state: DecodeState,
    columns: Tensor,
    chosen: Tensor,
    finite: Tensor,
    drawn: tuple[Tensor, Tensor],
) -> StepOutput:
    """Store new columns [B, 1 + K] of the chosen slots and stop those that end, fail or are full.

    Args:
        finite: bool [B], whether all logits of a slot were.
        drawn: the two tokens among which each slot's was chosen, int64 [B] each.
    """
    is_end = columns[:, 0] == model.special.im_end
    stops = is_end & (state.frame > 0) if state.like_reference else is_end
    state.columns.copy_(torch.where(chosen.unsqueeze(1), columns, state.columns))
    rows = torch.arange(state.num_slots, device=columns.device) * state.history.shape[1]
    history = state.history.view(-1, columns.shape[1])
    history.index_copy_(0, rows + state.frame, columns.to(history.dtype))
    state.frame.add_(chosen)
    full = state.frame >= state.frame_limit
    status = torch.where(full, state.limit_status, RUNNING)
    status = torch.where(stops, ENDED, status)
    status = torch.where(finite, status, FAILED)
    state.status.copy_(torch.where(chosen, status, state.status))
    state.active.logical_and_(state.status == RUNNING)
    return StepOutput(state.columns.clone(), chosen, chosen & finite & ~is_end, *drawn)


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
