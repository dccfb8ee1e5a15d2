"""Run the one thread that owns the device: it keeps slots of the batch filled from a queue."""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor

from synth.contract import MAX_TOP_K, Sampling, SegmentAudio
from synth.engine.decode import SlotPrompt, StepOutput, decode_step, prefill
from synth.engine.decode_state import FINISH_REASONS, RUNNING, DecodeState
from synth.engine.errors import DeviceOutOfMemoryError, EngineClosedError, NonFiniteLogitsError
from synth.engine.loaded_models import LoadedModels
from synth.engine.noise import CounterNoise
from synth.engine.segment_audio import FinishedCodes, render_audio

logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(order=True)
class SlotRequest:
    """Ask for one prompt's codes; lower `priority` first, then first come."""

    priority: int
    number: int
    prompt: Tensor = field(compare=False)  # int64 [1 + K, S]
    sampling: Sampling = field(compare=False)
    future: Future[SegmentAudio] = field(compare=False)
    submitted_at: float = field(compare=False, default_factory=time.perf_counter)


@dataclass(eq=False)
class _Running:
    """Hold a slot's request, the steps it has seen, and where its time went."""

    request: SlotRequest
    started_at: float
    prefilled_at: float
    outputs: list[tuple[Tensor, Tensor]]  # per frame: column [1 + K], is_speech []


class SlotLoop:
    """Own the decode state and the device; every call of a model happens on this thread."""

    def __init__(self, models: LoadedModels, *, slots: int, max_positions: int) -> None:
        """Allocate the slots; the thread starts with `start`."""
        self._models = models
        self._state = DecodeState.allocate(
            models.dual_ar,
            num_slots=slots,
            max_positions=min(max_positions, models.max_positions),
            max_top_k=min(MAX_TOP_K, models.dual_ar.slow.head_tokens.shape[0]),
        )
        self._noise = CounterNoise()
        self._running: dict[int, _Running] = {}
        self._queue: list[SlotRequest] = []
        self._calls: list[tuple[Callable[[], object], Future[object]]] = []
        self._numbers = itertools.count()
        self._wake = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self.steps = 0  # grows with everything the device did; a watcher sees that it lives
        # On a slow processor one pass of the codec takes minutes: its layers count as well.
        self._hooks = [
            module.register_forward_pre_hook(self._count_layer)
            for half in (models.encoder, models.decoder)
            for module in half.modules()
            if not any(module.children())
        ]

    @property
    def max_positions(self) -> int:
        """Return the positions of one slot, prompt and speech together."""
        return self._state.max_positions

    @property
    def slots_in_use(self) -> int:
        """Return how many slots hold a request now."""
        return len(self._running)

    @property
    def is_busy(self) -> bool:
        """Return whether anything is being done or waits to be done."""
        with self._wake:
            return bool(self._running or self._queue or self._calls)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, prompt: Tensor, sampling: Sampling, *, priority: int) -> Future[SegmentAudio]:
        """Queue a prompt; the future can be cancelled at any time until it has its result."""
        request = SlotRequest(priority, next(self._numbers), prompt, sampling, Future())
        with self._wake:
            self._raise_if_closed()
            heapq.heappush(self._queue, request)
            self._wake.notify()
        return request.future

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the device's thread between two frames; return what it returns."""
        future: Future[object] = Future()
        with self._wake:
            self._raise_if_closed()
            self._calls.append((function, future))
            self._wake.notify()
        return future.result()  # type: ignore[return-value]  # a future of what `function` returns

    def close(self) -> None:
        """Stop the thread; what is unfinished ends with EngineClosedError."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        for hook in self._hooks:  # the codec may live on in another engine
            hook.remove()

    def _count_layer(self, *_: object) -> None:
        self.steps += 1

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise EngineClosedError("The engine is closed; another worker can take it.")

    def _run(self) -> None:
        while self._wait_for_work():
            self._run_calls()
            try:
                self._admit()
                self._step()
                self._collect()
            except torch.OutOfMemoryError:
                self._fail_all(
                    DeviceOutOfMemoryError("The device ran out of memory with this batch.")
                )
            except Exception as error:
                logger.exception("engine step failed")
                self._fail_all(error)
        self._fail_all(EngineClosedError("The engine was closed before this request ended."))

    def _wait_for_work(self) -> bool:
        """Block until there is something to do; False when the loop shall end."""
        with self._wake:
            while not (self._closed or self._running or self._queue or self._calls):
                self._wake.wait()
            return not self._closed

    def _run_calls(self) -> None:
        with self._wake:
            calls, self._calls = self._calls, []
        for function, future in calls:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)
            self.steps += 1

    def _admit(self) -> None:
        """Give free slots to the most urgent requests and run their prompts in one pass."""
        prompts: list[SlotPrompt] = []
        free = (slot for slot in range(self._state.num_slots) if slot not in self._running)
        for slot in free:
            request = self._next_request()
            if request is None:
                break
            try:
                self._state.assign(slot, request.sampling, prompt_positions=request.prompt.shape[1])
            except Exception as error:
                _give(request.future, error)
                continue
            now = time.perf_counter()
            self._running[slot] = _Running(request, now, now, [])
            prompts.append(SlotPrompt(slot, request.prompt))
        if not prompts:
            return
        output = prefill(self._models.dual_ar, self._state, prompts, self._noise)
        self._keep(output, [prompt.slot for prompt in prompts])
        for prompt in prompts:
            self._running[prompt.slot].prefilled_at = time.perf_counter()

    def _next_request(self) -> SlotRequest | None:
        with self._wake:
            while self._queue:
                request = heapq.heappop(self._queue)
                if not request.future.cancelled():
                    return request
        return None

    def _step(self) -> None:
        """Advance the batch by one frame, after slots of cancelled requests were freed."""
        for slot in [s for s, r in self._running.items() if r.request.future.cancelled()]:
            self._free(slot)
        if bool(self._state.active.any()):
            active = self._state.active.tolist()
            output = decode_step(self._models.dual_ar, self._state, self._noise)
            self._keep(output, [slot for slot in self._running if active[slot]])

    def _keep(self, output: StepOutput, slots: list[int]) -> None:
        for slot in slots:
            self._running[slot].outputs.append((output.columns[slot], output.is_speech[slot]))
        self.steps += 1

    def _collect(self) -> None:
        """Take finished requests out of their slots and turn their codes into audio."""
        status = self._state.status.tolist()
        finished: list[FinishedCodes] = []
        for slot in [slot for slot in self._running if status[slot] != RUNNING]:
            running = self._free(slot)
            reason = FINISH_REASONS.get(status[slot])
            if reason is None:
                frame = len(running.outputs)
                _give(
                    running.request.future,
                    NonFiniteLogitsError(f"The model's logits at frame {frame} are not finite."),
                )
                continue
            columns = torch.stack([column for column, _ in running.outputs], dim=1)
            is_speech = torch.stack([flag for _, flag in running.outputs])
            finished.append(
                FinishedCodes(
                    codes=columns[1:, is_speech],
                    reason=reason,
                    future=running.request.future,
                    queue_seconds=running.started_at - running.request.submitted_at,
                    prefill_seconds=running.prefilled_at - running.started_at,
                    decode_seconds=time.perf_counter() - running.prefilled_at,
                )
            )
        if finished:
            self._deliver(finished)
            self.steps += 1

    def _deliver(self, finished: list[FinishedCodes]) -> None:
        outcomes: Sequence[SegmentAudio | Exception]
        try:
            outcomes = render_audio(self._models.decoder, finished)
        except Exception as error:  # these requests have left their slots: they end here
            if isinstance(error, torch.OutOfMemoryError):
                error = DeviceOutOfMemoryError("The codec ran out of memory with this batch.")
            outcomes = [error for _ in finished]
        for item, outcome in zip(finished, outcomes, strict=True):
            _give(item.future, outcome)

    def _free(self, slot: int) -> _Running:
        self._state.release(slot)
        return self._running.pop(slot)

    def _fail_all(self, error: Exception) -> None:
        """End what is in the slots with `error`; when closing, what waits as well."""
        for slot in list(self._running):
            _give(self._free(slot).request.future, error)
        if not self._closed:
            return
        with self._wake:
            waiting, self._queue = self._queue, []
            calls, self._calls = self._calls, []
        for request in waiting:
            _give(request.future, error)
        for _, future in calls:
            future.set_exception(error)


def _give(future: Future[SegmentAudio], result: SegmentAudio | Exception) -> None:
    """Set a future's outcome unless it was cancelled in the same moment."""
    try:
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
    except InvalidStateError:
        logger.debug("a result came after its request was cancelled")
