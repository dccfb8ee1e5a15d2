"""Answer with the audio of a job that a client waits for, or say why there is none."""

from __future__ import annotations

import base64
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from django.core.files.storage import default_storage
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.urls import reverse

from synth.api.jobs.serializers import file_name_of
from synth.audio.writers import file_rate, open_writer
from synth.dialects.speech_events import EVENTS_TYPE, FileEvents, read_usage
from synth.dialects.speech_wait import THEN_HEADER
from synth.dialects.views import NO_RETRY
from synth.formats import FORMATS
from synth.live.pipeline import LiveOptions
from synth.live.streams import LIVE_HEADER
from synth.models import Export, RenderJob
from synth.transitions.jobs import UNFINISHED
from ttsweb.http.api import ApiProblem
from ttsweb.http.ranged import ObjectMissingError, ObjectResponse, StoredObject, object_response
from ttsweb.refusals import POLL_SECONDS

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
    if job.status in UNFINISHED:
        if may_wait:
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


SILENCE_SECONDS = 0.3
_RATE = 24_000  # Hz, where the format has no rate of its own


@cache
def silence(form: str, seconds: float = SILENCE_SECONDS) -> bytes:
    """Return a file of a format of FORMATS in which nothing is heard."""
    rate = file_rate(form, _RATE, asked=None, bit_rate=None)
    with tempfile.TemporaryDirectory(prefix="tts-silence-") as folder:
        path = Path(folder) / f"silence.{form}"
        with open_writer(path, form, rate) as writer:
            writer.write(np.zeros(round(seconds * rate), np.float32))
        return path.read_bytes()


def silent_answer(form: str, stream_format: str) -> HttpResponseBase:
    """Answer with a silence, as a file or as the events of `sse`."""
    content = silence(form)
    if stream_format == "sse":
        usage = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
        events: tuple[dict[str, Any], ...] = (
            {"type": "speech.audio.delta", "audio": base64.b64encode(content).decode()},
            {"type": "speech.audio.done", "usage": usage},
        )
        lines = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        answer = HttpResponse(lines, content_type="text/event-stream")
    else:
        answer = HttpResponse(content, content_type=FORMATS[form].content_type)
        name = f"speech.{FORMATS[form].extension}"
        answer.headers["Content-Disposition"] = f'inline; filename="{name}"'
    answer.headers["Cache-Control"] = "private, no-store"
    return answer
