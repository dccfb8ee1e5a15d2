"""Move exports: claim, finish, fail, release; finishing one ends its job."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Q, QuerySet

from synth.bookshelf.proof import gap_of
from synth.jobs.removal import lock_jobs
from synth.models import Export, ExportCues, RenderJob
from synth.transitions.batches import finish_batch
from synth.transitions.claims import WORKER_LOST_MESSAGE, Claim
from synth.transitions.jobs import (
    STOPPING,
    JobStatus,
    end_job,
    end_whole_jobs,
    telling_failure,
)
from ttsweb import leases
from ttsweb.counted import counted


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


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A job's file that is in the storage: its object, and what is known of it."""

    key: str
    size_bytes: int
    sha256: str
    duration_seconds: float
    facts: FileFacts = field(default_factory=FileFacts)


def claim_export(export_id: uuid.UUID, *, worker: str) -> Claim | None:
    """Move an export QUEUED -> CLAIMED; of many callers exactly one gets the claim."""
    return next(iter(claim_exports([export_id], worker=worker)), None)


def claim_exports(export_ids: Sequence[uuid.UUID], *, worker: str) -> list[Claim]:
    """Move those of the exports that still wait QUEUED -> CLAIMED, in one step, in this order.

    Of many callers exactly one gets each of them. They share a token, and each may be lost alone.
    """
    token, now = uuid.uuid4(), leases.database_now()
    rows = Export.objects.filter(pk__in=export_ids, claim_token=token)
    with transaction.atomic():
        waiting = claimable_exports().order_by().filter(pk__in=export_ids)
        if connection.features.has_select_for_update_skip_locked:
            # Two workers that claim many at once would else wait for each other.
            free = waiting.select_for_update(skip_locked=True).values_list("pk", flat=True)
            waiting = Export.objects.filter(pk__in=list(free))
        waiting.update(
            status=Export.Status.CLAIMED,
            claimed_by=worker,
            claim_token=token,
            lease_until=now + dt.timedelta(seconds=settings.LEASE_SECONDS),
            attempts=F("attempts") + 1,
        )
        won = set(rows.values_list("pk", flat=True))
    return [Claim(pk, token) for pk in export_ids if pk in won]


def finish_export(claim: Claim, **file: Any) -> bool:
    """Publish a job's file, a `StoredFile`, and end the job; False when the claim is gone."""
    return bool(finish_exports({claim: StoredFile(**file)}))


def finish_exports(files: Mapping[Claim, StoredFile]) -> set[Claim]:
    """Publish the files of many jobs and end the jobs, in one transaction.

    Returns:
        The claims that were settled; the others are gone, and nothing was changed for them.
    """
    with transaction.atomic():
        lock_jobs(RenderJob.objects.filter(exports__in=[claim.pk for claim in files]))
        now = leases.database_now()
        done = {claim: file for claim, file in files.items() if _publish(claim, file, now)}
        cues = {claim.pk: file.facts for claim, file in done.items() if file.facts.cues}
        ExportCues.objects.bulk_create(
            [
                ExportCues(export_id=pk, sample_rate=facts.sample_rate, cues=list(facts.cues))
                for pk, facts in cues.items()
            ],
            update_conflicts=True,
            unique_fields=["export"],
            update_fields=["sample_rate", "cues"],
        )
        seconds = {claim.pk: file.duration_seconds for claim, file in done.items()}
        made = dict(Export.objects.filter(pk__in=seconds).values_list("job", "pk"))
        jobs = list(RenderJob.objects.defer("text").filter(pk__in=made))
        end_whole_jobs({job.pk: seconds[made[job.pk]] for job in jobs if _is_plain(job)})
        for job in jobs:
            if not _is_plain(job):
                _end_with_file(job, seconds[made[job.pk]])
    return set(done)


def _publish(claim: Claim, file: StoredFile, now: dt.datetime) -> bool:
    done = _held_export(claim).update(
        status=Export.Status.DONE,
        key=file.key,
        size_bytes=file.size_bytes,
        sha256=file.sha256,
        duration_seconds=file.duration_seconds,
        report=file.facts.report,
        peaks=list(file.facts.peaks),
        finished_at=now,
        **leases.free(spend_attempt=True),
    )
    return bool(done)


def _is_plain(job: RenderJob) -> bool:
    """Say whether a job needs only its file to have succeeded."""
    return job.kind == RenderJob.Kind.SPEECH and job.segments_failed == 0


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
    missing = (
        f"{job.segments_failed} of {counted(job.segments_total, 'segment')} "
        f"{'has' if job.segments_failed == 1 else 'have'} no audio"
    )
    if failure.error_code in STOPPING:
        code, message = failure.error_code, f"{missing}: {failure.error_message}"
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
