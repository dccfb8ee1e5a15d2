"""Answer with a job's audio: its bytes, or server-sent events; or say why there is none."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.core.files.base import File
from django.core.files.storage import default_storage
from django.db.models import Sum
from django.http import HttpRequest, HttpResponseBase
from django.urls import reverse

from synth.api.jobs.serializers import file_name_of
from synth.formats import FORMATS
from synth.live.streams import LIVE_HEADER
from synth.models import Export, RenderJob
from synth.openai.errors import NO_RETRY
from synth.openai.speech_wait import THEN_HEADER
from synth.transitions import UNFINISHED
from ttsweb.http.api import ApiProblem
from ttsweb.http.ranged import ObjectMissingError, ObjectResponse, StoredObject, object_response
from ttsweb.refusals import POLL_SECONDS

# Seconds that a call waits for its audio: less than the 600 s after which OpenAI's client gives up.
OPENAI_WAIT_SECONDS = 300.0

JOB_HEADER = "TTS-Job-Id"
_EVENT_BYTES = 48 * 1024


def speech_answer(
    request: HttpRequest,
    job: RenderJob,
    *,
    stream_format: str,
    may_wait: bool = False,
    is_live: bool = False,
) -> HttpResponseBase:
    """Return the audio of a job that has succeeded.

    Args:
        may_wait: let SpeechWait keep the answer for an unfinished job back until the job has ended.
        is_live: let it send the audio while it is rendered.

    Raises:
        ApiProblem: there is no audio; the sentence names the job and where to look for it.
    """
    if job.status in UNFINISHED:
        raise _waiting(job, stream_format, is_live) if may_wait else _not_finished(job)
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
    )
    answer = object_response(request, stored)
    if answer.status_code == 416:
        message = f"The range lies outside the file, which has {export.size_bytes} bytes."
        raise _error(416, "range_not_satisfiable", message, job)
    return answer


def _events(job: RenderJob, export: Export) -> HttpResponseBase:
    """Return the audio as events, each of which can be decoded by itself."""
    file = default_storage.open(export.key, "rb")
    answer = ObjectResponse(_Events(file, _usage(job)), content_type="text/event-stream")
    answer.headers["Cache-Control"] = "private, no-store"
    answer.headers["X-Accel-Buffering"] = "no"  # nginx would hold events back
    return answer


class _Events:
    """Iterate over the events of a file.

    A class and not a generator: closing one that never started would leave the file open.
    """

    def __init__(self, file: File[bytes], usage: dict[str, int]) -> None:
        self._file, self._usage = file, usage
        self.close = file.close

    def __iter__(self) -> Iterator[bytes]:
        while part := self._file.read(_EVENT_BYTES):
            audio = base64.b64encode(part).decode()
            yield _event({"type": "speech.audio.delta", "audio": audio})
        yield _event({"type": "speech.audio.done", "usage": self._usage})


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _usage(job: RenderJob) -> dict[str, int]:
    """Return what a job took: characters in, frames of codes out.

    The web process has no tokenizer, so characters stand for the tokens of the text.
    """
    frames = job.segments.aggregate(frames=Sum("take__frames"))["frames"] or 0
    characters = len(job.text)
    return {
        "input_tokens": characters,
        "output_tokens": frames,
        "total_tokens": characters + frames,
    }


def _waiting(job: RenderJob, stream_format: str, is_live: bool) -> ApiProblem:
    """Return what is answered at once where nobody can wait: the same request joins the job."""
    if OPENAI_WAIT_SECONDS <= 0:
        return _not_finished(job)
    address = reverse("v1-speech", args=[job.pk])
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
            **({LIVE_HEADER: job.format} if is_live else {}),
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
