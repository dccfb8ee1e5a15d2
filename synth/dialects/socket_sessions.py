"""Speak text that is still being written: a sentence is a job, ordered once it is complete.

Sentences that are complete at the same time are one job, here called a sentence as well.

The wrapper stands around Django. A sentence goes through the dialect's own route for speech, with
the key of the handshake; what is heard of its job is sent while it is rendered. Sentences are
ordered a few ahead of what is heard, so that the engine has the next one before it needs it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from dataclasses import dataclass, field

from synth.dialects.socket_protocols import (
    Cancel,
    Close,
    Configure,
    FishProtocol,
    Flush,
    JsonProtocol,
    MessageError,
    Sentence,
    SocketOutput,
    SocketProtocol,
    Text,
    read_error,
)
from synth.dialects.speech_wait import JOB_HEADER
from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER, LiveAnswer, LivePlayer
from synth.text.segments import GrowingText
from ttsweb.http.asgi_ask import (
    AsgiApp,
    InnerAnswer,
    Message,
    Receive,
    Scope,
    Send,
    ask_inside,
    path_of,
)
from ttsweb.http.problems import error_body

PROTOCOLS: dict[str, type[SocketProtocol]] = {
    "/v1/audio/speech/stream": JsonProtocol,
    "/v1/tts/live": FishProtocol,
}
ORDERED_AHEAD = 3  # sentences of an utterance beside the one that is heard
MAX_UNSPOKEN_CHARS = 20_000
MAX_PASSAGE_CHARS = 4000  # of the sentences that come at once and are one job
IDLE_SECONDS = 60.0  # without a message, while nothing is spoken
MAX_BAD_MESSAGES = 10
START_SECONDS = 300.0  # that the first sound of a sentence is waited for
SEND_SECONDS = 60.0  # that a client may take to read a message
# Close codes of RFC 6455.
_NORMAL, _GOING_AWAY, _UNSUPPORTED, _POLICY, _TOO_BIG = 1000, 1001, 1003, 1008, 1009
_NOTES = {"x-tts-ignored": "ignored", "x-tts-voice": "voice", "x-tts-model": "model"}


class SpeechSockets:
    """Wrap an ASGI application; WebSockets are served by this.

    Args:
        django: answers the requests that come of a socket's messages.
        max_sessions: connections of this process at once.
    """

    def __init__(
        self, app: AsgiApp, django: AsgiApp, player: LivePlayer, *, max_sessions: int
    ) -> None:
        self._app, self._django = app, django
        self._player, self._max_sessions = player, max_sessions
        self._num_sessions = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; everything but a WebSocket goes through untouched."""
        if scope["type"] != "websocket":
            await self._app(scope, receive, send)
            return
        path = path_of(scope).rstrip("/")
        refusal = await self._refusal(scope, path)
        if refusal is not None:
            await receive()  # the handshake
            await _refuse(scope, send, refusal)
            return
        self._num_sessions += 1
        try:
            session = _Session(self._django, self._player, PROTOCOLS[path](), scope, receive, send)
            await session.run()
        finally:
            self._num_sessions -= 1

    async def _refusal(self, scope: Scope, path: str) -> InnerAnswer | None:
        """Return why the connection is not opened, as the answer to its handshake."""
        if path not in PROTOCOLS:
            sentence = (
                f"There is no WebSocket at {path}; there is one at {' and '.join(PROTOCOLS)}."
            )
            return _problem(404, "not_found", sentence)
        if self._num_sessions >= self._max_sessions:
            sentence = (
                f"This server has {self._max_sessions} open WebSockets, which is its limit. Try "
                "again later, or use POST /v1/audio/speech."
            )
            return _problem(503, "too_many_sessions", sentence)
        # The view behind this address says who may speak, and answers others as every route does.
        answer = await ask_inside(self._django, scope, "GET", path, is_counted=False)
        return None if answer.status == 426 else answer


def _problem(status: int, code: str, sentence: str) -> InnerAnswer:
    body = json.dumps(error_body(status, code, sentence)).encode()
    return InnerAnswer(status, {"content-type": "application/json"}, body)


async def _refuse(scope: Scope, send: Send, answer: InnerAnswer) -> None:
    """Answer a handshake with an HTTP error, or by closing where the server cannot."""
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": _POLICY})
        return
    headers = [(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()]
    start = {"type": "websocket.http.response.start", "status": answer.status, "headers": headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": answer.body})


@dataclass(eq=False)
class _Utterance:
    """Hold the sentences from the first text up to its end, and what speaks them."""

    number: int
    sentences: asyncio.Queue[str | None] = field(default_factory=asyncio.Queue)
    num_sentences: int = 0
    unspoken_chars: int = 0
    orders: set[asyncio.Task[_Order | _Refused]] = field(default_factory=set)  # on their way
    jobs: set[uuid.UUID] = field(default_factory=set)  # that are not heard to their end
    is_ended: bool = False  # no more text comes
    speaking: asyncio.Task[None] | None = None

    def add(self, text: str) -> None:
        self.num_sentences += 1
        self.unspoken_chars += len(text)
        self.sentences.put_nowait(text)

    def end(self) -> None:
        if not self.is_ended:
            self.is_ended = True
            self.sentences.put_nowait(None)


@dataclass(frozen=True)
class _Order:
    """A sentence whose job was made, and how it is heard."""

    sentence: Sentence
    job_id: uuid.UUID
    options: LiveOptions
    notes: dict[str, str]


class _Refused(Exception):
    """A sentence was not ordered, or its audio breaks off: the client is told why."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


_Ordered = asyncio.Queue["_Order | _Refused | None"]


class _Session:
    """Serve one open connection."""

    def __init__(
        self,
        app: AsgiApp,
        player: LivePlayer,
        protocol: SocketProtocol,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._app, self._player, self._protocol = app, player, protocol
        self._scope, self._receive, self._socket_send = scope, receive, send
        self._id = uuid.uuid4().hex
        self._text = GrowingText()
        self._utterances: list[_Utterance] = []  # the last one may still grow
        self._count = 0
        self._num_bad = 0
        self._sending = asyncio.Lock()
        self._dropping: set[asyncio.Task[None]] = set()  # jobs that nobody is going to hear

    async def run(self) -> None:
        """Serve until the client leaves or asks for the end, or is sent away."""
        await self._receive()  # the handshake
        await self._socket_send({"type": "websocket.accept"})
        code: int | None = _NORMAL
        try:
            code = await self._serve()
        except TimeoutError:  # the client takes nothing
            code = _GOING_AWAY
        finally:
            await self._cancel()
            await asyncio.gather(*self._dropping, return_exceptions=True)
        if code is not None:
            await self._socket_send({"type": "websocket.close", "code": code})

    async def _serve(self) -> int | None:
        """Read messages; return the code to close with, None where the client has closed."""
        while True:
            try:
                async with asyncio.timeout(IDLE_SECONDS):
                    message = await self._receive()
            except TimeoutError:
                if self._is_speaking:
                    continue
                sentence = (
                    f"Nothing came for {IDLE_SECONDS:g} s, so the connection is closed; open "
                    "another one."
                )
                await self._send(self._protocol.error("idle_too_long", sentence))
                return _POLICY
            if message["type"] == "websocket.disconnect":
                return None
            try:
                is_over = await self._act(message)
            except MessageError as error:
                await self._send(self._protocol.error(error.code, str(error)))
                self._num_bad += 1
                if error.is_fatal:
                    return _UNSUPPORTED
                if self._num_bad >= MAX_BAD_MESSAGES:
                    return _POLICY
                continue
            if is_over:
                return _NORMAL
            if self._unspoken_chars > MAX_UNSPOKEN_CHARS:
                sentence = (
                    f"More than {MAX_UNSPOKEN_CHARS} characters wait to be spoken, so the "
                    "connection is closed. Send text more slowly, or as a job."
                )
                await self._send(self._protocol.error("text_too_fast", sentence))
                return _TOO_BIG

    async def _act(self, message: Message) -> bool:
        """Do what a message asks for; return whether it ends the connection.

        Raises:
            MessageError: it asks for nothing that can be done now.
        """
        action = self._protocol.read(message)
        if isinstance(action, Configure):
            if self._text.num_chars:
                sentence = "Text is waiting; end it before you change how it is spoken."
                raise MessageError("text_waiting", sentence)
            self._protocol.request = action.request
            self._text = GrowingText(self._protocol.language)
            self._take(action.text)
        elif isinstance(action, Text):
            self._take(action.text)
        elif isinstance(action, Flush):
            self._flush(is_end=action.is_end)
        elif isinstance(action, Cancel):
            await self._cut_in()
        elif isinstance(action, Close):
            return True
        return False

    @property
    def _is_speaking(self) -> bool:
        return any(one.is_ended or one.unspoken_chars for one in self._utterances)

    @property
    def _unspoken_chars(self) -> int:
        return self._text.num_chars + sum(one.unspoken_chars for one in self._utterances)

    def _take(self, text: str) -> None:
        """Order what is whole with this text."""
        if text:
            self._text.add(text)
        while (passage := self._text.take(most_chars=MAX_PASSAGE_CHARS)) is not None:
            self._growing().add(passage.text)

    def _flush(self, *, is_end: bool) -> None:
        self._text.end()
        self._take("")
        if is_end:
            self._growing().end()

    def _growing(self) -> _Utterance:
        """Return the utterance that text belongs to now, a new one where the last has ended."""
        if not self._utterances or self._utterances[-1].is_ended:
            before = self._utterances[-1].speaking if self._utterances else None
            utterance = _Utterance(self._count)
            self._count += 1
            self._utterances.append(utterance)
            utterance.speaking = asyncio.create_task(self._speak(utterance, before))
        return self._utterances[-1]

    async def _cut_in(self) -> None:
        last = self._count - 1
        self._text = GrowingText(self._protocol.language)
        await self._cancel()
        await self._send(self._protocol.cancelled(max(0, last)))

    async def _cancel(self) -> None:
        """Send nothing more; jobs that nobody is going to hear are cancelled meanwhile."""
        utterances, self._utterances = self._utterances, []
        tasks = [one.speaking for one in utterances if one.speaking is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _speak(self, utterance: _Utterance, before: asyncio.Task[None] | None) -> None:
        """Order an utterance's sentences and send their audio, after the one before."""
        ordered: _Ordered = asyncio.Queue(ORDERED_AHEAD)
        ordering = asyncio.create_task(self._order_all(utterance, ordered))
        try:
            if before is not None:
                await asyncio.gather(before, return_exceptions=True)
            await self._send_all(utterance, ordered)
        except _Refused as error:
            await self._send(self._protocol.error(error.code, str(error)))
        finally:
            ordering.cancel()
            if utterance in self._utterances:
                self._utterances.remove(utterance)
            # Beside what goes on: who cuts in is not kept waiting for it.
            dropping = asyncio.create_task(self._drop_jobs(utterance))
            self._dropping.add(dropping)
            dropping.add_done_callback(self._dropping.discard)

    async def _drop_jobs(self, utterance: _Utterance) -> None:
        """Cancel the jobs that are not heard to their end, those on their way as well."""
        await asyncio.gather(*utterance.orders, return_exceptions=True)
        paths = [f"/api/v1/jobs/{job_id}/cancel" for job_id in utterance.jobs]
        asked = [ask_inside(self._app, self._scope, "POST", path) for path in paths]
        await asyncio.gather(*asked, return_exceptions=True)

    async def _order_all(self, utterance: _Utterance, ordered: _Ordered) -> None:
        """Order the sentences as they come, and pass on what came of each."""
        for index in itertools.count():
            text = await utterance.sentences.get()
            if text is None:
                await ordered.put(None)
                return
            sentence = Sentence(utterance.number, index, text)
            # A task of its own: a request that is on its way makes a job, whoever has left.
            order = asyncio.create_task(self._order(utterance, sentence))
            utterance.orders.add(order)
            await ordered.put(await asyncio.shield(order))
            utterance.orders.discard(order)

    async def _order(self, utterance: _Utterance, sentence: Sentence) -> _Order | _Refused:
        """Return the job of a sentence, as the route for speech has made it."""
        headers = {
            "content-type": self._protocol.content_type,
            # A job of its own, which can be cancelled: an equal sentence of others has another.
            "idempotency-key": f"socket-{self._id}-{sentence.utterance}-{sentence.index}",
        }
        path, body = self._protocol.order_path, self._protocol.order_body(sentence.text)
        answer = await ask_inside(self._app, self._scope, "POST", path, body=body, headers=headers)
        job_id = answer.headers.get(JOB_HEADER.lower())
        live = answer.headers.get(LIVE_HEADER.lower())
        if job_id is None or live is None:
            return _Refused(*read_error(answer.json()))
        utterance.jobs.add(uuid.UUID(job_id))
        notes = {
            key: answer.headers[name] for name, key in _NOTES.items() if name in answer.headers
        }
        return _Order(sentence, uuid.UUID(job_id), LiveOptions.from_header(live), notes)

    async def _send_all(self, utterance: _Utterance, ordered: _Ordered) -> None:
        """Send the audio of the ordered sentences one after the other.

        Raises:
            _Refused: one was not ordered, or has no audio.
        """
        output, count = self._protocol.open_output(self._send), 0
        while (order := await ordered.get()) is not None:
            if isinstance(order, _Refused):
                raise order
            count += 1
            answer = _SentenceAnswer(output, order)
            options = output.options(order.options)
            outcome = await self._player.stream(
                order.job_id, options, _never, answer, start_seconds=START_SECONDS
            )
            if outcome is not None:
                raise await self._why_silent(order)
            if answer.error is not None:
                raise answer.error
            utterance.jobs.discard(order.job_id)
            utterance.unspoken_chars -= len(order.sentence.text)
        await output.end_utterance(utterance.number, count)

    async def _why_silent(self, order: _Order) -> _Refused:
        """Return why a job has no audio, as the route for its audio says it."""
        path = f"/v1/audio/speech/{order.job_id}"
        answer = await ask_inside(self._app, self._scope, "GET", path)
        return _Refused(*read_error(answer.json()))

    async def _send(self, message: Message) -> None:
        """Send one message.

        Raises:
            TimeoutError: the client takes nothing.
        """
        async with self._sending, asyncio.timeout(SEND_SECONDS):
            await self._socket_send(message)


async def _never() -> Message:
    """Wait for ever: the session itself sees when the client leaves."""
    await asyncio.Event().wait()
    raise AssertionError


class _SentenceAnswer(LiveAnswer):
    """Pass what is heard of one sentence on to the output of its connection."""

    def __init__(self, output: SocketOutput, order: _Order) -> None:
        self._output, self._order = output, order
        self.has_begun = False
        self.error: _Refused | None = None

    async def begin(self, sample_rate: int) -> None:
        if not self.has_begun:
            self.has_begun = True
            await self._output.begin_sentence(self._order.sentence, sample_rate, self._order.notes)

    async def part(self, audio: bytes) -> None:
        await self._output.part(audio)

    async def finish(self) -> None:
        await self._output.end_sentence(self._order.sentence, has_failed=False)

    async def fail(self, code: str, sentence: str) -> None:
        self.error = _Refused(code, sentence)
        await self._output.end_sentence(self._order.sentence, has_failed=True)
