"""Keep requests in the slots of a decode state, advance those alone, and read their status."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from synth.engine.device import is_out_of_memory, new_event
from synth.engine.errors import EngineError
from synth.engine.model.decode import StepRunner
from synth.engine.model.decode_state import RUNNING, DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.prefill import PrefixCache, SlotStart, start_slots
from synth.engine.slots.requests import SlotRequest

_COPIES_UNDER_WAY = 2


class SlotBatch:
    """Own a decode state's slots; all calls come from one thread.

    Computed are the first slots only, as many as the smallest bucket of the runner has that holds
    those in use; slots behind its largest one stay free. With `urgent_first` more urgent requests
    begin in slots before those of others, so that they can be advanced alone.
    """

    def __init__(
        self,
        model: DualAR,
        state: DecodeState,
        prefixes: PrefixCache,
        runner: StepRunner,
        *,
        urgent_first: bool = False,
    ) -> None:
        self.state, self.prefixes, self.runner = state, prefixes, runner
        self.frames = 0  # computed since the start
        self._model, self.urgent_first = model, urgent_first
        self._slots: list[SlotRequest | None] = [None] * runner.buckets[-1]
        self.bucket = runner.buckets[0]  # slots that a frame computes now

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    @property
    def running(self) -> list[SlotRequest]:
        return [request for request in self._slots if request is not None]

    @property
    def num_running(self) -> int:
        return len(self._slots) - self._slots.count(None)

    def start(self, requests: Sequence[SlotRequest]) -> list[tuple[SlotRequest, Exception]]:
        """Give free slots to requests, no more than there are, and run their prompts.

        Returns:
            The requests that failed, alone, with the reason.

        Raises:
            Exception: memory ran out, or a fault that is no single request's; none has a slot.
        """
        refused: list[tuple[SlotRequest, Exception]] = []
        try:
            for request in requests:
                try:
                    self._assign(request)
                except EngineError as error:
                    refused.append((request, error))
            started = [request for request in requests if request.slot is not None]
            if started:
                refused += self._run_prompts(started)
        except Exception:
            for request in requests:
                self.release(request)
            raise
        for request in started:
            request.prefilled_at = time.perf_counter()
        return refused

    def bucket_with(self, request: SlotRequest) -> int:
        """Return how many slots a frame computes that advances this request and those before it."""
        assert request.slot is not None
        return self._smallest_bucket(request.slot + 1)

    def step(self, bucket: int) -> int:
        """Advance the first slots, as many as a bucket has.

        Returns:
            How many requests that were; those behind are as they were, but for a frame later.
        """
        self.runner.step(bucket)
        self.frames += 1
        for request in self._slots[bucket:]:
            if request is not None:
                request.last_frame += 1
        return bucket - self._slots[:bucket].count(None)

    def release(self, request: SlotRequest) -> None:
        """Free a request's slot; nothing happens when it has left it already."""
        if request.slot is None:
            return
        self.state.release(request.slot, failed=request.failed)
        self._slots[request.slot] = None
        request.slot = None
        self._choose_bucket()

    def compact(self) -> None:
        """Move the last requests to free slots in front where that makes the bucket smaller."""
        while self._smallest_bucket(self.num_running) < self.bucket:
            self._move(self.running[-1], self._slots.index(None))
            self._choose_bucket()

    def codes(self, request: SlotRequest, start: int, end: int) -> Tensor:
        """Return a copy of the codes of frames start to end, int32 [K, n] on the device."""
        assert request.slot is not None
        return self.state.history[request.slot, start:end, 1:].T.clone()

    def _move(self, request: SlotRequest, target: int) -> None:
        assert request.slot is not None
        self.state.move(request.slot, target)
        self._slots[target], self._slots[request.slot] = request, None
        request.slot = target

    def _assign(self, request: SlotRequest) -> None:
        slot, positions = self._slots.index(None), request.positions
        if self.urgent_first:
            for less_urgent in self._slots[:slot]:
                if less_urgent is not None and less_urgent.priority > request.priority:
                    free, slot = slot, less_urgent.slot or 0
                    self._move(less_urgent, free)
                    break
        self.state.assign(slot, request.sampling, prompt_positions=positions)
        limit = min(request.sampling.max_frames, self.state.max_positions - positions)
        request.slot, request.last_frame, request.failed = slot, self.frames + limit, None
        request.started_at = time.perf_counter()
        self._slots[slot] = request
        self._choose_bucket()

    def _run_prompts(self, requests: Sequence[SlotRequest]) -> list[tuple[SlotRequest, Exception]]:
        """Run prompts, one by one if they fail together; return those at fault."""
        starts = [
            SlotStart(one.slot, one.own, one.prefix, one.voice)
            for one in requests
            if one.slot is not None
        ]
        try:
            start_slots(self._model, self.state, starts, self.prefixes, self.runner.prompts)
            return []
        except Exception as error:
            if is_out_of_memory(error):
                raise
            if len(requests) == 1:
                self.release(requests[0])
                return [(requests[0], error)]
        return [failed for request in requests for failed in self._run_prompts([request])]

    def _choose_bucket(self) -> None:
        in_use = [slot for slot, request in enumerate(self._slots) if request is not None]
        self.bucket = self._smallest_bucket(in_use[-1] + 1 if in_use else 0)

    def _smallest_bucket(self, num_slots: int) -> int:
        return next(size for size in self.runner.buckets if size >= num_slots)


# Waits for a copy; returns requests with their slot's status and the frames it has made: those
# still in a slot that have ended, or are heard.
ReadStatus = Callable[[], list[tuple[SlotRequest, int, int]]]


class StatusReader:
    """Copy the slots' status and frame counts; at most two copies may be unread at a time."""

    def __init__(self, state: DecodeState) -> None:
        self._state, self._turn = state, 0
        self._pinned = [
            torch.zeros((2, state.num_slots), dtype=torch.int64, pin_memory=True)
            for _ in range(_COPIES_UNDER_WAY if state.status.is_cuda else 0)
        ]

    @property
    def is_async(self) -> bool:
        """Return whether a copy is better read when the next frames are under way."""
        return bool(self._pinned)

    def begin(self, running: Sequence[SlotRequest]) -> ReadStatus:
        """Start a copy of what the frames begun so far will leave; return what reads it."""
        slots = [(one.slot, one) for one in running if one.slot is not None]
        numbers = self._state.rows.progress  # frames begun later write over it
        ready: torch.cuda.Event | None = None
        if self._pinned:
            self._turn = (self._turn + 1) % _COPIES_UNDER_WAY
            numbers = self._pinned[self._turn].copy_(numbers, non_blocking=True)
            ready = new_event()
        else:
            numbers = numbers.clone()

        def read() -> list[tuple[SlotRequest, int, int]]:
            if ready is not None:
                ready.synchronize()
            status, frames = numbers.tolist()
            return [
                (request, status[slot], frames[slot])
                for slot, request in slots
                if (status[slot] != RUNNING or request.live) and request.slot is not None
            ]

        return read
