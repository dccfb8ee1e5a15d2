"""Move exports: claim, finish, fail, release; finishing one ends its job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from synth.bookshelf.proof import gap_of
from synth.jobs.removal import lock_jobs
from synth.models import Export, ExportCues, RenderJob
from synth.transitions.batches import finish_batch
from synth.transitions.jobs import (
    STOPPING,
    JobStatus,
    end_job,
    end_whole_jobs,
    telling_failure,
)
from ttsweb import leases
from ttsweb.counted import counted
from ttsweb.leases import Claim


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
    return leases.claimable(Export).order_by("job__priority", "created_at")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A job's file that is in the storage: its object, and what is known of it."""

    key: str
    size_bytes: int
    sha256: str
    duration_seconds: float
    facts: FileFacts = field(default_factory=FileFacts)


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
        done = {claim: file for claim, file in files.items() if _publish(claim, file)}
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


def _publish(claim: Claim, file: StoredFile) -> bool:
    return leases.end(
        Export,
        claim,
        Export.Status.DONE,
        key=file.key,
        size_bytes=file.size_bytes,
        sha256=file.sha256,
        duration_seconds=file.duration_seconds,
        report=file.facts.report,
        peaks=list(file.facts.peaks),
    )


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
        failed = leases.fail(Export, claim, code=code, message=message)
        if failed:
            job_id = Export.objects.values_list("job_id", flat=True).get(pk=claim.pk)
            end_job(job_id, JobStatus.FAILED, error_code=code, error_message=message)
    return failed
