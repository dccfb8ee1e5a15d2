"""Let a request for speech wait for its audio without a thread: `POST /v1/audio/speech`.

Django makes the job and answers at once; a header says how long may be waited for which job, and
where to ask then. The audio is sent while it is rendered, as a file or as events. Where there is no
place for another listener, the answer is kept back until the job has ended or the time is over;
then, and where no audio came, what Django says at that address is the answer. Without this wrapper
the first answer, an error that names the job, goes out.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs

from synth.api.jobs.wait import JobWait
from synth.dialects.speech_events import EventAnswer
from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER, LiveAnswer, LivePlayer, live_headers
from ttsweb.http.asgi_ask import COUNTED, Message, Receive, Scope, Send, path_of

THEN_HEADER = "TTS-Speech-Then"  # `SECONDS JOB ADDRESS`; set by the view, never sent on
_HEADER_NAME = THEN_HEADER.lower().encode()
_LIVE_NAME = LIVE_HEADER.lower().encode()
_SPEECH = re.compile(
    r"/(?:v1|openai/v1|openai/deployments/[^/]+)/audio/speech/?"
    r"|/v1/tts/?|/v1/text-to-speech/[^/]+(?:/stream)?/?"
)
# Of the first answer, which alone has read the body: what it says of the request.
_KEPT_HEADERS = (b"x-tts-", b"x-request-id", b"access-control-")
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
        send_with_notes = _with_notes(send, first.notes)
        if first.live and self._player is not None and self._player.has_room:
            options = LiveOptions.from_header(first.live)
            answer = _live_answer(scope, send_with_notes, options, then)
            outcome = await self._player.stream(
                then.job_id, options, receive, answer, start_seconds=then.seconds
            )
            if outcome is not None:
                await self._app(
                    _second_scope(scope, then), _second_receive(receive), send_with_notes
                )
        elif not self._app.has_room:
            await first.send_kept()
        elif await self._app.wait(then.job_id, then.seconds, receive):  # else the client has gone
            await self._app(_second_scope(scope, then), _second_receive(receive), send_with_notes)


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
        self.live = ""  # how it may be sent while it is rendered
        self.kept: list[Message] = []
        self.notes: list[tuple[bytes, bytes]] = []

    async def take(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            found = [value for name, value in headers if name.lower() == _HEADER_NAME]
            if found:
                self.then = _parse(found[0].decode())
                live = [value for name, value in headers if name.lower() == _LIVE_NAME]
                self.live = live[0].decode() if live else ""
                self.notes = [one for one in headers if one[0].lower().startswith(_KEPT_HEADERS)]
                meant = (_HEADER_NAME, _LIVE_NAME)
                headers = [header for header in headers if header[0].lower() not in meant]
                message = {**message, "headers": headers}
        if self.then is None:
            await self._send(message)
        else:
            self.kept.append(message)

    async def send_kept(self) -> None:
        for message in self.kept:
            await self._send(message)


def _with_notes(send: Send, notes: Sequence[tuple[bytes, bytes]]) -> Send:
    """Return what sends an answer with these headers as well, as far as it has them not."""

    async def send_with_notes(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            message = {
                **message,
                "headers": headers + [one for one in notes if one[0].lower() not in names],
            }
        await send(message)

    return send_with_notes


def _live_answer(scope: Scope, send: Send, options: LiveOptions, then: _Then) -> LiveAnswer:
    """Return what sends the audio as the address says that asks for the finished file."""
    headers = live_headers(options.format, then.job_id)
    if parse_qs(then.query).get("stream_format") == ["sse"]:
        return EventAnswer(scope, send, headers, then.job_id)
    return LiveAnswer(scope, send, headers)


def _parse(header: str) -> _Then:
    seconds, job_id, address = header.split(" ", 2)
    path, _, query = address.partition("?")
    return _Then(float(seconds), uuid.UUID(job_id), path, query)


def _is_speech(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "POST"
        and bool(_SPEECH.fullmatch(path_of(scope)))
    )


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
