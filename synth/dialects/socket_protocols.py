"""Read and write the messages of two protocols for text that is still being written.

`WS /v1/audio/speech/stream` speaks JSON with binary audio, as vllm-omni has it; `WS /v1/tts/live`
speaks MessagePack, as Fish Audio's API has it. Plain requests at these addresses are answered too:
they ask who may speak there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import ormsgpack
from rest_framework.request import Request
from rest_framework.response import Response

from synth.audio.writers import wav_head
from synth.dialects.fish import PCM_RATE, FishView, asked_bit_rate
from synth.dialects.speech_calls import fitting_bit_rate
from synth.dialects.views import DialectView, OpenAIView
from synth.formats import FORMATS
from synth.jobs.orders import check_file_options
from synth.live.pipeline import LiveOptions, Pipeline
from synth.models import ApiKey
from synth.text.pauses import DEFAULT_PAUSES
from ttsweb.http.api import ApiProblem
from ttsweb.http.asgi_ask import Message, Send
from ttsweb.refusals import SubmitRejectedError

Result = TypeVar("Result")


async def in_thread(work: Callable[..., Result], *given: Any) -> Result:
    """Run what computes in a thread, so that other connections go on."""
    return await asyncio.get_running_loop().run_in_executor(None, work, *given)


class MessageError(Exception):
    """A message cannot be read; `is_fatal`: nothing that follows it could be."""

    def __init__(self, code: str, sentence: str, *, is_fatal: bool = False) -> None:
        super().__init__(sentence)
        self.code, self.is_fatal = code, is_fatal


@dataclass(frozen=True)
class Configure:
    """How what follows is to be spoken."""

    request: dict[str, Any] = field(default_factory=dict)
    text: str = ""


@dataclass(frozen=True)
class Text:
    """More of the text."""

    text: str


@dataclass(frozen=True)
class Flush:
    """Speak what waits, complete or not; `is_end`: the utterance ends with it."""

    is_end: bool = False


@dataclass(frozen=True)
class Cancel:
    """Speak nothing more of the utterance: somebody cuts in."""


@dataclass(frozen=True)
class Close:
    """End the connection."""


Action = Configure | Text | Flush | Cancel | Close


@dataclass(frozen=True)
class Sentence:
    """One sentence of an utterance, both counted from 0."""

    utterance: int
    index: int
    text: str


class SocketOutput:
    """Send what is heard of the sentences of one utterance, in a protocol's messages."""

    def __init__(self, protocol: SocketProtocol, send: Send) -> None:
        self._protocol, self._send = protocol, send

    def options(self, of_job: LiveOptions) -> LiveOptions:
        """Return how a sentence's job is to be encoded for this output."""
        raise NotImplementedError

    async def begin_sentence(
        self, sentence: Sentence, sample_rate: int, notes: Mapping[str, str]
    ) -> None:
        """Note that a sentence's audio follows, which was encoded at `sample_rate`."""
        raise NotImplementedError

    async def part(self, audio: bytes) -> None:
        raise NotImplementedError

    async def end_sentence(self, sentence: Sentence, *, has_failed: bool) -> None:
        raise NotImplementedError

    async def end_utterance(self, utterance: int, num_sentences: int) -> None:
        """Send what is left, and that the utterance is complete."""
        raise NotImplementedError


class SocketProtocol:
    """Read what a client sends, and write what it is to get: a connection has one of its own.

    Attributes:
        order_path: where a sentence is ordered, with `order_body`; its job's file is WAV, which
            has the rate of the takes.
        request: what the client has said of how to speak, checked by that route.
    """

    order_path: ClassVar[str]
    content_type: ClassVar[str]

    def __init__(self) -> None:
        self.request: dict[str, Any] = {}

    def read(self, message: Message) -> Action:
        """Return what a message asks for.

        Raises:
            MessageError: it cannot be read.
        """
        raise NotImplementedError

    @property
    def language(self) -> str:
        """The tag of the language by which the text is cut into sentences."""
        found = self.request.get("language") or self.request.get("lang_code")
        return found if isinstance(found, str) else "en"

    def order_body(self, text: str) -> bytes:
        """Return the body of the request for one sentence."""
        raise NotImplementedError

    def open_output(self, send: Send) -> SocketOutput:
        raise NotImplementedError

    def cancelled(self, utterance: int) -> Message:
        """Return what says that nothing more of an utterance comes."""
        raise NotImplementedError

    def error(self, code: str, sentence: str) -> Message:
        raise NotImplementedError


def read_error(body: Mapping[str, Any]) -> tuple[str, str]:
    """Return code and sentence of an error in the shape of either dialect."""
    found = body.get("error")
    shown = found if isinstance(found, Mapping) else body
    code, sentence = shown.get("code"), shown.get("message") or shown.get("detail")
    return str(code or "server_error"), str(sentence or "The server failed; its log says why.")


def _text_of(values: Mapping[str, Any]) -> str:
    text = values.get("text", "")
    if not isinstance(text, str):
        raise MessageError("text_invalid", "Send `text` as a string.")
    return text


def _check_format(form: Any) -> str:
    if not isinstance(form, str) or form not in FORMATS:
        sentence = f"There is no format {str(form)[:40]!r}; choose one of {', '.join(FORMATS)}."
        raise MessageError("format_unknown", sentence)
    return form


def _send_json(values: dict[str, Any]) -> Message:
    return {"type": "websocket.send", "text": json.dumps(values, ensure_ascii=False)}


class JsonProtocol(SocketProtocol):
    """JSON in and out, audio as binary messages: each sentence is a file of its own."""

    order_path = "/v1/audio/speech"
    content_type = "application/json"
    # Ours alone; the others are passed on as fields of the request for speech.
    _OF_SOCKET = ("type", "stream_audio", "split_granularity", "response_format")

    def read(self, message: Message) -> Action:
        content = message.get("text")
        if content is None:
            sentence = "Send JSON as text messages; this connection takes no binary ones."
            raise MessageError("message_not_text", sentence, is_fatal=True)
        try:
            values = json.loads(content)
        except ValueError as error:
            raise MessageError("message_not_json", f"This message is no JSON: {error}.") from error
        kind = values.get("type") if isinstance(values, dict) else None
        if kind == "session.config":
            _check_format(values.get("response_format", "pcm"))
            return Configure(values)
        if kind == "input.text":
            return Text(_text_of(values))
        if kind == "input.done":
            return Flush(is_end=True)
        if kind == "input.cancel":
            return Cancel()
        if kind == "session.close":
            return Close()
        sentence = (
            f"There is no message type {str(kind)[:40]!r}; send session.config, input.text, "
            "input.done, input.cancel or session.close."
        )
        raise MessageError("message_type_unknown", sentence)

    @property
    def form(self) -> str:
        return str(self.request.get("response_format", "pcm"))

    def order_body(self, text: str) -> bytes:
        passed = {
            name: value for name, value in self.request.items() if name not in self._OF_SOCKET
        }
        return json.dumps({**passed, "input": text, "response_format": "wav"}).encode()

    def open_output(self, send: Send) -> SocketOutput:
        return _JsonOutput(self, send, self.form)

    def cancelled(self, utterance: int) -> Message:
        return _send_json({"type": "session.cancelled", "utterance_index": utterance})

    def error(self, code: str, sentence: str) -> Message:
        return _send_json({"type": "error", "code": code, "message": sentence})


class _JsonOutput(SocketOutput):
    def __init__(self, protocol: SocketProtocol, send: Send, form: str) -> None:
        super().__init__(protocol, send)
        self._form = form
        self._num_bytes = 0

    def options(self, of_job: LiveOptions) -> LiveOptions:
        return replace(of_job, format=self._form)

    async def begin_sentence(
        self, sentence: Sentence, sample_rate: int, notes: Mapping[str, str]
    ) -> None:
        self._num_bytes = 0
        shown = {
            "type": "audio.start",
            **_place(sentence),
            "sentence_text": sentence.text,
            "format": self._form,
            "sample_rate": sample_rate,
        }
        await self._send(_send_json(shown | dict(notes)))

    async def part(self, audio: bytes) -> None:
        self._num_bytes += len(audio)
        await self._send({"type": "websocket.send", "bytes": audio})

    async def end_sentence(self, sentence: Sentence, *, has_failed: bool) -> None:
        shown = {"total_bytes": self._num_bytes, "error": has_failed}
        await self._send(_send_json({"type": "audio.done", **_place(sentence), **shown}))

    async def end_utterance(self, utterance: int, num_sentences: int) -> None:
        shown = {"utterance_index": utterance, "total_sentences": num_sentences}
        await self._send(_send_json({"type": "session.done", **shown}))


def _place(sentence: Sentence) -> dict[str, int]:
    return {"utterance_index": sentence.utterance, "sentence_index": sentence.index}


def _send_packed(values: dict[str, Any]) -> Message:
    return {"type": "websocket.send", "bytes": ormsgpack.packb(values)}


class FishProtocol(SocketProtocol):
    """MessagePack in and out, audio inside it: an utterance is one file, from start to stop."""

    order_path = "/v1/tts"
    content_type = "application/msgpack"

    def read(self, message: Message) -> Action:
        content = message.get("bytes")
        if content is None:
            sentence = "Send MessagePack as binary messages; this connection takes no text ones."
            raise MessageError("message_not_binary", sentence, is_fatal=True)
        try:
            values = ormsgpack.unpackb(content)
        except ValueError as error:
            sentence = f"This message is no MessagePack: {error}."
            raise MessageError("message_not_msgpack", sentence) from error
        event = values.get("event") if isinstance(values, dict) else None
        if event == "start":
            request = values.get("request")
            if not isinstance(request, dict):
                sentence = "Send `request`, an object, with the event start."
                raise MessageError("request_invalid", sentence)
            _encoding_of(request)
            return Configure(request, _text_of(request))
        if event == "text":
            return Text(_text_of(values))
        if event in ("flush", "stop"):
            return Flush(is_end=event == "stop")
        if event == "cancel":
            return Cancel()
        sentence = (
            f"There is no event {str(event)[:40]!r}; send start, text, flush, cancel or stop."
        )
        raise MessageError("event_unknown", sentence)

    def order_body(self, text: str) -> bytes:
        encoded_here = ("sample_rate", *(f"{form}_bitrate" for form in FORMATS))
        passed = {name: value for name, value in self.request.items() if name not in encoded_here}
        return ormsgpack.packb({**passed, "text": text, "format": "wav"})

    def open_output(self, send: Send) -> SocketOutput:
        return _FishOutput(self, send, _encoding_of(self.request))

    def cancelled(self, utterance: int) -> Message:
        return _send_packed({"event": "finish", "reason": "cancelled"})

    def error(self, code: str, sentence: str) -> Message:
        shown = {"reason": "error", "code": code, "message": sentence}
        return _send_packed({"event": "finish", **shown})


def _encoding_of(request: Mapping[str, Any]) -> LiveOptions:
    """Return how an utterance is to be encoded; bit rates that the format has not are left out.

    Raises:
        MessageError: the format is unknown, or has no such sample rate.
    """
    form = _check_format(request.get("format", "mp3"))
    rate = request.get("sample_rate") or (PCM_RATE if form == "pcm" else None)
    if rate is not None and not isinstance(rate, int):
        raise MessageError("sample_rate_unfit", "Send `sample_rate` as a whole number of Hz.")
    bits = request.get(f"{form}_bitrate")
    asked = asked_bit_rate(form, request) if bits is None or isinstance(bits, int) else None
    try:
        check_file_options(form, rate, None)
    except SubmitRejectedError as error:
        raise MessageError(error.code, str(error)) from error
    return LiveOptions(form, sample_rate=rate, bit_rate=fitting_bit_rate(form, rate, asked))


class _FishOutput(SocketOutput):
    """Encode all sentences of an utterance as one stream, with a pause between them."""

    def __init__(self, protocol: SocketProtocol, send: Send, encoding: LiveOptions) -> None:
        super().__init__(protocol, send)
        self._encoding = encoding
        self._pipeline: Pipeline | None = None
        self._sample_rate = 0
        self._head_bytes = 0  # of the WAV file that a sentence begins with

    def options(self, of_job: LiveOptions) -> LiveOptions:
        return replace(of_job, format="wav", sample_rate=None, bit_rate=None)

    async def begin_sentence(
        self, sentence: Sentence, sample_rate: int, notes: Mapping[str, str]
    ) -> None:
        self._head_bytes = len(wav_head(sample_rate))
        if self._pipeline is None:
            self._sample_rate = sample_rate
            self._pipeline = await in_thread(Pipeline, self._encoding, sample_rate)
            return
        pause = round(DEFAULT_PAUSES.sentence * self._sample_rate / 1000)
        pieces: list[bytes] = await in_thread(list, self._pipeline.pause(pause))
        for piece in pieces:
            await self._send_audio(piece)

    async def part(self, audio: bytes) -> None:
        samples = audio[self._head_bytes :]
        self._head_bytes -= len(audio) - len(samples)
        if self._pipeline is not None and samples:
            await self._send_audio(await in_thread(self._pipeline.sound, samples))

    async def end_sentence(self, sentence: Sentence, *, has_failed: bool) -> None:
        pass  # the next one follows in the same stream

    async def end_utterance(self, utterance: int, num_sentences: int) -> None:
        if self._pipeline is not None:
            await self._send_audio(await in_thread(self._pipeline.end))
        await self._send(_send_packed({"event": "finish", "reason": "stop"}))

    async def _send_audio(self, content: bytes) -> None:
        if content:
            await self._send(_send_packed({"event": "audio", "audio": content}))


class _SocketMixin(DialectView):
    """An address that speaks the WebSocket protocol alone."""

    read_scopes = (ApiKey.Scope.JOBS,)  # what is heard here is rendered first

    def get(self, request: Request) -> Response:
        """Refuse what is no handshake; SpeechSockets takes this for leave to open one.

        Raises:
            ApiProblem: 426 upgrade_required.
        """
        sentence = f"{request.path} is a WebSocket; docs/clients.md describes its messages."
        headers = {"Upgrade": "websocket"}
        raise ApiProblem(426, "upgrade_required", sentence, headers=headers)


class SocketView(_SocketMixin, OpenAIView):
    """Where OpenAI's dialect is spoken."""


class FishSocketView(_SocketMixin, FishView):
    """Where Fish Audio's is."""
