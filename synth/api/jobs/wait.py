"""Let a poll wait for its job without a thread: `GET /api/v1/jobs/{id}?wait=SECONDS`.

Batches are waited for as well; a voice is waited for until it is encoded, or cannot be.

Inside Django every waiting request would hold a thread and a database connection. So the wait is
outside: Django answers at once and says by a header how long may be waited; the answer is kept
back until the job has ended or the time is over, and then Django is asked a second time. So a 304
to `If-None-Match` also tells of the moment after the wait, not of the one before it. One query
finds the ended ones among all waiting jobs of the process. Without this wrapper, polls are answered
at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection

from django.db.models import OuterRef, Subquery

from synth.models import Batch, RenderJob
from synth.transitions.jobs import UNFINISHED
from ttsweb.http import asgi_ask as asgi
from voices.models import Voice, VoiceVersion

POLL_SECONDS = 0.3  # between two looks; sooner for who has just come, whose job may be short
FIRST_SECONDS = 0.05
SHARE_OF_WAIT = 0.2  # of how long the newest one waits: it is kept by so much at most
REST_PER_LOOK = 4.0  # times what a look took: a slow database is not asked all the time
_PATH = re.compile(r"/api/v1/(jobs|batches|voices|book-batches)/([0-9a-f-]{36})", re.IGNORECASE)

FindUnfinished = Callable[[Collection[uuid.UUID]], set[uuid.UUID]]


def find_unfinished(ids: Collection[uuid.UUID]) -> set[uuid.UUID]:
    """Return those of the jobs, batches and voices that are worked on; the watcher's thread."""
    jobs = RenderJob.objects.filter(pk__in=list(ids), status__in=UNFINISHED)
    found = set(jobs.order_by().values_list("pk", flat=True))
    others = set(ids) - found  # jobs that have just ended, batches and voices
    if not others:
        return found
    batches = Batch.objects.filter(pk__in=list(others), ended_at__isnull=True)
    found |= set(batches.order_by().values_list("pk", flat=True))
    # Voices whose newest version waits for the encoder, or is in it.
    newest = VoiceVersion.objects.filter(voice=OuterRef("pk")).order_by("-number")
    voices = Voice.objects.filter(pk__in=list(others), deleted_at__isnull=True)
    voices = voices.annotate(state=Subquery(newest.values("status")[:1]))
    encoding = (VoiceVersion.Status.PENDING, VoiceVersion.Status.ENCODING)
    return found | set(voices.filter(state__in=encoding).order_by().values_list("pk", flat=True))


class JobWait:
    """Wrap an ASGI application; polls with `wait` are kept until their job has ended.

    Args:
        max_waiters: polls that wait at once; what comes on top is answered at once.
        unfinished: finds the unfinished among some jobs; blocking, called in one thread.
    """

    def __init__(
        self, app: asgi.AsgiApp, *, max_waiters: int, unfinished: FindUnfinished = find_unfinished
    ) -> None:
        self._app, self._max_waiters = app, max_waiters
        self._watcher = _Watcher(unfinished)
        self._num_waiters = 0

    async def __call__(self, scope: asgi.Scope, receive: asgi.Receive, send: asgi.Send) -> None:
        """Serve one connection; everything but a waiting poll goes through untouched."""
        found = asgi.find_row(scope, _PATH, query=b"wait=")
        if found is None:
            await self._app(scope, receive, send)
            return
        answer = await asgi.ask(self._app, scope, asgi.WAIT_HEADER)
        seconds = float(answer.said or 0)
        if seconds > 0 and self.has_room:
            if not await self.wait(found[1], seconds, receive):
                return  # the client has gone
            answer = await asgi.ask(self._app, scope, asgi.WAIT_HEADER)
        await answer.send_on(send)

    @property
    def has_room(self) -> bool:
        return self._num_waiters < self._max_waiters

    async def wait(self, job_id: uuid.UUID, seconds: float, receive: asgi.Receive) -> bool:
        """Wait until the job has ended or the time is over; False when the client left before."""

        def leave() -> None:
            self._num_waiters -= 1

        self._num_waiters += 1
        return bool(await asgi.until_left(self._watcher.wait(job_id, seconds), receive, leave))


class _Watcher(asgi.Rounds):
    """Look for the end of all waited-for jobs by one query per round, while there are any."""

    thread_name = "job-wait"
    failure = "cannot look up the jobs of waiting requests"

    def __init__(self, unfinished: FindUnfinished) -> None:
        super().__init__()
        self._unfinished = unfinished
        self._waiters: defaultdict[uuid.UUID, set[asyncio.Future[None]]] = defaultdict(set)
        self._newest_at = 0.0  # by the loop's clock
        self._has_come = asyncio.Event()

    @property
    def is_wanted(self) -> bool:
        return bool(self._waiters)

    async def wait(self, job_id: uuid.UUID, seconds: float) -> bool:
        """Wait until the job has ended, or for `seconds`.

        Returns:
            True in both cases: `until_left` returns None instead where the client leaves before.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[job_id].add(future)
        self._newest_at = asyncio.get_running_loop().time()
        self._has_come.set()
        self.start()
        try:
            await asyncio.wait({future}, timeout=seconds)
            return True
        finally:
            self._waiters[job_id].discard(future)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    async def look(self, run: asgi.Run) -> None:
        self._has_come.clear()
        job_ids = list(self._waiters)
        unfinished = await run(self._unfinished, job_ids)
        ended = () if unfinished is None else set(job_ids) - unfinished
        for job_id in ended:
            for future in self._waiters.get(job_id, ()):
                if not future.done():
                    future.set_result(None)

    async def rest(self, took: float) -> None:
        """Sleep until the next look is due; somebody who comes meanwhile has it soon."""
        now = asyncio.get_running_loop().time()
        least = max(FIRST_SECONDS, REST_PER_LOOK * took)
        await asyncio.sleep(min(least, POLL_SECONDS))
        left = min(POLL_SECONDS, SHARE_OF_WAIT * (now - self._newest_at)) - least
        if left > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_come.wait(), left)
