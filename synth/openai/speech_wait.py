"""Let a request for speech wait for its audio without a thread: `POST /v1/audio/speech`.

Django makes the job and answers at once; a header says how long may be waited for which job, and
where to ask then. The answer is kept back until the job has ended or the time is over; then what
Django says at that address is the answer. Without this wrapper the first answer, an error that
names the job, goes out. Where another header says so, the audio is sent while it is rendered; an
error behind its beginning breaks the answer off.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from synth.api.jobs.wait import JobWait
from synth.live.streams import LIVE_HEADER, LivePlayer, Outcome
from ttsweb.http.asgi_ask import COUNTED, Message, Receive, Scope, Send, path_of

THEN_HEADER = "TTS-Speech-Then"  # `SECONDS JOB ADDRESS`; set by the view, never sent on
_HEADER_NAME = THEN_HEADER.lower().encode()
_LIVE_NAME = LIVE_HEADER.lower().encode()
_PATH_END = "/v1/audio/speech"
# Of the first request alone: its body, and what would ask for less than the whole file.
_DROPPED_HEADERS = {
    b"content-length",
    b"content-type",
    b"transfer-encoding",
    b"expect",
    b"range",
    b"if-range",
    b"if-match",
    b"if-none-match",
    b"if-modified-since",
    b"if-unmodified-since",
}


class SpeechWait:
    """Wrap polls that wait, and let requests for speech wait among them.

    Args:
        player: sends audio while it is rendered; without it a request waits for the whole.
    """

    def __init__(self, app: JobWait, player: LivePlayer | None = None) -> None:
        self._app, self._player = app, player

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; everything but a request for speech goes through untouched."""
        if not _is_speech(scope):
            await self._app(scope, receive, send)
            return
        first = _FirstAnswer(send)
        await self._app(scope, receive, first.take)
        then = first.then
        if then is None:
            return
        if first.live and self._player is not None and self._player.has_room:
            outcome = await self._player.stream(
                then.job_id, first.live, receive, send, start_seconds=then.seconds
            )
            if outcome in (Outcome.NOTHING, Outcome.LATE):
                await self._app(_second_scope(scope, then), _second_receive(receive), send)
        elif not self._app.has_room:
            for message in first.kept:
                await send(message)
        elif await self._app.wait(then.job_id, then.seconds, receive):  # else the client has gone
            await self._app(_second_scope(scope, then), _second_receive(receive), send)


@dataclass(frozen=True)
class _Then:
    """Say what is to be waited for, and which path and query to ask then."""

    seconds: float
    job_id: uuid.UUID
    path: str
    query: str


class _FirstAnswer:
    """Send the first answer on, or keep it where it says that something is to be waited for."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.then: _Then | None = None
        self.live = ""  # the format in which it may be sent while it is rendered
        self.kept: list[Message] = []

    async def take(self, message: Message) -> None:
        """Take the next message of the answer."""
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            found = [value for name, value in headers if name.lower() == _HEADER_NAME]
            if found:
                self.then = _parse(found[0].decode())
                live = [value for name, value in headers if name.lower() == _LIVE_NAME]
                self.live = live[0].decode() if live else ""
                meant = (_HEADER_NAME, _LIVE_NAME)
                headers = [header for header in headers if header[0].lower() not in meant]
                message = {**message, "headers": headers}
        if self.then is None:
            await self._send(message)
        else:
            self.kept.append(message)


def _parse(header: str) -> _Then:
    seconds, job_id, address = header.split(" ", 2)
    path, _, query = address.partition("?")
    return _Then(float(seconds), uuid.UUID(job_id), path, query)


def _is_speech(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] == "POST" and path_of(scope) == _PATH_END


def _second_scope(scope: Scope, then: _Then) -> Scope:
    """Return the request for the ended job: the first one's sender and key, another address."""
    headers = [item for item in scope["headers"] if item[0].lower() not in _DROPPED_HEADERS]
    return {
        **scope,
        "method": "GET",
        "path": then.path,
        "raw_path": then.path.encode(),
        "query_string": then.query.encode(),
        "headers": headers,
        COUNTED: True,
    }


def _second_receive(receive: Receive) -> Receive:
    """Return the messages of a request without a body; after it, those of the connection."""
    is_read = False

    async def receive_rest() -> Message:
        nonlocal is_read
        if is_read:
            return await receive()
        is_read = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive_rest
