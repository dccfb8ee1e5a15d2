"""Note who listens to which job, and what each hears next, by one look per round for all."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from django.core.files.storage import default_storage
from django.db.models import Q

from synth.jobs.removal import update_jobs
from synth.models import LiveChunk, RenderJob, Segment
from ttsweb import leases
from ttsweb.http.asgi_ask import Rounds, Run
from ttsweb.work import FILL_LIVE, enqueue_task

CLOSED_WITHOUT_AUDIO = (Segment.Status.FAILED, Segment.Status.CANCELLED)
WINDOW = 4  # segments that are looked up at once: the present one and those behind it

FRESH = dt.timedelta(seconds=30)  # a request that follows so soon changes nothing


def request_live(job_id: uuid.UUID) -> bool:
    """Have pieces of the job's audio written from now on, and those of what is done already.

    Returns:
        Whether anything was changed: False for a job that is gone or was asked for a moment ago.
    """
    now = leases.database_now()
    stale = Q(live_requested_at__isnull=True) | Q(live_requested_at__lt=now - FRESH)
    changed = RenderJob.objects.filter(stale, pk=job_id).update(live_requested_at=now)
    if changed:
        enqueue_task(FILL_LIVE)
    return bool(changed)


def keep_live(job_ids: Collection[uuid.UUID]) -> int:
    """Note that somebody still listens to these jobs; return how many are there."""
    rows = RenderJob.objects.filter(pk__in=list(job_ids), live_requested_at__isnull=False)
    return update_jobs(rows, live_requested_at=leases.database_now())


def end_live(*, keep_seconds: float, limit: int = 100) -> int:
    """Forget ended jobs that nobody has listened to for so long; their pieces may go.

    Returns:
        How many jobs.
    """
    cutoff = leases.database_now() - dt.timedelta(seconds=keep_seconds)
    over = RenderJob.objects.filter(
        status__in=RenderJob.FINAL, live_requested_at__lt=cutoff, finished_at__lt=cutoff
    )
    # Chosen first, as an UPDATE has no limit; the condition is repeated, as one may listen again.
    chosen = list(over.order_by().values_list("pk", flat=True)[:limit])
    return update_jobs(over.filter(pk__in=chosen), live_requested_at=None) if chosen else 0


@dataclass(frozen=True, slots=True)
class Chunk:
    """Name one object of samples, s16le; `key` is empty where `num_samples` is 0."""

    index: int
    key: str
    num_samples: int
    sample_rate: int
    is_last: bool


class SegmentState(NamedTuple):
    """A segment at one moment, and what is listed of each attempt at it, the newest first."""

    status: str
    take_id: uuid.UUID | None
    pause_after_ms: int
    attempts: Mapping[uuid.UUID, Sequence[Chunk]] = MappingProxyType({})


class Sound(NamedTuple):
    """Say that `num_samples` of an object follow, behind its first `skip` samples."""

    key: str
    skip: int
    num_samples: int
    sample_rate: int


class Pause(NamedTuple):
    """Say that a segment is over, and that a pause follows, which may be empty."""

    num_samples: int


class Place:
    """Hold where a listener is: the segment, the attempt at it, and the samples heard of it.

    An attempt that is lost, as its worker died, is left at the sample where it stops for another
    one at the same segment, whose samples are the same: its seed and its text are.

    Args:
        order: the job's segments in the order of the text.
    """

    def __init__(self, order: Sequence[int]) -> None:
        self._order = order
        self._number = 0
        self._attempt: uuid.UUID | None = None
        self._offset = 0
        self._sample_rate: int | None = None
        self.is_whole = True  # no segment was left out so far, nor a part of one

    @property
    def window(self) -> Sequence[int]:
        """Return the segments whose states are wanted."""
        return self._order[self._number : self._number + WINDOW]

    @property
    def is_over(self) -> bool:
        return self._number >= len(self._order)

    @property
    def has_begun(self) -> bool:
        return self._sample_rate is not None

    def step(self, states: Mapping[int, SegmentState]) -> Sound | Pause | None:
        """Return what is to be sent now, and move behind it; None where it is not there yet."""
        while not self.is_over:
            state = states.get(self._order[self._number])
            if state is None:
                return None
            chunks = self._choose_chunks(state)
            if chunks is None:
                is_silent = state.status == Segment.Status.DONE and state.take_id is None
                if not is_silent and state.status not in CLOSED_WITHOUT_AUDIO:
                    return None  # something may still come of it
                self.is_whole = False
                was_heard = self._offset > 0
                self._go_on()
                if was_heard:
                    return Pause(0)
                continue
            sound = self._next_sound(chunks)
            if sound is not None:
                if self._sample_rate not in (None, sound.sample_rate):
                    # The stream ends, as it cannot say that the rate is another from here on.
                    self._number, self.is_whole = len(self._order), False
                    return None
                self._sample_rate = sound.sample_rate
                self._offset += sound.num_samples
                return sound
            self._go_on()
            return Pause(round(state.pause_after_ms * (self._sample_rate or 0) / 1000))
        return None

    def _choose_chunks(self, state: SegmentState) -> Sequence[Chunk] | None:
        """Return the listed pieces that lead on from here, or to the segment's end."""
        if self._attempt is not None:
            own = _unbroken(state.attempts.get(self._attempt, ()))
            if _leads_on(own, self._offset):
                return own
        others = list(state.attempts)
        if state.status == Segment.Status.DONE:
            others = [state.take_id] if state.take_id is not None else []
        for attempt in others:
            chunks = _unbroken(state.attempts.get(attempt, ()))
            if _leads_on(chunks, self._offset):
                self._attempt = attempt
                return chunks
            if attempt == self._attempt:
                break  # what is older than the one that is heard leads nowhere
        return None

    def _next_sound(self, chunks: Sequence[Chunk]) -> Sound | None:
        """Return what follows the samples that were heard; None at the end."""
        start = 0
        for chunk in chunks:
            end = start + chunk.num_samples
            if self._offset < end:
                skip = self._offset - start
                return Sound(chunk.key, skip, chunk.num_samples - skip, chunk.sample_rate)
            start = end
        return None

    def _go_on(self) -> None:
        self._number, self._attempt, self._offset = self._number + 1, None, 0


def _unbroken(chunks: Sequence[Chunk]) -> Sequence[Chunk]:
    """Return the chunks up to the first that is not listed yet."""
    count = 0
    while count < len(chunks) and chunks[count].index == count:
        count += 1
    return chunks[:count]


def _leads_on(chunks: Sequence[Chunk], offset: int) -> bool:
    """Say whether there are samples behind `offset`, or the end is known to lie at or before it."""
    if not chunks:
        return False
    return chunks[-1].is_last or sum(chunk.num_samples for chunk in chunks) > offset


class LiveRows(NamedTuple):
    """Hold what one look has found; a job without segments, or that is gone, has an empty order."""

    orders: Mapping[uuid.UUID, Sequence[int]]
    states: Mapping[int, SegmentState]


def look_up(new_jobs: Collection[uuid.UUID], segment_ids: Collection[int]) -> LiveRows:
    """Return the orders of some jobs and the states of some segments, with three queries."""
    orders: dict[uuid.UUID, list[int]] = {job_id: [] for job_id in new_jobs}
    if new_jobs:
        rows = Segment.objects.filter(job__in=list(new_jobs)).order_by("chapter__index", "index")
        for job_id, pk in rows.values_list("job_id", "pk"):
            orders[job_id].append(pk)
    if not segment_ids:
        return LiveRows(orders, {})
    attempts: dict[int, dict[uuid.UUID, list[Chunk]]] = {pk: {} for pk in segment_ids}
    # The states come first: what is done has all its pieces in the second answer, or will have.
    segments = Segment.objects.filter(pk__in=list(segment_ids)).order_by()
    found = list(segments.values_list("pk", "status", "take_id", "pause_after_ms"))
    chunks = LiveChunk.objects.filter(segment__in=list(segment_ids)).order_by("pk")
    columns = ("index", "key", "num_samples", "sample_rate", "is_last")
    for pk, attempt, *values in chunks.values_list("segment_id", "attempt", *columns):
        attempts[pk].setdefault(attempt, []).append(Chunk(*values))
    # Pieces by their index: a take that two processes made may have them out of order.
    states = {}
    for pk, status, take_id, pause in found:
        newest_first = {
            attempt: sorted(attempts[pk][attempt], key=lambda chunk: chunk.index)
            for attempt in reversed(attempts[pk])
        }
        states[pk] = SegmentState(status, take_id, pause, newest_first)
    return LiveRows(orders, states)


def read_object(key: str) -> bytes | None:
    """Return an object's bytes; None when it is gone."""
    try:
        with default_storage.open(key, "rb") as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None


POLL_SECONDS = 0.15
SHARE_OF_WAIT = 0.1  # of how long the newest listener has heard nothing: by so much more, at most
SOON_SECONDS = 0.02  # where a listener has come to segments that were not looked up yet
REST_PER_LOOK = 2.0
NOTE_SECONDS = 20.0

LookUp = Callable[[Collection[uuid.UUID], Collection[int]], LiveRows]
NoteListeners = Callable[[Collection[uuid.UUID]], object]


class Listener:
    """Hold what was found last for one listener."""

    def __init__(self, job_id: uuid.UUID) -> None:
        self.job_id = job_id
        self.place: Place | None = None  # None until the job's segments are known
        self.states: Mapping[int, SegmentState] = {}
        self.is_gone = False  # the job was deleted
        self.changed = asyncio.Event()
        self._opened_at = asyncio.get_running_loop().time()

    @property
    def silent_seconds(self) -> float | None:
        """Return for how long the listener has heard nothing yet; None of one who has."""
        if self.place is not None and self.place.has_begun:
            return None
        return asyncio.get_running_loop().time() - self._opened_at


class LiveWatcher(Rounds):
    """Keep the listeners' states fresh while there are any.

    Args:
        look_up: blocking, called in one thread, as `note`.
        note_seconds: how often `note` is told who is listened to.
    """

    thread_name = "live-look"
    failure = "cannot look up the jobs of live listeners"

    def __init__(
        self, look_up: LookUp = look_up, note: NoteListeners = keep_live, *, note_seconds: float
    ) -> None:
        super().__init__()
        self._look_up, self._note = look_up, note
        self._note_seconds = min(NOTE_SECONDS, note_seconds)
        self._noted_at = 0.0  # by the loop's clock
        self.listeners: set[Listener] = set()
        self.soon = asyncio.Event()  # set to have the next look soon

    @property
    def is_wanted(self) -> bool:
        return bool(self.listeners)

    def open(self, job_id: uuid.UUID) -> Listener:
        """Return a listener that is told of this job from now on."""
        listener = Listener(job_id)
        self.listeners.add(listener)
        self.soon.set()
        if self.start():
            self._noted_at = asyncio.get_running_loop().time()
        return listener

    async def look(self, run: Run) -> None:
        self.soon.clear()
        listeners = list(self.listeners)
        new = {one.job_id for one in listeners if one.place is None}
        places = [one.place for one in listeners if one.place is not None]
        wanted = {pk for place in places for pk in place.window}
        now = asyncio.get_running_loop().time()
        heard: set[uuid.UUID] = set()
        if now - self._noted_at >= self._note_seconds:
            self._noted_at, heard = now, {one.job_id for one in listeners}
        found = await run(self._read, new, wanted, heard)
        if found is not None:
            self._update(found, wanted, listeners)

    async def rest(self, took: float) -> None:
        await asyncio.sleep(SOON_SECONDS)
        waits = [one.silent_seconds for one in self.listeners]
        pauses = [SHARE_OF_WAIT * seconds for seconds in waits if seconds is not None]
        pause = min([POLL_SECONDS, *pauses])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(pause, REST_PER_LOOK * took)):
                await self.soon.wait()

    def _read(
        self, new: Collection[uuid.UUID], wanted: Collection[int], heard: Collection[uuid.UUID]
    ) -> LiveRows:
        if heard:
            self._note(heard)
        return self._look_up(new, wanted)

    def _update(
        self, found: LiveRows, wanted: Collection[int], listeners: Collection[Listener]
    ) -> None:
        """Give each listener its states; one whose job is gone is told so."""
        for one in listeners:
            if one.place is None:
                order = found.orders.get(one.job_id, ())
                one.place, one.is_gone = Place(order), not order
                self.soon.set()  # their states are still to be looked up
            else:
                asked = [pk for pk in one.place.window if pk in wanted]
                one.is_gone = any(pk not in found.states for pk in asked)
                one.states = found.states
            one.changed.set()
