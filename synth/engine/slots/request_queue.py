"""Order the requests that wait for a slot, and watch their deadlines."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from torch import Tensor

from synth.contract import Sampling, SegmentAudio
from synth.engine.slots.live_audio import LiveAudio

FRAMES_PER_TOKEN = 6  # of calm speech, about; only the order of the queue depends on it


@dataclass(eq=False)
class SlotRequest:
    """Ask for the speech of one prompt; it is over as soon as its future is done.

    `prefix` int64 [1 + K, P] is the voices' part of the prompt and `voice` names it, `own` int64
    [1 + K, S] is the text's. `deadline` is on the clock of `time.monotonic`. `live` is where audio
    goes while it is being made.
    """

    prefix: Tensor
    own: Tensor
    voice: str
    sampling: Sampling
    priority: int = 0
    deadline: float | None = None
    deadline_seconds: float = 0.0
    live: LiveAudio | None = None
    future: Future[SegmentAudio] = field(default_factory=Future)
    submitted_at: float = field(default_factory=time.perf_counter)
    restarts: int = 0  # times it left its slot unfinished because memory ran out
    turn: int = 0  # removals from its class after which nothing later may go first

    @property
    def positions(self) -> int:
        """Return the positions of the whole prompt."""
        return self.prefix.shape[1] + self.own.shape[1]

    @property
    def expected_frames(self) -> int:
        """Return about how many frames it takes, never above its limit."""
        return min(self.sampling.max_frames, FRAMES_PER_TOKEN * self.own.shape[1])


class RequestQueue:
    """Hold waiting requests; who uses it from several threads holds a lock meanwhile.

    A lower `priority` goes first without exception. Within a class a voice that is at work already
    goes first, then the longest request, so that the last ones to end are short; but a request is
    passed over by at most `patience` later ones, and one whose audio is heard meanwhile by none
    once it is the oldest.
    """

    def __init__(self, *, patience: int) -> None:
        self._patience = patience
        self._classes: dict[int, _Class] = {}

    def __len__(self) -> int:
        return sum(len(one.waiting) for one in self._classes.values())

    def push(self, request: SlotRequest) -> None:
        """Add a request behind those of its class."""
        one = self._classes.setdefault(request.priority, _Class())
        request.turn = one.pushed + (self._patience if request.live is None else 0)
        one.pushed += 1
        one.waiting.append(request)

    def push_front(self, requests: Sequence[SlotRequest]) -> None:
        """Put requests that were taken back at the head of their classes, in this order."""
        for request in reversed(requests):
            one = self._classes.setdefault(request.priority, _Class())
            request.turn = 0
            if one.removed:
                one.removed -= 1  # as if it had never been taken
            else:
                one.pushed += 1
            one.waiting.insert(0, request)

    def next_priority(self) -> int | None:
        """Return the class of the request that goes next; None when nothing waits."""
        self.drop_done()
        return min(self._classes, default=None)

    def pop(self, voices: Collection[str] = ()) -> SlotRequest | None:
        """Take the request that goes next, when `voices` are at work; None when nothing waits."""
        while self._classes:
            priority = min(self._classes)
            request = self._classes[priority].pop(voices)
            if not self._classes[priority].waiting:
                del self._classes[priority]
            if not request.future.done():
                return request
        return None

    def drop_done(self) -> None:
        """Forget the requests that are over: cancelled, or past their deadline."""
        for priority, one in list(self._classes.items()):
            left = [request for request in one.waiting if not request.future.done()]
            one.removed += len(one.waiting) - len(left)
            one.waiting = left
            if not left:
                del self._classes[priority]

    def drain(self) -> list[SlotRequest]:
        """Take everything out."""
        waiting = [request for one in self._classes.values() for request in one.waiting]
        self._classes.clear()
        return waiting


@dataclass(eq=False)
class _Class:
    """Hold the requests of one priority in the order they came, and what has passed through."""

    waiting: list[SlotRequest] = field(default_factory=list)
    pushed: int = 0
    removed: int = 0

    def pop(self, voices: Collection[str]) -> SlotRequest:
        index = 0
        # All that came before the first one are gone: what was removed besides passed it over.
        if self.removed < self.waiting[0].turn:
            index = max(range(len(self.waiting)), key=lambda i: self._rank(i, voices))
        self.removed += 1
        return self.waiting.pop(index)

    def _rank(self, index: int, voices: Collection[str]) -> tuple[bool, int]:
        request = self.waiting[index]
        return request.voice in voices, request.expected_frames


class Deadlines:
    """Hold requests by their deadline; who uses it from several threads holds a lock meanwhile."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, SlotRequest]] = []
        self._numbers = itertools.count()

    def push(self, request: SlotRequest) -> None:
        """Watch a request; one without a deadline needs no watching."""
        if request.deadline is not None:
            heapq.heappush(self._heap, (request.deadline, next(self._numbers), request))

    def seconds_left(self) -> float | None:
        """Return the seconds to the next deadline, 0 when it has passed; None without one."""
        while self._heap and self._heap[0][2].future.done():
            heapq.heappop(self._heap)
        return max(self._heap[0][0] - time.monotonic(), 0.0) if self._heap else None

    def pop_passed(self) -> list[SlotRequest]:
        """Return the unfinished requests whose deadline has passed, and watch them no longer."""
        passed = []
        while self.seconds_left() == 0:
            passed.append(heapq.heappop(self._heap)[2])
        return passed
