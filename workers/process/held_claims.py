"""Keep account of the claims that this process holds, and say how many more it has room for.

What the engine has rendered waits in a queue, so that many segments are stored and settled at once:
settling one costs about as much as settling ten, and what it costs the engine's thread waits for.
Nobody waits for a bulk segment. The last one of an interactive job is settled at once, with what
waits of its job, in a queue of its own; and so are the last ones that the engine has, too few for
its slots: retakes may fill these.

Held are the segments in the engine's slots and those claimed ahead. What lies ahead is bounded
twice: by slots, as memory is, and by seconds at the pace of the last half minute, so that a slow
engine leaves its queue to other workers. Among the first bound is also what is rendered and not
stored yet: a kill takes it too. Segments that have left their slots and wait for the codec do not
count, up to as many as there are slots: with a codec slower than these they would run empty.
Interactive segments have as much room again for themselves: bulk work that fills a worker never
keeps them from its engine, which takes them first.

A process that is killed loses all that it holds, and what kills one may come again. After a loss a
worker therefore starts small, with half of what was lost at most, and holds one more for each
`SURE_SEGMENTS` that it has rendered since: with kills that go on, what they cost stays below a
tenth of what is rendered between them, or is one segment each. One that is not killed again for
`SURE_SECONDS` is back at its full pace: losses so far apart cost little beside what it renders.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from synth.contract import Reference, SegmentAudio
from synth.models import RenderJob
from ttsweb.leases import Claim
from ttsweb.work import Kind

if TYPE_CHECKING:  # a worker of files has no engine
    from workers.rendering.render import RenderRequest


class WorkUnwantedError(Exception):
    """The row behind a claim is gone, or is not ours any more: nobody waits for the result."""


@dataclass(eq=False, kw_only=True)
class HeldClaim(Claim):
    """One claim of ours; `is_lost`: the row is not ours any more, its result is not wanted.

    Segments and exports have the priority of their jobs. Of a segment also its job, what is asked
    of the engine and its answer, and, where somebody listens, the id that its take is to have.
    """

    kind: Kind
    job_id: uuid.UUID | None = None
    priority: int = 0
    is_lost: bool = False
    request: RenderRequest = field(init=False)
    future: Future[SegmentAudio] | None = None
    take_id: uuid.UUID | None = None

    def abandon(self) -> None:
        """Stop the work behind a claim that is not ours any more."""
        self.is_lost = True
        self.stop()

    def check(self) -> None:
        """Pass while the work is wanted.

        Raises:
            WorkUnwantedError: the claim is not ours any more.
        """
        if self.is_lost:
            raise WorkUnwantedError

    def stop(self) -> None:
        """Ask the engine to drop the request, if one is running."""
        if self.future is not None:
            self.future.cancel()


class HeldClaims:
    """Hold this process's claims; safe to use from every thread."""

    def __init__(self) -> None:
        self._claims: set[HeldClaim] = set()
        self._unrendered: set[HeldClaim] = set()  # segments that the engine has still to do
        self._lock = threading.Lock()

    def add(self, kind: Kind, pk: Any, token: uuid.UUID, **of_segment: Any) -> HeldClaim:
        """Note a claim just won; from now on it is renewed."""
        claim = HeldClaim(pk, token, kind=kind, **of_segment)
        with self._lock:
            self._claims.add(claim)
            if kind is Kind.SEGMENT:
                self._unrendered.add(claim)
        return claim

    def drop(self, claim: HeldClaim) -> None:
        """Forget a claim that was settled or is left to expire; dropping twice is harmless."""
        with self._lock:
            self._claims.discard(claim)
            self._unrendered.discard(claim)

    def note_rendered(self, claim: HeldClaim) -> None:
        """Note that the engine has done with a segment, which is held until it is settled."""
        with self._lock:
            self._unrendered.discard(claim)

    def unrendered(self) -> list[HeldClaim]:
        """Return the segments that the engine has still to do, or is doing."""
        with self._lock:
            return list(self._unrendered)

    @contextmanager
    def holding(self, kind: Kind, pk: Any, token: uuid.UUID) -> Iterator[HeldClaim]:
        """Hold a claim for the length of a `with` block."""
        claim = self.add(kind, pk, token)
        try:
            yield claim
        finally:
            self.drop(claim)

    def of(self, *kinds: Kind) -> list[HeldClaim]:
        """Return the claims of some kinds at this moment."""
        with self._lock:
            return [claim for claim in self._claims if claim.kind in kinds]

    def count(self, *kinds: Kind) -> int:
        return len(self.of(*kinds))

    def count_of_job(self, job_id: uuid.UUID | None) -> int:
        """Return how many segments of a job are held."""
        return sum(claim.job_id == job_id for claim in self.of(Kind.SEGMENT))

    def has_interactive(self) -> bool:
        """Return whether a segment or an export is held that somebody waits for."""
        return any(claim.priority == 0 for claim in self.of(Kind.SEGMENT, Kind.EXPORT))

    def __len__(self) -> int:
        with self._lock:
            return len(self._claims)


AHEAD_SECONDS = 2.0  # a claim takes far less; the rest is for a database that answers slowly
MOST_AHEAD_PER_SLOT = 3
LEAST_AHEAD_PER_SLOT = 0.25
PACE_SECONDS = 30.0
# Jobs that come one by one are claimed together: each look keeps the engine from the interpreter.
GATHER_SECONDS = 0.2
URGENT_SECONDS = 0.5  # how long bulk work lets what somebody waits for pass, each time
# Halved by a loss and grown by one each time, the limit is twice what came between two losses over
# this: a tenth of it is lost. From half of 64 slots it grows back in 1.4 times the time that these
# segments would have taken.
SURE_SEGMENTS = 20
SURE_SECONDS = 60.0  # nor is it small for longer, unless so few were rendered


class Room(NamedTuple):
    """Say how many more segments can be put to use: of any class, and of interactive jobs."""

    any_class: int
    interactive: int


class ClaimAhead:
    """Count what the engine finishes and say how much it needs; safe to use from every thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._busy_since: float | None = None
        self._idle_since: float | None = None
        self._ends: deque[float] = deque(maxlen=1024)
        self._first_limit: int | None = None  # since a loss, until there is no fear of another
        self._lost_at, self._ended_since = 0.0, 0
        self._gathers_until = -math.inf
        self._urgent_since: float | None = None

    def note_loss(self, limit: int) -> None:
        """Note that this worker's process was killed, and with how many segments to begin again."""
        self._first_limit = max(1, limit)
        self._lost_at, self._ended_since = self._clock(), 0

    def held_limit(self) -> int | None:
        """Return how many segments to hold at most, those to be stored included; None: any."""
        if self._first_limit is None:
            return None
        is_over = self._clock() - self._lost_at >= SURE_SECONDS
        if is_over and self._ended_since >= SURE_SEGMENTS:
            self._first_limit = None
            return None
        return self._first_limit + self._ended_since // SURE_SEGMENTS

    def note_end(self, *, is_idle: bool) -> None:
        """Note that the engine has done with a segment; `is_idle`: it has nothing else to do."""
        self._ends.append(self._clock())
        self._ended_since += 1
        if is_idle:
            self._busy_since = None
            self._ends.clear()

    def note_reused(self, number: int, *, is_idle: bool) -> None:
        """Note that so many segments needed no engine: what lies ahead is used up sooner.

        `is_idle`: the engine has nothing to do, until more is claimed in a moment, or for longer.
        """
        self._ends.extend([self._clock()] * number)
        self._idle_since = self._clock() if is_idle else None

    def note_claims(self) -> None:
        """Note that the engine has got something to do."""
        if self._idle_since is not None and self._clock() - self._idle_since > AHEAD_SECONDS:
            self._busy_since = None
            self._ends.clear()
        self._idle_since = None
        if self._busy_since is None:
            self._busy_since = self._clock()

    def note_look(self, room: int, claimed: int) -> None:
        """Note how many segments of any class there was room for, and how many were claimed.

        Where there was room for more, nothing else waited: what comes next gathers for a moment.
        """
        if not room:
            return
        if 0 < claimed < room:
            self._gathers_until = self._clock() + GATHER_SECONDS
        if self._urgent_since is not None:
            self._urgent_since = self._clock()

    def put_off(self, *, is_urgent: bool) -> float:
        """Return for how many seconds only what somebody waits for is claimed.

        That is so while others come one by one, and for a moment where this process has something
        that somebody waits for (`is_urgent`).
        """
        now = self._clock()
        if not is_urgent:
            self._urgent_since = None
        elif self._urgent_since is None:
            self._urgent_since = now
        passes = 0.0 if self._urgent_since is None else self._urgent_since + URGENT_SECONDS - now
        return max(0.0, self._gathers_until - now, passes)

    def most(self, slots: int, *, unstored: int = 0) -> int:
        """Return how many segments to hold that are not rendered yet, beside those to be stored."""
        return slots + self._ahead(slots, unstored)

    def is_low(self, unrendered: int, slots: int, *, at_codec: int = 0, unstored: int = 0) -> bool:
        """Return whether it is time to claim again: many at once, not one for each that ends."""
        left = unrendered - _count_spared(at_codec, slots)
        return left <= slots + self._ahead(slots, unstored) // 2

    def room(
        self,
        unrendered: Iterable[HeldClaim],
        slots: int,
        *,
        at_codec: int = 0,
        unstored: int = 0,
        is_urgent: bool = False,
    ) -> Room:
        """Return the room beside what is held and not rendered yet, `at_codec` of it decoded.

        For any class there is none until that much is low, nor while it is put off: a claim reads
        many rows and computes beside the engine, so that few large ones are better than many small
        ones.
        """
        held = list(unrendered)
        interactive = RenderJob.Priority.INTERACTIVE
        num_interactive = sum(1 for claim in held if claim.priority == interactive)
        most = self.most(slots, unstored=unstored) + _count_spared(at_codec, slots)
        is_low = self.is_low(len(held), slots, at_codec=at_codec, unstored=unstored)
        is_time = is_low and not self.put_off(is_urgent=is_urgent)
        return Room(most - len(held) if is_time else 0, max(0, most - num_interactive))

    def _ahead(self, slots: int, unstored: int) -> int:
        pace = self._pace()
        least = math.ceil(LEAST_AHEAD_PER_SLOT * slots)
        most = slots if pace is None else math.ceil(AHEAD_SECONDS * pace)
        return max(min(most, MOST_AHEAD_PER_SLOT * slots - unstored), least)

    def _pace(self) -> float | None:
        """Return the segments that the engine ends in a second; None until that shows."""
        since, now = self._busy_since, self._clock()
        ends = list(self._ends)
        if since is None or (not ends and now - since < PACE_SECONDS):
            return None
        start = max(since, now - PACE_SECONDS)
        if len(ends) == self._ends.maxlen:
            start = max(start, ends[0])
        recent = sum(1 for end in ends if end >= start)
        return recent / max(now - start, 0.001)


def _count_spared(at_codec: int, slots: int) -> int:
    """Return how many of the segments that wait for the codec are not counted."""
    return min(max(at_codec, 0), slots)


LINGER_SECONDS = 0.5
MOST_AT_ONCE = 32


class RenderedQueue:
    """Hold the segments that wait to be settled; safe to use from every thread.

    `schedule` is called when a run of settling is due, which calls `take`, settles, and calls
    `end_run`. One run goes at a time.
    """

    def __init__(self, schedule: Callable[[], None]) -> None:
        self._schedule = schedule
        self._items: list[HeldClaim] = []
        self._is_running = self._is_urgent = False
        self._changed = threading.Condition()

    def add(self, *items: HeldClaim, is_urgent: bool) -> None:
        with self._changed:
            self._items += items
            self._is_urgent = self._is_urgent or is_urgent
            is_due = not self._is_running
            self._is_running = True
            if self._is_ripe:
                self._changed.notify_all()
        if is_due:
            self._schedule()

    def pop_job(self, job_id: uuid.UUID | None) -> list[HeldClaim]:
        with self._changed:
            found = [item for item in self._items if item.job_id == job_id]
            self._items = [item for item in self._items if item.job_id != job_id]
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

    def take(self) -> list[HeldClaim]:
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
