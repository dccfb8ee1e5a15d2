"""Keep requests in the slots of a decode state, advance those alone, and read their status."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.engine.device import is_out_of_memory, new_event
from synth.engine.errors import EngineError
from synth.engine.model.decode_state import RUNNING, DecodeState
from synth.engine.model.dual_ar import DualAR
from synth.engine.model.graphs import StepRunner
from synth.engine.model.prefill import PrefixCache, SlotStart, start_slots
from synth.engine.slots.requests import SlotRequest

STATUS_EVERY = {"cpu": 1, "cuda": 4}  # frames from one reading of the status to the next
_COPIES_UNDER_WAY = 2


@dataclass(eq=False)
class RunningSlot:
    """Hold a request and its slot; `slot` is None when it has left it.

    `last_frame` is the batch's frame count at which it has reached its limit. `failed` says, once
    its end was seen, whether its numbers were no longer finite.
    """

    request: SlotRequest
    slot: int | None
    started_at: float
    prefilled_at: float
    last_frame: int
    failed: bool | None = None


class SlotBatch:
    """Own a decode state's slots; all calls come from one thread.

    Computed are the first slots only, as many as the smallest bucket of the runner has that holds
    those in use; slots behind its largest one stay free.
    """

    def __init__(
        self, model: DualAR, state: DecodeState, prefixes: PrefixCache, runner: StepRunner
    ) -> None:
        self.state, self.prefixes, self.runner = state, prefixes, runner
        self.frames = 0  # computed since the start
        self._model = model
        self._slots: list[RunningSlot | None] = [None] * runner.buckets[-1]
        self.bucket = runner.buckets[0]  # slots that a frame computes now

    @property
    def num_slots(self) -> int:
        return len(self._slots)

    @property
    def running(self) -> list[RunningSlot]:
        return [running for running in self._slots if running is not None]

    @property
    def num_running(self) -> int:
        return len(self._slots) - self._slots.count(None)

    def start(self, requests: Sequence[SlotRequest]) -> list[tuple[SlotRequest, Exception]]:
        """Give free slots to requests, no more than there are, and make their first frames.

        Returns:
            The requests that failed, alone, with the reason.

        Raises:
            Exception: memory ran out, or a fault that is no single request's; none has a slot.
        """
        refused: list[tuple[SlotRequest, Exception]] = []
        started: list[RunningSlot] = []
        try:
            for request in requests:
                try:
                    started.append(self._assign(request))
                except EngineError as error:
                    refused.append((request, error))
            if started:
                refused += self._make_first_frames(started)
        except Exception:
            for running in started:
                self.release(running)
            raise
        for running in started:
            running.prefilled_at = time.perf_counter()
        return refused

    def step(self) -> None:
        self.runner.step(self.bucket)
        self.frames += 1

    def release(self, running: RunningSlot) -> None:
        """Free a request's slot; nothing happens when it has left it already."""
        if running.slot is None:
            return
        self.state.release(running.slot, failed=running.failed)
        self._slots[running.slot] = None
        running.slot = None
        self._choose_bucket()

    def compact(self) -> None:
        """Move the last requests to free slots in front where that makes the bucket smaller."""
        while self._smallest_bucket(self.num_running) < self.bucket:
            target = self._slots.index(None)
            last = self.running[-1]
            assert last.slot is not None
            self.state.move(last.slot, target)
            self._slots[target], self._slots[last.slot] = last, None
            last.slot = target
            self._choose_bucket()

    def codes(self, running: RunningSlot, start: int, end: int) -> Tensor:
        """Return a copy of the codes of frames start to end, int32 [K, n] on the device."""
        assert running.slot is not None
        return self.state.history[running.slot, start:end, 1:].T.clone()

    def _assign(self, request: SlotRequest) -> RunningSlot:
        slot = self._slots.index(None)
        self.state.assign(slot, request.sampling, prompt_positions=request.positions)
        now = time.perf_counter()
        limit = min(request.sampling.max_frames, self.state.max_positions - request.positions)
        running = RunningSlot(request, slot, now, now, self.frames + limit - 1)
        self._slots[slot] = running
        self._choose_bucket()
        return running

    def _make_first_frames(
        self, started: Sequence[RunningSlot]
    ) -> list[tuple[SlotRequest, Exception]]:
        """Run prompts, one by one if they fail together; return those at fault."""
        starts = [
            SlotStart(one.slot, one.request.own, one.request.prefix, one.request.voice)
            for one in started
            if one.slot is not None
        ]
        try:
            start_slots(self._model, self.state, starts, self.prefixes)
            return []
        except Exception as error:
            if is_out_of_memory(error):
                raise
            if len(started) == 1:
                self.release(started[0])
                return [(started[0].request, error)]
        return [failed for running in started for failed in self._make_first_frames([running])]

    def _choose_bucket(self) -> None:
        in_use = [slot for slot, running in enumerate(self._slots) if running is not None]
        self.bucket = self._smallest_bucket(in_use[-1] + 1 if in_use else 0)

    def _smallest_bucket(self, num_slots: int) -> int:
        return next(size for size in self.runner.buckets if size >= num_slots)


@dataclass(frozen=True, slots=True, eq=False)
class StatusCopy:
    """Hold a copy that is on its way, and which request was in which slot when it was begun."""

    slots: Sequence[tuple[int, RunningSlot]]
    numbers: Tensor  # int64 [2, B] on the host: status, frame
    ready: torch.cuda.Event | None

    def read(self) -> list[tuple[RunningSlot, int, int]]:
        """Wait for the copy; return requests with their slot's status and the frames it has made.

        They are those still in a slot that have ended, or are heard.
        """
        if self.ready is not None:
            self.ready.synchronize()
        status, frames = self.numbers.tolist()
        return [
            (running, status[slot], frames[slot])
            for slot, running in self.slots
            if (status[slot] != RUNNING or running.request.live) and running.slot is not None
        ]


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

    def begin(self, running: Sequence[RunningSlot]) -> StatusCopy:
        """Start a copy of what the frames begun so far will leave."""
        slots = [(one.slot, one) for one in running if one.slot is not None]
        numbers = self._state.rows.progress  # frames begun later write over it
        if not self._pinned:
            return StatusCopy(slots, numbers.clone(), None)
        self._turn = (self._turn + 1) % _COPIES_UNDER_WAY
        host = self._pinned[self._turn]
        host.copy_(numbers, non_blocking=True)
        return StatusCopy(slots, host, new_event())
