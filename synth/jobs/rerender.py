"""Render one segment of a job once more, or choose among its takes, where that can be done."""

from __future__ import annotations

import re
import uuid

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from synth.accounts.limits import check_job
from synth.card import CardError, read_card
from synth.jobs.lanes import lane_of
from synth.jobs.rejections import SubmitRejectedError, text_rejected
from synth.jobs.retry import RetryRefusedError, check_silence, check_voice
from synth.jobs.rows import segment_seed
from synth.models import ApiKey, RenderJob, Segment
from synth.text.normalise import TextRejectedError, clean_text, is_speakable
from synth.transitions.segment_edits import CHANGEABLE, choose_take, render_again, say_otherwise
from ttsweb.refusals import POLL_SECONDS

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
        if _queue(segment, seed, spoken, api_key):
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
    try:
        cleaned = " ".join(clean_text(text, max_chars=settings.MAX_TEXT_CHARS).split())
    except TextRejectedError as error:
        raise text_rejected(error) from error
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
def _queue(segment: Segment, seed: int | None, spoken: str | None, api_key: ApiKey | None) -> bool:
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
