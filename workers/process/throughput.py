"""Measure how fast a worker renders, and how much memory it takes, for its row of figures."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from resource import getpagesize

WINDOW_SECONDS = 30.0


class FrameRate:
    """Turn a growing count of frames into frames per second over the last half minute."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def note(self, frames: int, *, now: float | None = None) -> float:
        """Take the count of this moment; return the rate, 0.0 while there is only one count."""
        now = time.monotonic() if now is None else now
        if self._seen and frames < self._seen[-1][1]:  # another engine counts from 0 again
            self._seen.clear()
        self._seen.append((now, frames))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW_SECONDS:
            self._seen.popleft()
        begun, before = self._seen[0]
        return (frames - before) / (now - begun) if now > begun else 0.0


def resident_bytes() -> int | None:
    """Return the memory that this process holds, or None where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * getpagesize()
    except (OSError, IndexError, ValueError):
        return None
