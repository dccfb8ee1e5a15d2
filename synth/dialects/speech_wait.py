"""Let a request for speech wait for its audio without a thread: `POST /v1/audio/speech`.

Django makes the job and answers at once; a header says how long may be waited for which job, and
where to ask then. The audio is sent while it is rendered, as a file or as events, which a finished
file can be sent as, too. Where there is no place for another listener, the answer is kept back
until the job has ended or the time is over; then, and where no audio came, what Django says at that
address is the answer. Without this wrapper the first answer, an error that names the job, goes out.
What Django says is the job's audio, or why there is none.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode

from asgiref.sync import sync_to_async
from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db import connection
from django.db.models import Sum
from django.db.models.functions import Length
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from synth.api.jobs.serializers import file_name_of
from synth.api.jobs.wait import JobWait
from synth.formats import FORMATS
from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER, LiveAnswer, LivePlayer, live_headers
from synth.models import Export, RenderJob, Segment
from synth.transitions.jobs import UNFINISHED
from ttsweb.http.api import ApiProblem
from ttsweb.http.asgi_ask import COUNTED, Message, Receive, Scope, Send, path_of
from ttsweb.http.problems import error_body
from ttsweb.http.ranged import ObjectMissingError, ObjectResponse, StoredObject, object_response
from ttsweb.leases import DATABASE_AWAY
from ttsweb.refusals import POLL_SECONDS

NO_RETRY = {"x-should-retry": "false"}  # the official client obeys it; it would try twice more
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


EVENTS_TYPE = "text/event-stream"
_EVENT_BYTES = 48 * 1024


class FileEvents:
    """Iterate over the events of a file, each of which can be decoded by itself.

    A class and not a generator: closing one that never started would leave the file open.
    """

    def __init__(self, file: File[bytes], usage: dict[str, int]) -> None:
        self._file, self._usage = file, usage
        self.close = file.close

    def __iter__(self) -> Iterator[bytes]:
        while part := self._file.read(_EVENT_BYTES):
            yield _delta(part)
        yield _done(self._usage)


class EventAnswer(LiveAnswer):
    """Send audio as events while it is rendered; the last one tells the usage, or the error."""

    def __init__(
        self, scope: Scope, send: Send, headers: dict[str, str], job_id: uuid.UUID
    ) -> None:
        super().__init__(scope, send, {**headers, "Content-Type": EVENTS_TYPE})
        self._has_trailers = False
        self._job_id = job_id

    async def part(self, audio: bytes) -> None:
        await self._send_body(_delta(audio))

    async def finish(self) -> None:
        try:
            usage = await sync_to_async(_read_usage_apart, thread_sensitive=False)(self._job_id)
        except DATABASE_AWAY:
            sentence = "All audio was sent, but the database does not tell the usage now."
            await self.fail("database_unavailable", sentence)
            return
        await self._send_body(_done(usage))
        await self._complete()

    async def fail(self, code: str, sentence: str) -> None:
        body = {"type": "error", **error_body(500, code, sentence)}
        await self._send_body(b"event: error\n" + _event(body))
        await self._complete()


def read_usage(job_id: uuid.UUID) -> dict[str, int]:
    """Return what a job took: characters in, frames of codes out.

    The web process has no tokenizer, so characters stand for the tokens of the text.
    """
    jobs = RenderJob.objects.filter(pk=job_id)
    characters = jobs.values_list(Length("text"), flat=True).first() or 0
    segments = Segment.objects.filter(job=job_id)
    frames = segments.aggregate(frames=Sum("take__frames"))["frames"] or 0
    return {
        "input_tokens": characters,
        "output_tokens": frames,
        "total_tokens": characters + frames,
    }


def _read_usage_apart(job_id: uuid.UUID) -> dict[str, int]:
    """Read the usage in a thread that keeps no connection."""
    try:
        return read_usage(job_id)
    finally:
        connection.close()


def _delta(audio: bytes) -> bytes:
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()})


def _done(usage: dict[str, int]) -> bytes:
    return _event({"type": "speech.audio.done", "usage": usage})


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


# Seconds that a call waits for its audio: less than the 600 s after which OpenAI's client gives up.
OPENAI_WAIT_SECONDS = 300.0

JOB_HEADER = "TTS-Job-Id"


def speech_answer(
    request: HttpRequest,
    job: RenderJob,
    *,
    stream_format: str,
    may_wait: bool = False,
    result_route: str = "v1-speech",
) -> HttpResponseBase:
    """Return the audio of a job that has succeeded.

    Args:
        may_wait: let SpeechWait send the audio of an unfinished job while it is rendered, or keep
            the answer back until the job has ended.
        result_route: the name of the address that answers, in the same dialect, once the job has
            ended.

    Raises:
        ApiProblem: there is no audio; the sentence names the job and where to look for it.
    """
    if may_wait:  # it is the call itself: what the audit log and traces say of it
        request.noted_job = job.pk  # type: ignore[attr-defined]
    if job.status in UNFINISHED:
        if may_wait:
            request.noted_status = 202  # type: ignore[attr-defined]  # the job is accepted
            raise _waiting(job, stream_format, result_route)
        raise _not_finished(job)
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    if job.status != RenderJob.Status.SUCCEEDED or export is None:
        raise _without_audio(job)
    try:
        answer = _events(job, export) if stream_format == "sse" else _file(request, job, export)
    except (ObjectMissingError, FileNotFoundError) as error:
        raise _error(
            410,
            "audio_gone",
            f"The audio file of the job {job.pk} is no longer stored; send the request again.",
            job,
        ) from error
    answer.headers[JOB_HEADER] = str(job.pk)
    return answer


def _file(request: HttpRequest, job: RenderJob, export: Export) -> HttpResponseBase:
    stored = StoredObject(
        key=export.key,
        content_type=FORMATS[export.format].content_type,
        filename=file_name_of(job),
        etag=export.sha256,
        is_finished=True,
    )
    answer = object_response(request, stored)
    if answer.status_code == 416:
        message = f"The range lies outside the file, which has {export.size_bytes} bytes."
        raise _error(416, "range_not_satisfiable", message, job)
    return answer


def _events(job: RenderJob, export: Export) -> HttpResponseBase:
    """Return the audio as events, each of which can be decoded by itself."""
    file = default_storage.open(export.key, "rb")
    answer = ObjectResponse(FileEvents(file, read_usage(job.pk)), content_type=EVENTS_TYPE)
    answer.headers["Cache-Control"] = "private, no-store"
    answer.headers["X-Accel-Buffering"] = "no"  # nginx would hold events back
    return answer


def _waiting(job: RenderJob, stream_format: str, result_route: str) -> ApiProblem:
    """Return what is answered at once where nobody can wait: the same request joins the job."""
    if OPENAI_WAIT_SECONDS <= 0:
        return _not_finished(job)
    address = reverse(result_route, args=[job.pk])
    query = urlencode({"stream_format": stream_format})
    return ApiProblem(
        503,
        "too_many_waiting",
        f"The job {job.pk} is queued, but too many requests are waiting for audio. Send the "
        "same request again, which then waits for this job, or poll GET "
        f"{reverse('job', args=[job.pk])}.",
        retry_after=POLL_SECONDS,
        headers={
            JOB_HEADER: str(job.pk),
            THEN_HEADER: f"{OPENAI_WAIT_SECONDS} {job.pk} {address}?{query}",
            LIVE_HEADER: LiveOptions.of(job).to_header(),
        },
    )


def _not_finished(job: RenderJob) -> ApiProblem:
    message = (
        f"The job {job.pk} is not finished yet and continues. Poll GET "
        f"{reverse('job', args=[job.pk])}, then fetch "
        f"{reverse('job-audio', args=[job.pk])}; or send the same request again, which "
        "waits for this job again."
    )
    return _error(504, "job_not_finished", message, job)


def _without_audio(job: RenderJob) -> ApiProblem:
    """Return why an ended job has no audio, or not all of it."""
    if job.status == RenderJob.Status.CANCELLED:
        return _error(409, "job_cancelled", f"The job {job.pk} was cancelled.", job)
    message = f"The job {job.pk} is {job.status}: {job.error_message or 'it has no audio.'}"
    if job.status == RenderJob.Status.PARTIAL:
        message += f" Fetch the audio that exists from {reverse('job-audio', args=[job.pk])}."
    return _error(500, job.error_code or "job_failed", message, job)


def _error(status: int, code: str, message: str, job: RenderJob) -> ApiProblem:
    """Return an error that a retry does not mend."""
    return ApiProblem(status, code, message, headers={**NO_RETRY, JOB_HEADER: str(job.pk)})
