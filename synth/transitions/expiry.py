"""Say until when what has ended is kept."""

from __future__ import annotations

import datetime as dt
import uuid

from django.conf import settings

from synth.models import RenderJob

SECONDS_PER_DAY = 86_400
FOR_EVER = 0  # a retention of no seconds: the job is kept whatever the default says


def expiry_of_ended(job_id: uuid.UUID, ended_at: dt.datetime) -> dt.datetime | None:
    """Return when a job that ends at `ended_at` is to be deleted; None keeps it.

    Call it with the job's row locked. An item of a batch goes with its batch, not before.
    """
    row = RenderJob.objects.filter(pk=job_id).values_list("retention_seconds", "batch_id").first()
    if row is None or row[1] is not None:
        return None
    return expiry(row[0], ended_at)


def expiry(retention_seconds: int | None, ended_at: dt.datetime) -> dt.datetime | None:
    """Return when to delete a job that ended at `ended_at`; None keeps it for ever.

    Args:
        retention_seconds: what the job asks for; None leaves it to TTS_RETENTION_DAYS, 0 keeps it.
    """
    if retention_seconds is None:
        retention_seconds = round(settings.RETENTION_DAYS * SECONDS_PER_DAY)
    if retention_seconds == FOR_EVER:
        return None
    return ended_at + dt.timedelta(seconds=retention_seconds)
