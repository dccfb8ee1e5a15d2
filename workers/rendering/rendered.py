"""Gather what the engine has rendered, so that many segments are stored and settled at once.

Settling one segment costs about as much as settling ten, and what it costs the engine's thread
waits for. Nobody waits for a bulk segment. The last one of an interactive job is settled at once,
with what waits of its job, in a queue of its own; and so are the last ones that the engine has, too
few for its slots: retakes may fill these.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from synth.contract import SegmentAudio
from workers.process.held_claims import HeldClaim

if TYPE_CHECKING:  # a worker of files has no engine
    from workers.rendering.render_request import RenderRequest
from collections import OrderedDict
from collections.abc import Iterable

from synth.contract import Reference

LINGER_SECONDS = 0.5
MOST_AT_ONCE = 32


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """Hold a claimed segment with what was asked of the engine, and its answer."""

    claim: HeldClaim
    request: RenderRequest
    future: Future[SegmentAudio]


class RenderedQueue:
    """Hold what waits to be settled; safe to use from every thread.

    `schedule` is called when a run of settling is due, which calls `take`, settles, and calls
    `end_run`. One run goes at a time.
    """

    def __init__(self, schedule: Callable[[], None]) -> None:
        self._schedule = schedule
        self._items: list[Rendered] = []
        self._is_running = self._is_urgent = False
        self._changed = threading.Condition()

    def add(self, *items: Rendered, is_urgent: bool) -> None:
        with self._changed:
            self._items += items
            self._is_urgent = self._is_urgent or is_urgent
            is_due = not self._is_running
            self._is_running = True
            if self._is_ripe:
                self._changed.notify_all()
        if is_due:
            self._schedule()

    def pop_job(self, job_id: uuid.UUID | None) -> list[Rendered]:
        with self._changed:
            found = [item for item in self._items if item.claim.job_id == job_id]
            self._items = [item for item in self._items if item.claim.job_id != job_id]
        return found

    def wait_no_longer(self) -> None:
        """Have the run that goes on, if one does, wait for nothing."""
        with self._changed:
            self._is_urgent = self._is_running
            self._changed.notify_all()

    def __len__(self) -> int:
        """Return how many wait, those of a run that goes on left out."""
        with self._changed:
            return len(self._items)

    def take(self) -> list[Rendered]:
        """Return what is to be settled now, waiting a moment for more unless it is urgent."""
        deadline = time.monotonic() + LINGER_SECONDS
        with self._changed:
            while not self._is_ripe and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            taken, self._items = self._items[:MOST_AT_ONCE], self._items[MOST_AT_ONCE:]
            self._is_urgent = self._is_urgent and bool(self._items)
        return taken

    def end_run(self) -> None:
        """End a run; another one follows where more has come meanwhile."""
        with self._changed:
            self._is_running = bool(self._items)
            is_due = self._is_running
            self._changed.notify_all()
        if is_due:
            self._schedule()

    def wait_idle(self, seconds: float) -> bool:
        """Return whether no run goes on, having waited for that so long at most."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_running, seconds)

    def wait_urgent(self, seconds: float, *, unless: Future[None]) -> None:
        """Wait so long at most for something urgent to come, or for `unless` to end."""
        unless.add_done_callback(self._notify)
        with self._changed:
            self._changed.wait_for(lambda: self._is_urgent or unless.done(), seconds)

    def _notify(self, _: Future[None]) -> None:
        with self._changed:
            self._changed.notify_all()

    @property
    def _is_ripe(self) -> bool:
        return self._is_urgent or len(self._items) >= MOST_AT_ONCE


MOST_VOICES = 1000
References = tuple[Reference, ...]
Forget = Callable[[References], None]


class SpokenVoices:
    """Hold the references of voices by the fingerprints of their clips; safe from every thread.

    At most `MOST_VOICES`, least recently spoken out first: the engine has long let go of those.
    """

    def __init__(self) -> None:
        self._spoken: OrderedDict[tuple[str, ...], References] = OrderedDict()
        self._leaving: list[tuple[References, set[HeldClaim]]] = []
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._spoken)

    def note(self, clips: tuple[str, ...], references: References) -> None:
        """Note references that the engine is given, and the fingerprints of all their clips."""
        if not clips:
            return
        with self._lock:
            self._spoken[clips] = references
            self._spoken.move_to_end(clips)
            if len(self._spoken) > MOST_VOICES:
                self._spoken.popitem(last=False)

    def forget(
        self, evicted: Iterable[str], unrendered: Iterable[HeldClaim], forget: Forget
    ) -> None:
        """Call `forget` for the references with an evicted clip, and for those that left before.

        Call it often. `unrendered` are the segments that the engine has still to do.
        """
        waiting = set(unrendered)
        with self._lock:
            gone = set(evicted)
            keys = [key for key in self._spoken if not gone.isdisjoint(key)] if gone else []
            found = [self._spoken.pop(key) for key in keys]
            ended = [one for one, claims in self._leaving if not claims & waiting]
            self._leaving = [(one, claims) for one, claims in self._leaving if claims & waiting]
            self._leaving += [(one, waiting) for one in found if waiting]
        for references in [*found, *ended]:
            forget(references)
