"""Move jobs: count their closed segments, end, cancel, retry and change them; stop overdue ones."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, QuerySet, Value, When
from django.db.models.expressions import CombinedExpression
from django.dispatch import receiver

from synth.jobs.removal import drop_exports, drop_inline_references, lock_jobs
from synth.models import Export, JobVoice, RenderJob, Segment
from synth.signals import job_reopened, jobs_ended
from synth.transitions.job_voices import CODES, SILENCED, silence_of, silenced_among
from synth.transitions.takes import keep_candidates, retake_outliers
from ttsweb import leases
from ttsweb.refusals import RefusedError
from ttsweb.work import Kind, enqueue
from voices.models import Voice, VoiceVersion
from voices.signals import voice_silenced

JobStatus = RenderJob.Status
UNFINISHED = (JobStatus.QUEUED, JobStatus.RUNNING)
OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
DEADLINE_PASSED = "deadline_passed"
STOPPING = (DEADLINE_PASSED, *CODES)  # what ends all that is left of a job


def count_closed(job_id: uuid.UUID, **amounts: float) -> None:
    """Add to a job's counters, which also locks its row; complete the job when all is closed."""
    count_all_closed({job_id: amounts})


def count_all_closed(amounts: Mapping[uuid.UUID, Mapping[str, float]]) -> None:
    """Do for many jobs what `count_closed` does, in few queries; lock them before."""
    columns = {name for added in amounts.values() for name in added}
    RenderJob.objects.filter(pk__in=amounts).update(
        updated_at=leases.database_now(), **{name: _added(name, amounts) for name in columns}
    )
    complete_jobs(amounts)


def _added(name: str, amounts: Mapping[uuid.UUID, Mapping[str, float]]) -> CombinedExpression:
    """Return a counter with what each of the jobs adds to it."""
    added = {pk: one.get(name, 0) for pk, one in amounts.items()}
    if len(same := set(added.values())) == 1:
        return F(name) + same.pop()
    cases = [When(pk=pk, then=Value(amount)) for pk, amount in added.items()]
    column: Any = RenderJob._meta.get_field(name)
    return F(name) + Case(*cases, output_field=column)


def complete_job(job_id: uuid.UUID) -> None:
    """Once every segment is closed: end the job, or order its file and end it when that is made."""
    complete_jobs([job_id])


def complete_jobs(job_ids: Collection[uuid.UUID]) -> None:
    """Do for many jobs what `complete_job` does; their rows are locked."""
    rows = RenderJob.objects.filter(pk__in=job_ids, status__in=UNFINISHED)
    whole: list[RenderJob] = []
    for job in rows.order_by("created_at", "pk").defer("text"):  # of a book it is long
        closed = job.segments_done + job.segments_failed + job.segments_cancelled
        if closed < job.segments_total:
            continue
        if job.cancel_requested:
            end_job(job.pk, JobStatus.CANCELLED)
        elif job.segments_done == 0:
            first = telling_failure(job)
            end_job(
                job.pk,
                JobStatus.FAILED,
                error_code=first.error_code if first else "no_audio",
                error_message=first.error_message if first else "No segment of this job has audio.",
            )
        else:
            whole.append(job)
    if whole:
        _order_files(whole)


def _order_files(jobs: Sequence[RenderJob]) -> None:
    """Order the files of jobs whose takes are all there, unless some are to be made once more."""
    silenced = silenced_among([job.pk for job in jobs])
    again = retake_outliers([job for job in jobs if job.pk not in silenced])
    ready = [job for job in jobs if job.pk not in again]
    ordered = Export.objects.filter(job__in=ready, format=F("job__format"))
    known = set(ordered.values_list("job_id", flat=True))
    missing = [Export(job=job, format=job.format) for job in ready if job.pk not in known]
    enqueue(Kind.EXPORT, [export.pk for export in Export.objects.bulk_create(missing)])


def telling_failure(job: RenderJob) -> Segment | None:
    """Return the failed segment that says why a job failed: the first that the whole job stopped
    for, such as a deadline, whose sentence explains the most; else the first of all.
    """
    failed = job.segments.filter(status=Segment.Status.FAILED).order_by("pk")
    return failed.filter(error_code__in=STOPPING).first() or failed.first()


def end_job(job_id: uuid.UUID, status: JobStatus, **changes: Any) -> bool:
    """Move an unfinished job to a final status; inline references go once this has committed."""
    now = leases.database_now()
    ended = RenderJob.objects.filter(pk=job_id, status__in=UNFINISHED).update(
        status=status,
        finished_at=now,
        updated_at=now,
        expires_at=expiry_of_ended(job_id, now),
        **changes,
    )
    if ended:
        drop_inline_references([job_id])
        row = RenderJob.objects.only("batch_id", "kind", "owner_id", "webhook_url").get(pk=job_id)
        jobs_ended.send(RenderJob, jobs=[row])
    return bool(ended)


def end_whole_jobs(seconds: Mapping[uuid.UUID, float]) -> None:
    """Move unfinished jobs to SUCCEEDED, each with so many seconds of audio, as `end_job` does.

    For jobs of texts, alone or of a batch, whose segments all have audio, with their rows locked.
    """
    now = leases.database_now()
    rows = RenderJob.objects.filter(pk__in=seconds, status__in=UNFINISHED)
    ended = list(rows.only("retention_seconds", "batch_id", "kind", "owner_id", "webhook_url"))
    kept_until: dict[dt.datetime | None, list[uuid.UUID]] = {}
    for job in ended:
        until = None if job.batch_id else expiry(job.retention_seconds, now)
        kept_until.setdefault(until, []).append(job.pk)
    for until, ids in kept_until.items():
        RenderJob.objects.filter(pk__in=ids).update(
            status=JobStatus.SUCCEEDED,
            finished_at=now,
            updated_at=now,
            expires_at=until,
            audio_seconds=Case(*[When(pk=pk, then=Value(seconds[pk])) for pk in ids]),
        )
    drop_inline_references([job.pk for job in ended])
    jobs_ended.send(RenderJob, jobs=ended)


def close_segments(segments: QuerySet[Segment], status: Segment.Status, **columns: Any) -> int:
    """Move open segments to a final status, with their jobs locked; return how many.

    Whoever renders one of them loses its claim: the worker notices within a moment and stops, and
    whatever it still writes is refused.
    """
    freed = leases.free(spend_attempt=True, is_name_kept=True)
    return segments.filter(status__in=OPEN).update(
        status=status, finished_at=leases.database_now(), **freed, **columns
    )


def fail_open_segments(
    job_id: uuid.UUID, statuses: Collection[str], *, code: str, message: str
) -> bool:
    """Fail the segments of a job that are in one of these states; False when there are none.

    One that waits for another take than a suspicious one keeps the best that there is.
    """
    with transaction.atomic():
        lock_jobs(RenderJob.objects.filter(pk=job_id))
        kept = keep_candidates(job_id, statuses)
        failed = close_segments(
            Segment.objects.filter(job_id=job_id, status__in=statuses),
            Segment.Status.FAILED,
            error_code=code,
            error_message=message,
        )
        if failed or kept["segments_done"]:
            count_closed(job_id, segments_failed=failed, **kept)
    return bool(failed or kept["segments_done"])


def fail_jobs_of_failed_versions() -> int:
    """Fail what waits for a version that cannot be encoded, with the version's sentence."""
    waiting = JobVoice.objects.filter(
        job__status__in=UNFINISHED, version__status=VoiceVersion.Status.FAILED
    ).select_related("version")
    found = list(waiting)
    for row in found:
        fail_open_segments(
            row.job_id,
            [Segment.Status.QUEUED],
            code=row.version.error_code,
            message=row.version.error_message,
        )
    return len(found)


@receiver(voice_silenced)
def stop_silenced_jobs(voice: Voice | None = None, **_: Any) -> int:
    """Fail the open segments of jobs whose voices may not speak any more; return how many jobs.

    Call it for a voice in the transaction that silences it. Without a voice it finds what was
    opened again meanwhile, such as a segment whose take was lost.
    """
    pinned = JobVoice.objects.filter(SILENCED, job__status__in=UNFINISHED)
    if voice is not None:
        pinned = pinned.filter(version__voice=voice)
        lock_jobs(RenderJob.objects.filter(pk__in=pinned.values("job")))
    stopped = 0
    for one in pinned.select_related("version__voice", "job__owner").defer("job__text"):
        if silence := silence_of(one):
            message = f"{silence.message} This text was not rendered before that."
            stopped += fail_open_segments(one.job_id, OPEN, code=silence.code, message=message)
    return stopped


def cancel_job(job_id: uuid.UUID) -> bool:
    """Cancel an unfinished job, which ends it at once: whoever renders some of it loses its claim.

    Returns False when the job had already ended.
    """
    with transaction.atomic():
        asked = RenderJob.objects.filter(pk=job_id, status__in=UNFINISHED).update(
            cancel_requested=True, updated_at=leases.database_now()
        )
        if not asked:
            return False
        Export.objects.filter(job_id=job_id).delete()
        cancelled = close_segments(Segment.objects.filter(job_id=job_id), Segment.Status.CANCELLED)
        count_closed(job_id, segments_cancelled=cancelled)
    return True


def close_cancelled_jobs() -> int:
    """Cancel what was opened again in the moment its job was cancelled; return how many."""
    count = 0
    cancelled_jobs = RenderJob.objects.filter(cancel_requested=True)
    left = cancelled_jobs.filter(status__in=UNFINISHED, segments__status__in=OPEN)
    for job_id in set(left.values_list("pk", flat=True)):
        with transaction.atomic():
            lock_jobs(RenderJob.objects.filter(pk=job_id))
            cancelled = close_segments(
                Segment.objects.filter(job__in=cancelled_jobs.filter(pk=job_id)),
                Segment.Status.CANCELLED,
            )
            if cancelled:
                count_closed(job_id, segments_cancelled=cancelled)
        count += cancelled
    return count


def retry_job(job_id: uuid.UUID) -> bool:
    """Queue again what failed or was cancelled in an ended job; finished segments are kept.

    Returns False when the job is unfinished or has nothing to do again.
    """
    again = (JobStatus.FAILED, JobStatus.PARTIAL, JobStatus.CANCELLED)
    with transaction.atomic():
        moved = RenderJob.objects.filter(pk=job_id, status__in=again).update(
            status=JobStatus.QUEUED,
            cancel_requested=False,
            error_code="",
            error_message="",
            finished_at=None,
            expires_at=None,
            deadline_at=None,  # it may have passed; who tries again wants it done
            paused_at=None,
            updated_at=leases.database_now(),
        )
        if not moved:
            return False
        drop_exports(Export.objects.filter(job_id=job_id))
        rows = Segment.objects.filter(
            job_id=job_id, status__in=(Segment.Status.FAILED, Segment.Status.CANCELLED)
        )
        ids = list(rows.values_list("pk", flat=True))
        rows.update(
            status=Segment.Status.QUEUED,
            error_code="",
            error_message="",
            finished_at=None,
            **leases.untried(),
        )
        RenderJob.objects.filter(pk=job_id).update(
            segments_failed=0, segments_cancelled=0, takes_compared=False
        )
        job_reopened.send(RenderJob, job_id=job_id)
        enqueue(Kind.SEGMENT, ids)
        complete_job(job_id)  # where only the file was missing
    return True


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


_AT_WORK = ("priority", "deadline_at")  # what means something while a job is unfinished alone


class ChangeRefusedError(RefusedError):
    """A job cannot be changed so any more."""


def change_job(job_id: uuid.UUID, changes: Mapping[str, Any]) -> bool:
    """Change a job; False when it is gone.

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
        lock_jobs(RenderJob.objects.filter(pk=job_id))
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
            RenderJob.objects.filter(pk=job_id).update(**at_work, updated_at=leases.database_now())
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
