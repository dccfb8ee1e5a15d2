"""Keep the requests that must end by a time, the next one first."""

from __future__ import annotations

import heapq
import itertools
import time

from synth.engine.request_queue import SlotRequest


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
