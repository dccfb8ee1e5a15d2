"""Look for what all listeners of this process wait for, with one look per round for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from django.core.files.storage import default_storage
from django.db import close_old_connections, connection

from synth.live.place import Chunk, Place, SegmentState
from synth.models import LiveChunk, Segment
from synth.transitions.files import keep_live


@dataclass(frozen=True, slots=True)
class LiveRows:
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
    states = {
        pk: SegmentState(status, take_id, pause, _newest_first(attempts[pk]))
        for pk, status, take_id, pause in found
    }
    return LiveRows(orders, states)


def read_object(key: str) -> bytes | None:
    """Return an object's bytes; None when it is gone."""
    try:
        with default_storage.open(key, "rb") as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None


def _newest_first(attempts: dict[uuid.UUID, list[Chunk]]) -> dict[uuid.UUID, list[Chunk]]:
    """Return attempts in the opposite order, each in the order of its text.

    A take whose pieces were made by two processes may have them out of order.
    """
    return {
        attempt: sorted(attempts[attempt], key=lambda chunk: chunk.index)
        for attempt in reversed(attempts)
    }


POLL_SECONDS = 0.15
SOON_SECONDS = 0.02  # where a listener has come to segments that were not looked up yet
REST_PER_LOOK = 2.0
NOTE_SECONDS = 20.0

LookUp = Callable[[Collection[uuid.UUID], Collection[int]], LiveRows]
NoteListeners = Callable[[Collection[uuid.UUID]], object]

logger = logging.getLogger(__name__)


class Listener:
    """Hold what was found last for one listener."""

    def __init__(self, job_id: uuid.UUID) -> None:
        self.job_id = job_id
        self.place: Place | None = None  # None until the job's segments are known
        self.states: Mapping[int, SegmentState] = {}
        self.is_gone = False  # the job was deleted
        self.changed = asyncio.Event()


class LiveWatcher:
    """Keep the listeners' states fresh while there are any.

    Args:
        look: blocking, called in one thread, as `note`.
        note_seconds: how often `note` is told who is listened to.
    """

    def __init__(
        self, look: LookUp = look_up, note: NoteListeners = keep_live, *, note_seconds: float
    ) -> None:
        self._look_up, self._note = look, note
        self._note_seconds = min(NOTE_SECONDS, note_seconds)
        self.listeners: set[Listener] = set()
        self._rounds: asyncio.Task[None] | None = None
        self._soon = asyncio.Event()

    def open(self, job_id: uuid.UUID) -> Listener:
        """Return a listener that is told of this job from now on."""
        listener = Listener(job_id)
        self.listeners.add(listener)
        self._soon.set()
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._watch())
        return listener

    def look_soon(self) -> None:
        """Have the next look soon."""
        self._soon.set()

    async def _watch(self) -> None:
        """Look until nobody listens; the thread has one database connection."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="live-look")
        noted_at = loop.time()
        try:
            while self.listeners:
                self._soon.clear()
                listeners = list(self.listeners)
                new = {one.job_id for one in listeners if one.place is None}
                places = [one.place for one in listeners if one.place is not None]
                wanted = {pk for place in places for pk in place.window}
                heard: set[uuid.UUID] = set()
                if loop.time() - noted_at >= self._note_seconds:
                    noted_at, heard = loop.time(), {one.job_id for one in listeners}
                started = loop.time()
                found = await loop.run_in_executor(thread, self._look, new, wanted, heard)
                if found is not None:
                    self._update(found, wanted, listeners)
                await self._rest(REST_PER_LOOK * (loop.time() - started))
        finally:
            thread.submit(_close_connection)
            thread.shutdown(wait=False)  # waiting here would hold up every other request

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(SOON_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(POLL_SECONDS, seconds)):
                await self._soon.wait()

    def _look(
        self, new: Collection[uuid.UUID], wanted: Collection[int], heard: Collection[uuid.UUID]
    ) -> LiveRows | None:
        """Return what is there now; None while the database cannot be asked."""
        try:
            close_old_connections()
            if heard:
                self._note(heard)
            return self._look_up(new, wanted)
        except Exception:
            logger.warning("cannot look up the jobs of live listeners", exc_info=True)
            return None

    def _update(
        self, found: LiveRows, wanted: Collection[int], listeners: Collection[Listener]
    ) -> None:
        """Give each listener its states; one whose job is gone is told so."""
        for one in listeners:
            if one.place is None:
                order = found.orders.get(one.job_id, ())
                one.place, one.is_gone = Place(order), not order
                self._soon.set()  # their states are still to be looked up
            else:
                asked = [pk for pk in one.place.window if pk in wanted]
                one.is_gone = any(pk not in found.states for pk in asked)
                one.states = found.states
            one.changed.set()


def _close_connection() -> None:
    """Close the watcher thread's connection; a server has few, and nobody listens now."""
    connection.close()
