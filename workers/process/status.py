"""Say in one row how this worker is; pages read it, nothing else depends on it."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from synth.models import WorkerStatus
from ttsweb import leases

if TYPE_CHECKING:
    from synth.engine import Engine
import time
from collections import deque
from pathlib import Path
from resource import getpagesize

State = WorkerStatus.State


def start_of(started_at: dt.datetime) -> str:
    """Return what tells one start of a worker from another one under its name."""
    return started_at.astimezone(dt.UTC).isoformat()


class StatusReport:
    """Keep what this worker says of itself; `write` publishes it. Safe from every thread."""

    def __init__(self, *, name: str, role: str, checkpoint: str) -> None:
        self.name = name
        self.note_start: Callable[[str], None] | None = None  # given the row's `started_at`
        self.state = State.STARTING
        self._columns: dict[str, Any] = {"role": role, "checkpoint": checkpoint[-200:]}
        self._trouble: dict[str, str] = {}
        self._is_started = False
        self._lock, self._writing = threading.Lock(), threading.Lock()

    def describe_engine(self, engine: Engine) -> None:
        """Take over what the engine says of itself."""
        self._columns |= {
            "device": engine.device[:100],
            "model_fingerprint": engine.model_fingerprint,
            "codec_fingerprint": engine.codec_fingerprint,
            "engine_class": asdict(engine.engine_class),
            "resampler": engine.resampler,
        }

    def trouble(self, topic: str, sentence: str = "") -> bool:
        """Set, or with an empty sentence clear, what is wrong in one respect; True if it is new."""
        with self._lock:
            changed = self._trouble.get(topic, "") != sentence
            self._trouble[topic] = sentence
        return changed

    @property
    def detail(self) -> str:
        """Return all that goes wrong at the moment, in sentences."""
        with self._lock:
            return " ".join(sentence for sentence in self._trouble.values() if sentence)

    def write(self, *, figures: dict[str, Any] | None = None) -> None:
        """Publish the row, seen now; `figures` are counts that pages show.

        Raises:
            OperationalError, InterfaceError: the database is away.
        """
        with self._writing:  # two threads that make the row at once would collide
            self._write(figures)

    def _write(self, figures: dict[str, Any] | None) -> None:
        now = leases.database_now()
        columns = self._columns | {"state": self.state, "detail": self.detail, "last_seen_at": now}
        if figures is not None:
            columns["figures"] = figures
        if not self._is_started:
            columns["started_at"] = now
        changed = WorkerStatus.objects.filter(pk=self.name).update(**columns)
        if not changed:
            WorkerStatus.objects.create(name=self.name, **({"started_at": now} | columns))
        if not self._is_started and self.note_start is not None:
            self.note_start(start_of(now))
        self._is_started = True


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
