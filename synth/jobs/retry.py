"""Queue again what an ended job did not finish, or a segment that a person wants otherwise."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, Sum
from django.db.models.functions import Length

from synth.accounts.limits import check_job
from synth.jobs.planning import Planner
from synth.jobs.queue import lane_of
from synth.jobs.submit import segment_seed
from synth.models import ApiKey, JobVoice, RenderJob, Segment
from synth.text.normalise import clean_text, is_speakable
from synth.transitions.jobs import OPEN, UNFINISHED, UNSPOKEN, retry_job, silence_of
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
    with transaction.atomic():
        if api_key is not None:
            unspoken = job.segments.exclude(status=Segment.Status.DONE)
            chars = unspoken.aggregate(chars=Sum(Length("text")))["chars"] or 0
            check_job(api_key, Q(pk=job.pk), chars=chars)
        if not retry_job(job.pk):
            raise _nothing_to_retry()
        _move_to_key(job, api_key)


def _move_to_key(job: RenderJob, api_key: ApiKey | None) -> None:
    """Count a job that goes on towards the limits of the key that asked for it."""
    if api_key is not None:
        lane = lane_of(job.owner_id, api_key)
        RenderJob.objects.filter(pk=job.pk).update(api_key=api_key, lane=lane)


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
    """Refuse a job that nothing can be done again of, as `retry` does; `pinned` as `may_retry`."""
    if job.status in UNFINISHED:
        sentence = "The job is still running; cancel it before you retry it."
        raise RetryRefusedError("job_not_ended", sentence)
    if not job.segments_total:  # an item that its batch was told to skip
        raise RetryRefusedError(
            "nothing_to_retry",
            "This item was never queued, as it was invalid; correct it and submit it again.",
        )
    if pinned is None:
        has_unspoken = job.segments.filter(status__in=UNSPOKEN).exists()
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
    sentence = "There is nothing to retry: all of the job was rendered."
    return RetryRefusedError("nothing_to_retry", sentence)


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
        sentence = f"The voice could not be encoded: {version.error_message}"
        raise RetryRefusedError("voice_failed", sentence)


def silent_speakers(job: RenderJob) -> set[int]:
    """Return the speakers of a job whose segments cannot be rendered again."""
    found = set()
    for pinned in voices_to_check([job.pk]):
        try:
            check_voice(pinned)
        except RetryRefusedError:
            found.add(pinned.speaker)
    return found


def check_silence(pinned: JobVoice) -> None:
    """Refuse a job whose voice may not speak for it any more.

    Raises:
        RetryRefusedError: voice_deleted, consent_withdrawn, voice_not_shared.
    """
    silence = silence_of(pinned)
    if silence is not None:
        message = f"{silence.message} Submit the text with another voice."
        raise RetryRefusedError(silence.code, message)


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
        sentence = "The text has no letter or digit to speak; add some."
        raise SubmitRejectedError("text_empty", sentence, attr="text")
    if "<|" in cleaned:
        sentence = "A segment has one speaker; remove tags such as <|speaker:1|>."
        raise SubmitRejectedError("text_has_tags", sentence, attr="text")
    most = max(Planner(None).card.segment_chars, len(segment.spoken_text))
    if len(cleaned) > most:
        sentence = (
            f"The text has {len(cleaned)} characters; with this model a segment has at most "
            f"{most}. Shorten the text."
        )
        raise SubmitRejectedError(
            "text_too_long", sentence, attr="text", case="segment_text_too_long"
        )
    return cleaned


def _is_done_already(segment: Segment, seed: int | None, spoken: str | None) -> bool:
    """Say whether a segment is, or is about to be, what is asked for."""
    has_text = spoken is None or spoken == segment.spoken_text
    if segment.status in OPEN:
        return has_text and seed in (None, segment.seed)
    is_done = segment.status == Segment.Status.DONE
    return is_done and has_text and seed == segment.seed


def _check_state(segment: Segment) -> None:
    job = segment.job
    if job.cancel_requested or job.status == RenderJob.Status.CANCELLED:
        sentence = "The job was cancelled; retry the job before you change its segments."
        raise RetryRefusedError("job_cancelled", sentence)
    if segment.status in OPEN:
        raise _unfinished()
    if segment.status not in CHANGEABLE:
        sentence = "The segment was cancelled; retry the job first."
        raise RetryRefusedError("segment_cancelled", sentence)


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
    if api_key is not None:
        check_job(api_key, Q(pk=segment.job_id), chars=len(spoken or segment.text))
    if spoken is None or spoken == segment.spoken_text:
        is_queued = render_again(segment.pk, seed=seed)
    else:
        own = segment_seed(segment.job.seed, spoken, segment.speaker) if seed is None else seed
        is_queued = say_otherwise(
            segment.pk, spoken_text=spoken, seed=own, is_hand_picked=seed is not None
        )
    if is_queued:
        _move_to_key(segment.job, api_key)
    return is_queued
