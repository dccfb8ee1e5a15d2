"""Go on with `GET /api/v1/jobs/{id}/audio?live=1` outside Django, without a thread per listener.

Django's view decides who may listen and to what, and says so by a header. From there on the rows
say which objects follow each other, and their bytes are sent as fast as the client takes them:
nothing is decoded or queued. Without this wrapper the answer has no body.
"""

from __future__ import annotations

import re
import uuid

from synth.live.answer import send_no_room, send_not_started
from synth.live.player import LivePlayer, Outcome
from ttsweb.http.asgi_ask import Answer, AsgiApp, Receive, Scope, Send, ask

LIVE_HEADER = "TTS-Live"  # set by the view: the format; never sent on
_PATH = re.compile(r"/api/v1/jobs/([0-9a-f-]{36})/audio", re.IGNORECASE)


class LiveStreams:
    """Wrap an ASGI application; streams of audio that is being made are served by this.

    Args:
        start_seconds: how long a listener waits for the first audio.
    """

    def __init__(self, app: AsgiApp, player: LivePlayer, *, start_seconds: float) -> None:
        self._app, self._player = app, player
        self._start_seconds = start_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; everything but a live stream goes through untouched."""
        job_id = _listened_to(scope)
        if job_id is None:
            await self._app(scope, receive, send)
            return
        answer = await ask(self._app, scope, LIVE_HEADER)
        if answer.said is None:  # refused, or a finished file
            await _send_on(answer, send)
            return
        if not self._player.has_room:
            await send_no_room(send, self._player.max_streams)
            return
        outcome = await self._player.stream(
            job_id, answer.said, receive, send, start_seconds=self._start_seconds
        )
        if outcome is Outcome.NOTHING:
            answer = await ask(self._app, scope, LIVE_HEADER)  # which says why
            if answer.said is None:
                await _send_on(answer, send)
                return
        if outcome in (Outcome.NOTHING, Outcome.LATE):
            await send_not_started(send, job_id, self._start_seconds)


async def _send_on(answer: Answer, send: Send) -> None:
    for message in answer.messages:
        await send(message)


def _listened_to(scope: Scope) -> uuid.UUID | None:
    """Return the job whose audio this request may want to hear, if it is such a request."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    if b"live=" not in scope.get("query_string", b""):
        return None
    found = _PATH.fullmatch(scope["path"].removeprefix(scope.get("root_path", "")))
    try:
        return uuid.UUID(found[1]) if found else None
    except ValueError:
        return None
