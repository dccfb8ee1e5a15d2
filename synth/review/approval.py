"""Approve takes that a person listened to, and group what is to be reviewed by its job.

One job does not hide all others: groups count what is left of each.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db.models import Count, Q, Window
from django.db.models.functions import Left, RowNumber
from django.urls import reverse
from django.utils.text import Truncator

from synth.accounts.access import visible_jobs
from synth.jobs.retry import RetryRefusedError, may_retry, voices_to_check
from synth.models import JobVoice, RenderJob, Segment
from synth.review.listing import books_of, to_review
from synth.transitions.segment_edits import approve_takes
from ttsweb.refusals import POLL_SECONDS


def approve(
    user: AbstractBaseUser | AnonymousUser, seen: Mapping[int, uuid.UUID]
) -> dict[int, RetryRefusedError]:
    """Approve takes, by segment, as they were listened to; return those that are refused, and why.

    The reasons are segment_not_found, job_cancelled, segment_unfinished, segment_without_audio
    and take_changed. All others are approved, once more or for the first time.
    """
    jobs = visible_jobs(user).order_by().values("pk")
    mine = Segment.objects.filter(pk__in=seen, job__in=jobs)
    approved = approve_takes({pk: seen[pk] for pk in mine.values_list("pk", flat=True)})
    left = set(seen) - approved
    rows = mine.filter(pk__in=left).select_related("job").defer("job__text").in_bulk()
    return {pk: _refusal(rows.get(pk)) for pk in sorted(left)}


def _refusal(segment: Segment | None) -> RetryRefusedError:
    """Say why a segment was not approved."""
    if segment is None:
        return RetryRefusedError("segment_not_found", "No segment that you may see has this id.")
    if segment.job.cancel_requested or segment.job.status == RenderJob.Status.CANCELLED:
        return RetryRefusedError(
            "job_cancelled", "The job was cancelled; retry the job before you approve its takes."
        )
    if segment.status in (Segment.Status.QUEUED, Segment.Status.CLAIMED):
        return RetryRefusedError(
            "segment_unfinished",
            "The segment is being rendered; listen to it when it is done.",
            retry_after=POLL_SECONDS,
        )
    if segment.take_id is None:
        return RetryRefusedError(
            "segment_without_audio",
            "The segment has no take to approve; render it again, or edit its text.",
        )
    return RetryRefusedError(
        "take_changed",
        f"The segment now has another chosen take, {segment.take_id}; listen to that one first.",
    )


MOST_GROUPS = 50
MOST_AT_ONCE = 200  # takes that one request approves
_TITLE_CHARS = 80


def groups_of(user: AbstractBaseUser | AnonymousUser) -> list[dict[str, Any]]:
    """Return the jobs with something to review: how much of it is heard, what can be done at once.

    Those of which the most can be heard come first.
    """
    needed = Segment.objects.filter(pk__in=to_review(user).order_by().values("pk")).order_by()
    counts = needed.values("job").annotate(
        heard=Count("take"), unheard=Count("pk", filter=Q(take__isnull=True))
    )
    found = {row["job"]: row for row in counts.order_by("-heard", "-unheard")[:MOST_GROUPS]}
    order = list(found)
    takes: dict[uuid.UUID, list[dict[str, Any]]] = {job_id: [] for job_id in order}
    spoken = needed.filter(job__in=order, status=Segment.Status.DONE, take__isnull=False)
    numbered = spoken.annotate(place=Window(RowNumber(), partition_by="job", order_by="pk"))
    first = numbered.filter(place__lte=MOST_AT_ONCE).order_by("pk")
    for pk, job_id, take in first.values_list("pk", "job", "take"):
        takes[job_id].append({"segment": pk, "take": str(take)})
    jobs = _jobs_of(user, order)
    books = books_of(set(order))
    pinned: dict[uuid.UUID, list[JobVoice]] = {job_id: [] for job_id in order}
    for one in voices_to_check(order):
        pinned[one.job_id].append(one)
    groups = []
    for job_id in order:
        job, group = jobs.get(job_id), found[job_id]
        if job is None:  # deleted meanwhile
            continue
        title = books[job_id][1] if job_id in books else Truncator(job.start).chars(_TITLE_CHARS)
        num_takes = len(takes[job_id])
        has_more = num_takes == MOST_AT_ONCE < group["heard"]
        groups.append(
            group
            | {
                "job": job,
                "title": title or str(job),
                "takes": takes[job_id],
                "approves": f"the first {num_takes}" if has_more else num_takes,
                "body": json.dumps({"takes": takes[job_id]}),
                "retry_url": reverse("job-retry", args=[job_id])
                if group["unheard"] and may_retry(job, pinned=pinned[job_id])
                else "",
            }
        )
    return groups


def _jobs_of(
    user: AbstractBaseUser | AnonymousUser, order: Sequence[uuid.UUID]
) -> dict[uuid.UUID, Any]:
    """Return jobs by their ids, each with the `start` of its text in place of the text."""
    jobs = visible_jobs(user).filter(pk__in=order).defer("text", "lexicon")
    return jobs.annotate(start=Left("text", 2 * _TITLE_CHARS)).in_bulk()
