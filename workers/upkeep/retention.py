"""Delete jobs whose time is over, a bounded number at a time. Safe to run twice, anywhere."""

from __future__ import annotations

import logging
import time
import uuid

from django.db import transaction

from synth.jobs.removal import delete_job, lock_jobs
from synth.models import RenderJob
from ttsweb import leases

logger = logging.getLogger(__name__)

MAX_PER_ROUND = 500
# Deleting must not keep the sweep from freeing what dead workers held; the next round goes on.
ROUND_SECONDS = 5.0


def delete_expired_jobs(*, most: int = MAX_PER_ROUND, within_seconds: float = ROUND_SECONDS) -> int:
    """Delete ended jobs past their `expires_at`, the longest overdue first; return how many.

    Items of a batch go with their batch. A download that runs goes on to its end: its file is open.
    """
    until = time.monotonic() + within_seconds
    expired = RenderJob.objects.filter(
        expires_at__lte=leases.database_now(), status__in=RenderJob.FINAL, batch=None
    )
    count = 0
    for job_id in list(expired.order_by("expires_at").values_list("pk", flat=True)[:most]):
        count += _delete_if_expired(job_id)
        if time.monotonic() > until:
            break
    if count:
        logger.info("expired jobs deleted: jobs=%d", count)
    return count


def _delete_if_expired(job_id: uuid.UUID) -> bool:
    """Delete one job, unless it was retried, kept longer or deleted in this moment."""
    still = RenderJob.objects.defer("text").filter(
        pk=job_id, expires_at__lte=leases.database_now(), status__in=RenderJob.FINAL
    )
    batch = still.filter(kind=RenderJob.Kind.BATCH).first()
    if batch is not None:
        delete_job(batch)  # in steps of its own: one transaction would hold up all writers
        return True
    with transaction.atomic():
        job = still.first() if lock_jobs(still) else None
        if job is not None:
            delete_job(job)
    return job is not None
