"""Look for what all listeners of this process wait for, with one look per round for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

from synth.live.place import Place, SegmentState
from synth.live.reading import Looked, look_up, note_listeners

POLL_SECONDS = 0.15
HURRY_SECONDS = 0.02  # where a listener has come to segments that were not looked up yet
REST_PER_LOOK = 2.0
NOTE_SECONDS = 20.0

LookUp = Callable[[Collection[uuid.UUID], Collection[int]], Looked]
NoteListeners = Callable[[Collection[uuid.UUID]], None]

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
        self, look: LookUp = look_up, note: NoteListeners = note_listeners, *, note_seconds: float
    ) -> None:
        self._look_up, self._note = look, note
        self._note_seconds = min(NOTE_SECONDS, note_seconds)
        self.listeners: set[Listener] = set()
        self._rounds: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()

    def open(self, job_id: uuid.UUID) -> Listener:
        """Return a listener that is told of this job from now on."""
        listener = Listener(job_id)
        self.listeners.add(listener)
        self._hurry.set()
        if self._rounds is None or self._rounds.done():
            self._rounds = asyncio.create_task(self._watch())
        return listener

    def hurry(self) -> None:
        """Have the next look soon."""
        self._hurry.set()

    async def _watch(self) -> None:
        """Look until nobody listens; the thread has one database connection."""
        loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="live-look")
        noted_at = loop.time()
        try:
            while self.listeners:
                self._hurry.clear()
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
                    self._hand_out(found, wanted, listeners)
                await self._rest(REST_PER_LOOK * (loop.time() - started))
        finally:
            thread.submit(_close_connection)
            thread.shutdown(wait=False)  # waiting here would hold up every other request

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(HURRY_SECONDS)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(POLL_SECONDS, seconds)):
                await self._hurry.wait()

    def _look(
        self, new: Collection[uuid.UUID], wanted: Collection[int], heard: Collection[uuid.UUID]
    ) -> Looked | None:
        """Return what is there now; None while the database cannot be asked."""
        from django.db import close_old_connections

        try:
            close_old_connections()
            if heard:
                self._note(heard)
            return self._look_up(new, wanted)
        except Exception:
            logger.warning("cannot look up the jobs of live listeners", exc_info=True)
            return None

    def _hand_out(
        self, found: Looked, wanted: Collection[int], listeners: Collection[Listener]
    ) -> None:
        """Give each listener its states; one whose job is gone is told so."""
        for one in listeners:
            if one.place is None:
                order = found.orders.get(one.job_id, ())
                one.place, one.is_gone = Place(order), not order
                self._hurry.set()  # their states are still to be looked up
            else:
                asked = [pk for pk in one.place.window if pk in wanted]
                one.is_gone = any(pk not in found.states for pk in asked)
                one.states = found.states
            one.changed.set()


def _close_connection() -> None:
    """Close the watcher thread's connection; a server has few, and nobody listens now."""
    from django.db import connection

    connection.close()
