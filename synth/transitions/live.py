"""Note which jobs are listened to while they are rendered; what is not is forgotten again."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection
from functools import partial

from django.db import transaction
from django.db.models import Q

from synth.jobs import work
from synth.jobs.removal import update_jobs
from synth.models import RenderJob
from ttsweb import leases

FRESH = dt.timedelta(seconds=30)  # a request that follows so soon changes nothing


def request_live(job_id: uuid.UUID) -> bool:
    """Have pieces of the job's audio written from now on, and those of what is done already.

    Returns:
        Whether anything was changed: False for a job that is gone or was asked for a moment ago.
    """
    now = leases.database_now()
    stale = Q(live_requested_at__isnull=True) | Q(live_requested_at__lt=now - FRESH)
    changed = RenderJob.objects.filter(stale, pk=job_id).update(live_requested_at=now)
    if changed:
        transaction.on_commit(partial(work.send_to_cpu, work.FILL_LIVE, job_id))
    return bool(changed)


def keep_live(job_ids: Collection[uuid.UUID]) -> int:
    """Note that somebody still listens to these jobs; return how many are there."""
    rows = RenderJob.objects.filter(pk__in=list(job_ids), live_requested_at__isnull=False)
    return update_jobs(rows, live_requested_at=leases.database_now())


def end_live(*, keep_seconds: float, limit: int = 100) -> int:
    """Forget ended jobs that nobody has listened to for so long; their pieces may go.

    Returns:
        How many jobs.
    """
    cutoff = leases.database_now() - dt.timedelta(seconds=keep_seconds)
    over = RenderJob.objects.filter(
        status__in=RenderJob.FINAL, live_requested_at__lt=cutoff, finished_at__lt=cutoff
    )
    # Chosen first, as an UPDATE has no limit; the condition is repeated, as one may listen again.
    chosen = list(over.order_by().values_list("pk", flat=True)[:limit])
    return update_jobs(over.filter(pk__in=chosen), live_requested_at=None) if chosen else 0
