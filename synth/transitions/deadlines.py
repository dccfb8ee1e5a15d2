"""Stop what could not be rendered before its job's deadline; what is rendered stays."""

from __future__ import annotations

import datetime as dt
import uuid

from django.db import transaction
from django.db.models import Exists, OuterRef

from synth.jobs.removal import lock_jobs
from synth.models import RenderJob, Segment
from synth.transitions.jobs import DEADLINE_PASSED, OPEN, UNFINISHED, fail_open_segments
from ttsweb import leases


def stop_overdue_jobs() -> int:
    """Fail the open segments of jobs past their deadline; return how many jobs were stopped.

    A segment that is being rendered loses its claim: its worker notices within about a second, and
    whatever it still writes is refused. A job whose segments are all rendered gets its file.
    """
    open_segments = Segment.objects.filter(job=OuterRef("pk"), status__in=OPEN)
    overdue = RenderJob.objects.filter(
        Exists(open_segments),
        deadline_at__lte=leases.database_now(),
        status__in=UNFINISHED,
        cancel_requested=False,
    )
    stopped = 0
    for job_id in list(overdue.order_by("deadline_at").values_list("pk", flat=True)):
        stopped += _stop(job_id)
    return stopped


def _stop(job_id: uuid.UUID) -> bool:
    """Stop one job, unless its deadline was moved or it was cancelled in this moment."""
    with transaction.atomic():
        now = leases.database_now()
        still = RenderJob.objects.filter(
            pk=job_id, deadline_at__lte=now, status__in=UNFINISHED, cancel_requested=False
        )
        if not lock_jobs(still):
            return False
        deadline = RenderJob.objects.values_list("deadline_at", flat=True).get(pk=job_id)
        return fail_open_segments(job_id, OPEN, code=DEADLINE_PASSED, message=_sentence(deadline))


def _sentence(deadline: dt.datetime | None) -> str:
    moment = f"{deadline.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC" if deadline else "its moment"
    return (
        f"The job's deadline, {moment}, passed before this text was rendered. Retry the job "
        "to render the rest without a deadline."
    )
