"""Queue again what an ended job did not finish, or a segment that a person wants otherwise."""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Length

from synth.accounts.limits import check_job
from synth.card import CardError, read_card
from synth.jobs.submit import segment_seed
from synth.models import ApiKey, JobVoice, RenderJob, Segment
from synth.models.keys import lane_of
from synth.text.normalise import clean_text, is_speakable
from synth.transitions.jobs import UNFINISHED, retry_job, silence_of
from synth.transitions.segment_edits import CHANGEABLE, choose_take, render_again, say_otherwise
from ttsweb.refusals import POLL_SECONDS, RefusedError, SubmitRejectedError
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


_TAG = re.compile(r"<\|")
_OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)


def rerender(
    segment: Segment,
    *,
    seed: int | None = None,
    text: str | None = None,
    api_key: ApiKey | None = None,
) -> bool:
    """Queue a segment to be rendered with another seed, or with other words.

    Asked for again while it is queued, or for what it is already, it does nothing.

    Args:
        seed: in [0, 2**63); None is the next of the segment's series.
        text: what is to be spoken from now on; None keeps it.
        api_key: the key that asks for it; the job counts towards its limits from now on.

    Returns:
        Whether anything was queued by this call.

    Raises:
        SubmitRejectedError: text_empty, text_not_text, text_too_long, text_has_tags,
            checkpoint_card_invalid.
        RetryRefusedError: job_cancelled, segment_cancelled, segment_unfinished, and those
            of `check_voice`.
        KeyLimitError: the key would have too much in the queue.
    """
    spoken = None if text is None else check_spoken_text(text, segment)
    for _ in range(2):  # a second look where somebody was faster
        if _is_done_already(segment, seed, spoken):
            return False
        _check_state(segment)
        for pinned in segment.job.voices.select_related("version__voice"):
            if pinned.speaker == segment.speaker:
                check_voice(pinned)
        if _queue_segment(segment, seed, spoken, api_key):
            return True
        segment = Segment.objects.select_related("job").get(pk=segment.pk)
    raise _unfinished()


def choose(segment: Segment, take_id: uuid.UUID) -> None:
    """Keep another one of a segment's takes; the job's file is made again.

    Raises:
        RetryRefusedError: job_cancelled, segment_unfinished, take_not_found, and those of
            `check_silence`.
    """
    _check_state(segment)
    for pinned in segment.job.voices.select_related("version__voice", "job__owner"):
        if pinned.speaker == segment.speaker:
            check_silence(pinned)
    if not any(one["take"] == str(take_id) for one in segment.candidates) and (
        segment.take_id != take_id
    ):
        raise RetryRefusedError("take_not_found", "The segment has no take with this id.")
    if not choose_take(segment.pk, take_id):
        raise RetryRefusedError(
            "segment_unfinished",
            "The segment or its takes were changed meanwhile; load the segment again.",
            retry_after=POLL_SECONDS,
        )


def check_spoken_text(text: str, segment: Segment) -> str:
    """Return a text that a segment may speak, on one line.

    Raises:
        SubmitRejectedError: text_empty, text_not_text, text_too_long, text_has_tags,
            checkpoint_card_invalid.
    """
    cleaned = " ".join(clean_text(text, max_chars=settings.MAX_TEXT_CHARS).split())
    if not is_speakable(cleaned):
        raise SubmitRejectedError(
            "text_empty", "The text has no letter or digit to speak; add some.", attr="text"
        )
    if _TAG.search(cleaned):
        raise SubmitRejectedError(
            "text_has_tags",
            "A segment has one speaker; remove tags such as <|speaker:1|>.",
            attr="text",
        )
    most = max(_segment_chars(), len(segment.spoken_text))
    if len(cleaned) > most:
        raise SubmitRejectedError(
            "text_too_long",
            f"The text has {len(cleaned)} characters; with this model a segment has at most "
            f"{most}. Shorten the text.",
            attr="text",
            case="segment_text_too_long",
        )
    return cleaned


def _segment_chars() -> int:
    try:
        return read_card(settings.CHECKPOINT).segment_chars
    except CardError as error:
        raise SubmitRejectedError("checkpoint_card_invalid", str(error)) from error


def _is_done_already(segment: Segment, seed: int | None, spoken: str | None) -> bool:
    """Say whether a segment is, or is about to be, what is asked for."""
    has_text = spoken is None or spoken == segment.spoken_text
    if segment.status in _OPEN:
        return has_text and seed in (None, segment.seed)
    is_done = segment.status == Segment.Status.DONE
    return is_done and has_text and seed == segment.seed


def _check_state(segment: Segment) -> None:
    """Refuse a segment that cannot be changed now."""
    job = segment.job
    if job.cancel_requested or job.status == RenderJob.Status.CANCELLED:
        raise RetryRefusedError(
            "job_cancelled", "The job was cancelled; retry the job before you change its segments."
        )
    if segment.status in _OPEN:
        raise _unfinished()
    if segment.status not in CHANGEABLE:
        raise RetryRefusedError(
            "segment_cancelled", "The segment was cancelled; retry the job first."
        )


def _unfinished() -> RetryRefusedError:
    return RetryRefusedError(
        "segment_unfinished",
        "The segment is being rendered; try again when it is done.",
        retry_after=POLL_SECONDS,
    )


@transaction.atomic
def _queue_segment(
    segment: Segment, seed: int | None, spoken: str | None, api_key: ApiKey | None
) -> bool:
    """Queue the segment within the limits of the key; False when it is not to be changed now."""
    job = segment.job
    if api_key is not None:
        check_job(api_key, Q(pk=job.pk), chars=len(spoken or segment.text))
    if spoken is None or spoken == segment.spoken_text:
        is_queued = render_again(segment.pk, seed=seed)
    else:
        own = segment_seed(job.seed, spoken, segment.speaker) if seed is None else seed
        is_queued = say_otherwise(
            segment.pk, spoken_text=spoken, seed=own, is_hand_picked=seed is not None
        )
    if is_queued and api_key is not None:
        RenderJob.objects.filter(pk=job.pk).update(
            api_key=api_key, lane=lane_of(job.owner_id, api_key)
        )
    return is_queued
