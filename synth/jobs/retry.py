"""Queue again what an ended job did not finish, where that can lead anywhere."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable

from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Length

from synth.accounts.limits import check_job
from synth.jobs.lanes import lane_of
from synth.models import ApiKey, JobVoice, RenderJob, Segment
from synth.transitions import UNFINISHED, retry_job
from synth.transitions.job_voices import silence_of
from ttsweb.refusals import RefusedError
from voices.models import VoiceVersion


class RetryRefusedError(RefusedError):
    """A job is not tried again; the message says what to do instead."""


def retry(job: RenderJob, *, api_key: ApiKey | None = None) -> None:
    """Queue the failed and cancelled segments of an ended job again, or its file alone.

    Args:
        api_key: the key that asks for it; the job counts towards its limits from now on.

    Raises:
        KeyLimitError: the key would have too much in the queue.
        RetryRefusedError: job_not_ended, nothing_to_retry, and those of `check_voice`.
    """
    check_retry(job)
    if not _queue(job, api_key):
        raise _nothing_to_retry()


def may_retry(job: RenderJob, *, pinned: Iterable[JobVoice] | None = None) -> bool:
    """Say whether a retry of a job would be taken.

    Args:
        pinned: the voices of a job with failed segments, where `voices_to_check` has read them.
    """
    try:
        check_retry(job, pinned=pinned)
    except RetryRefusedError:
        return False
    return True


def check_retry(job: RenderJob, *, pinned: Iterable[JobVoice] | None = None) -> None:
    """Refuse a job that nothing can be done again of.

    Args:
        pinned: as for `may_retry`.

    Raises:
        RetryRefusedError: as `retry` does.
    """
    if job.status in UNFINISHED:
        raise RetryRefusedError(
            "job_not_ended", "The job is still running; cancel it before you retry it."
        )
    if not job.segments_total:  # an item that its batch was told to skip
        raise RetryRefusedError(
            "nothing_to_retry",
            "This item was never queued, as it was invalid; correct it and submit it again.",
        )
    unspoken = (Segment.Status.FAILED, Segment.Status.CANCELLED)
    if pinned is None:
        has_unspoken = job.segments.filter(status__in=unspoken).exists()
        pinned = voices_to_check([job.pk]) if has_unspoken else ()
    for one in pinned:
        check_voice(one)
    if job.status == RenderJob.Status.SUCCEEDED:
        raise _nothing_to_retry()


def voices_to_check(job_ids: Collection[uuid.UUID]) -> QuerySet[JobVoice]:
    """Return the voices of jobs with all that `check_voice` looks at."""
    voices = JobVoice.objects.filter(job__in=job_ids).defer("job__text", "job__lexicon")
    return voices.select_related("version__voice", "job__owner").prefetch_related(
        "version__clips__stored"
    )


def _nothing_to_retry() -> RetryRefusedError:
    return RetryRefusedError(
        "nothing_to_retry", "There is nothing to retry: all of the job was rendered."
    )


@transaction.atomic
def _queue(job: RenderJob, api_key: ApiKey | None) -> bool:
    """Queue the job again within the limits of the key; False when there is nothing to do."""
    if api_key is not None:
        check_job(api_key, Q(pk=job.pk), chars=_chars_again(job))
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
        RetryRefusedError: voice_deleted, consent_withdrawn, voice_not_shared, reference_gone,
            voice_failed.
    """
    check_silence(pinned)
    version = pinned.version
    is_encoded = version.status == VoiceVersion.Status.READY
    if version.voice is None and not any(
        is_encoded or clip.stored.original_key for clip in version.clips.all()
    ):
        raise RetryRefusedError(
            "reference_gone",
            "The reference clip of this job was removed when the job ended; submit the job "
            "again with its clip.",
        )
    if version.status == VoiceVersion.Status.FAILED:
        raise RetryRefusedError(
            "voice_failed", f"The voice could not be encoded: {version.error_message}"
        )


def check_silence(pinned: JobVoice) -> None:
    """Refuse a job whose voice may not speak for it any more.

    Raises:
        RetryRefusedError: voice_deleted, consent_withdrawn, voice_not_shared.
    """
    silence = silence_of(pinned)
    if silence is not None:
        message = f"{silence.message} Submit the text with another voice."
        raise RetryRefusedError(silence.code, message)
