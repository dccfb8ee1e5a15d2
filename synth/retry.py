"""Queue again what an ended job did not finish, where that can lead anywhere."""

from __future__ import annotations

from synth.models import JobVoice, RenderJob, Segment
from synth.transitions import UNFINISHED, retry_job
from voices.models import VoiceVersion


class RetryRefusedError(Exception):
    """A job is not tried again; `code` is stable, the message says what to do instead."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def retry(job: RenderJob) -> None:
    """Queue the failed and cancelled segments of an ended job again, or its file alone.

    Raises:
        RetryRefusedError: job_not_ended, nothing_to_retry, voice_deleted, voice_failed,
            reference_gone.
    """
    if job.status in UNFINISHED:
        raise RetryRefusedError("job_not_ended", "The job is still at work; cancel it first.")
    unspoken = (Segment.Status.FAILED, Segment.Status.CANCELLED)
    if job.segments.filter(status__in=unspoken).exists():
        for pinned in job.voices.select_related("version__voice"):
            _check_voice(pinned)
    if not retry_job(job.pk):
        raise RetryRefusedError(
            "nothing_to_retry", "All of the job was rendered; there is nothing to do again."
        )


def _check_voice(pinned: JobVoice) -> None:
    """Refuse a job whose voice cannot speak any more."""
    version = pinned.version
    if version.voice is not None and version.voice.deleted_at is not None:
        raise RetryRefusedError(
            "voice_deleted",
            f"The voice {version.voice.name!r} was deleted; submit the text with another one.",
        )
    if version.voice is None and not version.clips.exists():
        raise RetryRefusedError(
            "reference_gone",
            "The reference of this job was removed when it ended; submit the job again with it.",
        )
    if version.status == VoiceVersion.Status.FAILED:
        raise RetryRefusedError(
            "voice_failed", f"The voice could not be encoded: {version.error_message}"
        )
