"""Wait, in a command, for a voice to be encoded and for a job to end, and show how far it is."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import nullcontext
from pathlib import Path

from django.conf import settings
from django.core.files.storage import default_storage
from django.db.models import Sum

from synth.models import Export, RenderJob, Segment
from ttsweb.commands.errors import StepError
from ttsweb.private_files import users_umask
from ttsweb.terminal.progress import Progress
from voices.models import VoiceVersion
from workers.local.local_worker import LocalWorker

POLL_SECONDS = 0.1
CHUNK_BYTES = 1 << 20


def wait_encoded(version_id: uuid.UUID, worker: LocalWorker, progress: Progress) -> VoiceVersion:
    """Return a voice version once it is ready.

    Raises:
        StepError: it failed, with its own code and sentence, or voice_deleted.
    """
    started = time.monotonic()
    while True:
        version = VoiceVersion.objects.filter(pk=version_id).first()
        if version is None:
            raise StepError("voice_deleted", "The voice was deleted while it was encoded.")
        if version.status == VoiceVersion.Status.READY:
            return version
        if version.status == VoiceVersion.Status.FAILED:
            raise StepError(version.error_code, version.error_message)
        progress.update(f"{version.status}, {time.monotonic() - started:.0f} s")
        time.sleep(POLL_SECONDS)
        worker.keep()


def wait_ended(job_id: uuid.UUID, worker: LocalWorker, progress: Progress) -> RenderJob:
    """Return a job once it has succeeded.

    Raises:
        StepError: it ended in another way; with the job's code, or that of a failed segment.
    """
    started = time.monotonic()
    while True:
        job = RenderJob.objects.filter(pk=job_id).first()
        if job is None:
            raise StepError("job_deleted", "The job was deleted while it was rendered.")
        if job.status in RenderJob.FINAL:
            break
        speed = _speed(job, time.monotonic() - started)
        progress.update(speed, done=job.segments_done, total=job.segments_total)
        time.sleep(POLL_SECONDS)
        worker.keep()
    if job.status != RenderJob.Status.SUCCEEDED:
        raise _job_error(job)
    return job


def summary(job: RenderJob) -> str:
    """Say what was rendered and how fast, against its playing time."""
    text = f"{job.segments_done}/{job.segments_total} segments"
    if job.started_at is None or job.finished_at is None:
        return text
    elapsed = max((job.finished_at - job.started_at).total_seconds(), 0.001)
    return f"{text}, {job.audio_seconds / elapsed:.1f}x real time"


def save_audio(job: RenderJob, target: Path) -> None:
    """Write a finished job's file to `target`, all of it or nothing.

    Raises:
        StepError: audio_missing, or file_not_written with the reason.
    """
    export = job.exports.filter(format=job.format, status=Export.Status.DONE).first()
    if export is None:
        raise StepError("audio_missing", f"The job {job.pk} has no {job.format} file.")
    part = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with nullcontext() if target.is_relative_to(settings.DATA_DIR) else users_umask():
            target.parent.mkdir(parents=True, exist_ok=True)
            file = part.open("wb")
        with default_storage.open(export.key) as source, file:
            while chunk := source.read(CHUNK_BYTES):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    except OSError as error:
        raise StepError("file_not_written", f"{target} could not be written: {error}.") from error
    finally:
        part.unlink(missing_ok=True)


def _speed(job: RenderJob, elapsed: float) -> str:
    """Say how many times faster than its playing time the finished part was made."""
    takes = job.segments.filter(status=Segment.Status.DONE)
    seconds = takes.aggregate(seconds=Sum("take__audio_seconds"))["seconds"] or 0.0
    return f"{seconds:.1f} s of audio, {seconds / max(elapsed, 0.001):.1f}x real time"


def _job_error(job: RenderJob) -> StepError:
    segment = job.segments.filter(status=Segment.Status.FAILED).first()
    if job.error_code:
        return StepError(job.error_code, job.error_message)
    if segment is not None:
        return StepError(segment.error_code, segment.error_message)
    return StepError(f"job_{job.status}", f"The job {job.pk} ended as {job.status}.")
