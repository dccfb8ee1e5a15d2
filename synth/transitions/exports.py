"""Move exports: claim, finish, fail, release; finishing one ends its job."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet

from synth.bookshelf.proof import gap_of
from synth.models import Export, ExportCues, RenderJob
from synth.removal import lock_jobs
from synth.transitions.batches import finish_batch
from synth.transitions.claims import WORKER_LOST_MESSAGE, Claim
from synth.transitions.jobs import DEADLINE_PASSED, JobStatus, end_job, telling_failure
from ttsweb import leases


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is known of a file beside its bytes.

    `report` is what was measured of it, `peaks` its waveform, at most 1,000 values of 0 to 255;
    `cues` holds (segment id, first sample, sample after the last) at `sample_rate`.
    """

    report: dict[str, Any] = field(default_factory=dict)
    peaks: Sequence[int] = ()
    cues: Sequence[tuple[int, int, int]] = ()
    sample_rate: int = 0


def claimable_exports() -> QuerySet[Export]:
    """Return the exports that wait for a CPU worker now, oldest first."""
    return Export.objects.filter(
        status=Export.Status.QUEUED, not_before__lte=leases.database_now()
    ).order_by("job__priority", "created_at")


def claim_export(export_id: uuid.UUID, *, worker: str) -> Claim | None:
    """Move an export QUEUED -> CLAIMED; of many callers exactly one gets the claim."""
    token = leases.claim(
        claimable_exports().order_by().filter(pk=export_id),
        worker=worker,
        lease_seconds=settings.LEASE_SECONDS,
        now=leases.database_now(),
        status=Export.Status.CLAIMED,
    )
    return Claim(export_id, token) if token else None


def finish_export(
    claim: Claim,
    *,
    key: str,
    size_bytes: int,
    sha256: str,
    duration_seconds: float,
    facts: FileFacts | None = None,
) -> bool:
    """Publish a job's file and end the job; False when the claim is gone."""
    facts = facts or FileFacts()
    with transaction.atomic():
        lock_jobs(RenderJob.objects.filter(exports=claim.pk))
        done = _held_export(claim).update(
            status=Export.Status.DONE,
            key=key,
            size_bytes=size_bytes,
            sha256=sha256,
            duration_seconds=duration_seconds,
            report=facts.report,
            peaks=list(facts.peaks),
            finished_at=leases.database_now(),
            **leases.free(spend_attempt=True),
        )
        if not done:
            return False
        if facts.cues:
            ExportCues.objects.update_or_create(
                export_id=claim.pk,
                defaults={"sample_rate": facts.sample_rate, "cues": list(facts.cues)},
            )
        _end_with_file(RenderJob.objects.defer("text").get(exports=claim.pk), duration_seconds)
    return True


def _end_with_file(job: RenderJob, seconds: float) -> None:
    """End a job whose file is there: as succeeded, or as partial with why something is missing."""
    if job.kind == RenderJob.Kind.BATCH:
        finish_batch(job, audio_seconds=seconds)
        return
    failure = telling_failure(job)
    gap = gap_of(job) if failure is None and job.kind == RenderJob.Kind.BOOK else None
    if gap is not None:
        end_job(
            job.pk,
            JobStatus.PARTIAL,
            audio_seconds=seconds,
            error_code=gap.code,
            error_message=gap.message,
        )
        return
    if failure is None:
        end_job(job.pk, JobStatus.SUCCEEDED, audio_seconds=seconds)
        return
    missing = f"{job.segments_failed} of {job.segments_total} segments have no audio"
    if failure.error_code == DEADLINE_PASSED:
        code, message = DEADLINE_PASSED, f"{missing}: {failure.error_message}"
    else:
        code = "segments_failed"
        message = f"{missing}; the first is number {failure.index}: {failure.error_message}"
    end_job(
        job.pk, JobStatus.PARTIAL, audio_seconds=seconds, error_code=code, error_message=message
    )


def fail_export(claim: Claim, *, code: str, message: str) -> bool:
    """Move CLAIMED -> FAILED and end the job; a retry makes the file again from the takes."""
    with transaction.atomic():
        lock_jobs(RenderJob.objects.filter(exports=claim.pk))
        failed = _held_export(claim).update(
            status=Export.Status.FAILED,
            error_code=code,
            error_message=message,
            finished_at=leases.database_now(),
            **leases.free(spend_attempt=True),
        )
        if failed:
            job_id = Export.objects.values_list("job_id", flat=True).get(pk=claim.pk)
            end_job(job_id, JobStatus.FAILED, error_code=code, error_message=message)
    return bool(failed)


def release_export(
    claim: Claim, *, delay_seconds: float = 0.0, spend_attempt: bool = False
) -> bool:
    """Move CLAIMED -> QUEUED: shutdown or a full disk; False when the claim is gone."""
    not_before = leases.database_now() + dt.timedelta(seconds=delay_seconds)
    return bool(
        _held_export(claim).update(
            status=Export.Status.QUEUED,
            **leases.free(spend_attempt=spend_attempt, not_before=not_before),
        )
    )


def free_lost_exports(lost: Q) -> int:
    """Give back exports whose claim meets `lost`; those tried too often fail."""
    count = 0
    rows = Export.objects.filter(lost, status=Export.Status.CLAIMED)
    for pk, token, attempts in rows.values_list("pk", "claim_token", "attempts"):
        if token is None:  # freed by somebody else meanwhile
            continue
        claim = Claim(pk, token)
        if attempts >= settings.MAX_ATTEMPTS:
            count += fail_export(claim, code="worker_lost", message=WORKER_LOST_MESSAGE)
        else:
            count += release_export(claim, spend_attempt=True)
    return count


def _held_export(claim: Claim) -> QuerySet[Export]:
    return Export.objects.filter(pk=claim.pk, claim_token=claim.token, status=Export.Status.CLAIMED)
