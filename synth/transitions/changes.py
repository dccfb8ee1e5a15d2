"""Change what a job was told when it was made: its class, its deadline, how long it is kept."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import Q

from synth.jobs.removal import lock_jobs
from synth.models import RenderJob
from synth.transitions.expiry import expiry
from synth.transitions.jobs import UNFINISHED
from ttsweb import leases

_AT_WORK = ("priority", "deadline_at")  # what means something while a job is unfinished alone


class ChangeRefusedError(Exception):
    """A job cannot be changed so any more; `code` is stable, the message says why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def change_job(job_id: uuid.UUID, changes: Mapping[str, Any]) -> bool:
    """Change a job, and the unfinished items of a batch with it; False when it is gone.

    Args:
        changes: any of `priority`, `deadline_at` (None removes it) and `retention_seconds` (None
            leaves it to the settings, 0 keeps the job).

    Raises:
        ChangeRefusedError: job_ended, priority and deadline mean nothing any more; item_of_batch,
            an item is kept as long as its batch.
    """
    at_work = {name: changes[name] for name in _AT_WORK if name in changes}
    with transaction.atomic():
        # Its row may become final at any moment: what is looked at here is locked first.
        lock_jobs(RenderJob.objects.filter(Q(pk=job_id) | Q(batch=job_id, status__in=UNFINISHED)))
        job = RenderJob.objects.filter(pk=job_id).defer("text").first()
        if job is None:
            return False
        if at_work and job.status not in UNFINISHED:
            raise ChangeRefusedError(
                "job_ended",
                f"The job is {job.status}, so its priority and deadline cannot be changed; "
                "its retention can.",
            )
        if "retention_seconds" in changes:
            _keep(job, changes["retention_seconds"])
        if at_work:
            both = Q(pk=job_id) | Q(batch=job_id)
            RenderJob.objects.filter(both, status__in=UNFINISHED).update(
                **at_work, updated_at=leases.database_now()
            )
    return True


def _keep(job: RenderJob, seconds: int | None) -> None:
    """Set how long a job is kept; of one that has ended, until when."""
    if job.batch_id is not None:
        raise ChangeRefusedError(
            "item_of_batch",
            f"The job is an item of the batch {job.batch_id} and is kept as long as the "
            "batch; change the batch's retention instead.",
        )
    columns: dict[str, Any] = {"retention_seconds": seconds, "updated_at": leases.database_now()}
    if job.status not in UNFINISHED and job.finished_at is not None:
        columns["expires_at"] = expiry(seconds, job.finished_at)
    RenderJob.objects.filter(pk=job.pk).update(**columns)
