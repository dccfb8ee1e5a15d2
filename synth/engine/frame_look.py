"""Bring to the host how far the slots are, without making the device wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.engine.decode_state import RUNNING, DecodeState
from synth.engine.device_lane import new_event
from synth.engine.slot_batch import RunningSlot

LOOK_EVERY = {"cpu": 1, "cuda": 4}  # frames from one look to the next
_LOOKS_UNDER_WAY = 2


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """Hold what a look found of one request: its slot's status and the frames it has made."""

    running: RunningSlot
    status: int
    frames: int


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """Hold a copy that is on its way, and which request was in which slot when it was begun."""

    slots: Sequence[tuple[int, RunningSlot]]
    numbers: Tensor  # int64 [2, B] on the host: status, frame
    ready: torch.cuda.Event | None

    def read(self) -> list[Progress]:
        """Wait for the copy; return the requests still in a slot that have ended, or are heard."""
        if self.ready is not None:
            self.ready.synchronize()
        status, frames = self.numbers.tolist()
        return [
            Progress(running, status[slot], frames[slot])
            for slot, running in self.slots
            if (status[slot] != RUNNING or running.request.live) and running.slot is not None
        ]


class Looker:
    """Copy the slots' status and frame counts; at most two looks may be unread at a time."""

    def __init__(self, state: DecodeState) -> None:
        self._state, self._turn = state, 0
        self._pinned: list[Tensor] = []
        if state.status.is_cuda:
            shape = (2, state.num_slots)
            self._pinned = [
                torch.zeros(shape, dtype=torch.int64, pin_memory=True)
                for _ in range(_LOOKS_UNDER_WAY)
            ]

    @property
    def is_async(self) -> bool:
        """Return whether a look is better read when the next frames are under way."""
        return bool(self._pinned)

    def begin(self, running: Sequence[RunningSlot]) -> Look:
        """Start a copy of what the frames begun so far will leave."""
        slots = [(one.slot, one) for one in running if one.slot is not None]
        numbers = self._state.rows.progress  # frames begun later write over it
        if not self._pinned:
            return Look(slots, numbers.clone(), None)
        self._turn = (self._turn + 1) % _LOOKS_UNDER_WAY
        host = self._pinned[self._turn]
        host.copy_(numbers, non_blocking=True)
        return Look(slots, host, new_event())
