"""Queue again what an ended job did not finish, where that can lead anywhere."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Sum
from django.db.models.functions import Length

from synth.key_limits import check_job
from synth.lanes import lane_of
from synth.models import ApiKey, JobVoice, RenderJob, Segment
from synth.transitions import UNFINISHED, retry_job
from voices.access import visible_voices
from voices.models import Voice, VoiceVersion


class RetryRefusedError(Exception):
    """A job is not tried again; `code` is stable, the message says what to do instead."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def retry(job: RenderJob, *, api_key: ApiKey | None = None) -> None:
    """Queue the failed and cancelled segments of an ended job again, or its file alone.

    Args:
        api_key: the key that asks for it; the job counts towards its limits from now on.

    Raises:
        KeyLimitError: the key would have too much in the queue.
        RetryRefusedError: job_not_ended, nothing_to_retry, voice_deleted, voice_not_shared,
            voice_failed, reference_gone.
    """
    if job.status in UNFINISHED:
        raise RetryRefusedError("job_not_ended", "The job is still at work; cancel it first.")
    if not job.segments_total:  # an item that its batch was told to skip
        raise RetryRefusedError(
            "nothing_to_retry", "This item was never queued; mend it and submit it again."
        )
    unspoken = (Segment.Status.FAILED, Segment.Status.CANCELLED)
    if job.segments.filter(status__in=unspoken).exists():
        for pinned in job.voices.select_related("version__voice", "job__owner"):
            check_voice(pinned)
    if not _queue(job, api_key):
        raise RetryRefusedError(
            "nothing_to_retry", "All of the job was rendered; there is nothing to do again."
        )


@transaction.atomic
def _queue(job: RenderJob, api_key: ApiKey | None) -> bool:
    """Queue the job again within the limits of the key; False when there is nothing to do."""
    if api_key is not None:
        check_job(api_key, job, chars=_chars_again(job))
    is_queued = retry_job(job.pk)
    if is_queued and api_key is not None:
        RenderJob.objects.filter(pk=job.pk).update(
            api_key=api_key, lane=lane_of(job.owner_id, api_key)
        )
    return is_queued


def _chars_again(job: RenderJob) -> int:
    """Return how many characters are to be rendered once more."""
    unspoken = job.segments.exclude(status=Segment.Status.DONE)
    return unspoken.aggregate(chars=Sum(Length("text")))["chars"] or 0


def check_voice(pinned: JobVoice) -> None:
    """Refuse a job whose voice cannot speak any more.

    Raises:
        RetryRefusedError: voice_deleted, reference_gone, voice_failed.
    """
    version = pinned.version
    if version.voice is not None and version.voice.deleted_at is not None:
        raise RetryRefusedError(
            "voice_deleted",
            f"The voice {version.voice.name!r} was deleted; submit the text with another one.",
        )
    owner = pinned.job.owner
    if version.voice is not None and owner is not None and not _may_use(owner, version.voice):
        raise RetryRefusedError(
            "voice_not_shared",
            f"The voice {version.voice.name!r} is not shared with you any more; submit the text "
            "with another one.",
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


def _may_use(user: User, voice: Voice) -> bool:
    return visible_voices(user).filter(pk=voice.pk).exists()
