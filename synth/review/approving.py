"""Approve takes that a person listened to, where that can be done."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from synth.accounts.access import visible_jobs
from synth.jobs.retry import RetryRefusedError
from synth.models import RenderJob, Segment
from synth.transitions.approving import approve_takes


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
            "segment_unfinished", "The segment is being rendered; listen to it when it is done."
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
