"""Move jobs: count their closed segments, end, cancel, retry and change them; stop overdue ones.

Here is also the one rule of who may speak for a job: claims leave jobs out whose voice may not,
workers ask it before they begin, and what is queued or rendered meanwhile is closed in the
transaction that silences the voice.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Exists, F, OuterRef, Q, QuerySet, Sum, Value, When
from django.db.models.expressions import CombinedExpression
from django.dispatch import receiver

from synth.jobs.removal import drop_exports, drop_inline_references, lock_jobs
from synth.models import Export, JobVoice, RenderJob, Segment, WorkerStatus
from synth.signals import job_reopened, jobs_ended
from synth.transitions.takes import keep_candidates, retake_outliers
from ttsweb import leases
from ttsweb.refusals import RefusedError
from ttsweb.work import Kind, enqueue
from voices.models import Voice, VoiceVersion
from voices.signals import codecs_asked, uses_asked, voice_silenced

JobStatus = RenderJob.Status
UNFINISHED = (JobStatus.QUEUED, JobStatus.RUNNING)
OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
UNSPOKEN = (Segment.Status.FAILED, Segment.Status.CANCELLED)
RETRYABLE = (JobStatus.FAILED, JobStatus.PARTIAL, JobStatus.CANCELLED)
# What a job has no more that goes on after its end; its deadline may have passed.
REOPENED: Mapping[str, Any] = {
    "error_code": "", "error_message": "", "finished_at": None, "expires_at": None,
    "deadline_at": None,
}  # fmt: skip
CODES = ("voice_deleted", "consent_withdrawn", "voice_not_shared")
# As `voices.access.visible_voices`; a job without an owner is the installation's own.
_OF_ANOTHER = Q(
    version__voice__shared=False,
    version__voice__owner__isnull=False,
    job__owner__is_superuser=False,
) & ~Q(version__voice__owner=F("job__owner"))
SILENCED = (  # a condition of JobVoice
    Q(version__voice__deleted_at__isnull=False)
    | Q(version__voice__consent_withdrawn_at__isnull=False)
    | _OF_ANOTHER
)


class Silence(NamedTuple):
    """Why a voice may not speak for a job."""

    code: str  # stable
    message: str


def silence_of(pinned: JobVoice) -> Silence | None:
    """Return why a job may not speak with one of its voices; None where it may."""
    voice, owner = pinned.version.voice, pinned.job.owner
    if voice is None:
        return None
    if voice.deleted_at is not None:
        return Silence("voice_deleted", f"The voice {voice.name!r} was deleted.")
    if voice.consent_withdrawn_at is not None:
        message = f"The consent to use the voice {voice.name!r} was withdrawn."
        return Silence("consent_withdrawn", message)
    is_own = owner is None or owner.is_superuser or voice.owner_id in (None, owner.pk)
    if not is_own and not voice.shared:
        message = f"The voice {voice.name!r} is no longer shared with you."
        return Silence("voice_not_shared", message)
    return None


def unready_voices(codec_fingerprint: str) -> QuerySet[JobVoice]:
    """Return the jobs' voices that a worker with this codec may not speak with now."""
    is_encoded = Q(version__codec_fingerprint=codec_fingerprint)
    ready = Q(version__status=VoiceVersion.Status.READY) & is_encoded
    return JobVoice.objects.filter(~ready | SILENCED)


@receiver(uses_asked)
def used_versions(is_over: bool, **_: Any) -> QuerySet[JobVoice, Any]:
    """Answer which versions jobs use that have ended, or have not."""
    ended = Q(job__status__in=RenderJob.FINAL)
    return JobVoice.objects.filter(ended if is_over else ~ended).order_by().values("version")


@receiver(codecs_asked)
def codecs_of_workers(is_loaded: bool, **_: Any) -> set[str]:
    """Answer which codecs workers have, those alone that are ready and alive where it is asked."""
    rows = WorkerStatus.objects.exclude(codec_fingerprint="")
    if is_loaded:
        since = leases.database_now() - dt.timedelta(seconds=2 * settings.LEASE_SECONDS)
        rows = rows.filter(state__in=WorkerStatus.SERVING, last_seen_at__gt=since)
    return set(rows.values_list("codec_fingerprint", flat=True))


DEADLINE_PASSED = "deadline_passed"
STOPPING = (DEADLINE_PASSED, *CODES)  # what ends all that is left of a job


def count_closed(job_id: uuid.UUID, **amounts: float) -> None:
    """Add to a job's counters, which also locks its row; complete the job when all is closed."""
    count_all_closed({job_id: amounts})


def count_all_closed(amounts: Mapping[uuid.UUID, Mapping[str, float]]) -> None:
    """Do for many jobs, locked before, what `count_closed` does, in few queries."""
    columns = {name for added in amounts.values() for name in added}
    RenderJob.objects.filter(pk__in=amounts).update(
        updated_at=leases.database_now(), **{name: _added(name, amounts) for name in columns}
    )
    complete_jobs(amounts)


def _added(name: str, amounts: Mapping[uuid.UUID, Mapping[str, float]]) -> CombinedExpression:
    added = {pk: one.get(name, 0) for pk, one in amounts.items()}
    if len(same := set(added.values())) == 1:
        return F(name) + same.pop()
    cases = [When(pk=pk, then=Value(amount)) for pk, amount in added.items()]
    column: Any = RenderJob._meta.get_field(name)
    return F(name) + Case(*cases, output_field=column)


def complete_jobs(job_ids: Collection[uuid.UUID]) -> None:
    """Once every segment of a locked job is closed: end it, or order its file, which ends it."""
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
            code, message = "no_audio", "No segment of this job has audio."
            if first is not None:
                code, message = first.error_code, first.error_message
            end_job(job.pk, JobStatus.FAILED, error_code=code, error_message=message)
        else:
            whole.append(job)
    if not whole:
        return
    pinned = JobVoice.objects.filter(SILENCED, job__in=[job.pk for job in whole])
    silenced = set(pinned.values_list("job_id", flat=True))
    again = retake_outliers([job for job in whole if job.pk not in silenced])
    ready = [job for job in whole if job.pk not in again]
    ordered = Export.objects.filter(job__in=ready, format=F("job__format"))
    known = set(ordered.values_list("job_id", flat=True))
    missing = [Export(job=job, format=job.format) for job in ready if job.pk not in known]
    enqueue(Kind.EXPORT, [export.pk for export in Export.objects.bulk_create(missing)])


def telling_failure(job: RenderJob) -> Segment | None:
    """Return the failed segment that says why: the first that all stopped for; else the first."""
    failed = job.segments.filter(status=Segment.Status.FAILED).order_by("pk")
    return failed.filter(error_code__in=STOPPING).first() or failed.first()


def end_job(job_id: uuid.UUID, status: JobStatus, **changes: Any) -> bool:
    """Move an unfinished job to a final status; inline references go once this has committed."""
    now = leases.database_now()
    job = RenderJob.objects.only(*_TOLD).filter(pk=job_id).first()
    ended = job and RenderJob.objects.filter(pk=job_id, status__in=UNFINISHED).update(
        status=status,
        finished_at=now,
        updated_at=now,
        expires_at=_expiry_of(job, now),
        **changes,
    )
    if ended:
        drop_inline_references([job_id])
        jobs_ended.send(RenderJob, jobs=[job])
    return bool(ended)


# What those who hear of ended jobs need of them, and `expiry`.
_TOLD = ("batch_id", "kind", "owner_id", "webhook_url", "retention_seconds")


def end_whole_jobs(seconds: Mapping[uuid.UUID, float]) -> None:
    """Move unfinished jobs to SUCCEEDED, each with so many seconds of audio, as `end_job` does.

    For jobs of texts, alone or of a batch, whose segments all have audio, with their rows locked.
    """
    now = leases.database_now()
    rows = RenderJob.objects.filter(pk__in=seconds, status__in=UNFINISHED)
    ended = list(rows.only(*_TOLD))
    kept_until: dict[dt.datetime | None, list[uuid.UUID]] = {}
    for job in ended:
        kept_until.setdefault(_expiry_of(job, now), []).append(job.pk)
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
        rows = Segment.objects.filter(job_id=job_id, status__in=statuses)
        failed = close_segments(rows, Segment.Status.FAILED, error_code=code, error_message=message)
        if failed or kept["segments_done"]:
            count_closed(job_id, segments_failed=failed, **kept)
    return bool(failed or kept["segments_done"])


def fail_jobs_of_failed_versions() -> int:
    """Fail what waits for a version that cannot be encoded, with the version's sentence."""
    failed = VoiceVersion.Status.FAILED
    rows = JobVoice.objects.filter(job__status__in=UNFINISHED, version__status=failed)
    found = list(rows.select_related("version"))
    for row in found:
        code, message = row.version.error_code, row.version.error_message
        fail_open_segments(row.job_id, [Segment.Status.QUEUED], code=code, message=message)
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
    jobs = RenderJob.objects.filter(cancel_requested=True)
    left = jobs.filter(status__in=UNFINISHED, segments__status__in=OPEN)
    for job_id in set(left.values_list("pk", flat=True)):
        with transaction.atomic():
            lock_jobs(RenderJob.objects.filter(pk=job_id))
            rows = Segment.objects.filter(job__in=jobs.filter(pk=job_id))
            if cancelled := close_segments(rows, Segment.Status.CANCELLED):
                count_closed(job_id, segments_cancelled=cancelled)
                count += cancelled
    return count


def retry_job(job_id: uuid.UUID) -> bool:
    """Queue again what failed or was cancelled in an ended job; finished segments are kept.

    Returns False when the job is unfinished or has nothing to do again.
    """
    with transaction.atomic():
        ended = RenderJob.objects.filter(pk=job_id, status__in=RETRYABLE)
        if not ended.update(status=JobStatus.QUEUED):
            return False
        job_reopened.send(RenderJob, job_id=job_id)
        queue_again([job_id], paused_at=None, takes_compared=False)
    return True


def queue_again(job_ids: Collection[uuid.UUID], **columns: Any) -> None:
    """Queue what failed or was cancelled in ended jobs; call it with their rows locked."""
    RenderJob.objects.filter(pk__in=job_ids).update(
        status=JobStatus.QUEUED,
        cancel_requested=False,
        segments_failed=0,
        segments_cancelled=0,
        updated_at=leases.database_now(),
        **REOPENED,
        **columns,
    )
    drop_exports(Export.objects.filter(job__in=job_ids))
    rows = Segment.objects.filter(job__in=job_ids, status__in=UNSPOKEN)
    opened = list(rows.values_list("job", "pk"))
    again = leases.untried() | {"error_code": "", "error_message": "", "finished_at": None}
    rows.update(status=Segment.Status.QUEUED, history_used=None, **again)
    enqueue(Kind.SEGMENT, [pk for _, pk in opened])
    complete_jobs(set(job_ids) - {job_id for job_id, _ in opened})  # only the file was missing


def reopen_job(job_id: uuid.UUID, **columns: Any) -> None:
    """Open a job whose takes have changed again, if it has ended, and let its file go.

    Call it with the job's row locked, and complete the job where nothing is to be rendered.
    """
    ended = RenderJob.objects.filter(pk=job_id, status__in=RenderJob.FINAL).update(
        status=JobStatus.RUNNING, started_at=leases.database_now(), **REOPENED
    )
    drop_exports(Export.objects.filter(job_id=job_id))
    count_audio(job_id, **columns)
    if ended:
        job_reopened.send(RenderJob, job_id=job_id)


def count_audio(job_id: uuid.UUID, **columns: Any) -> None:
    """Write how long the audio of a job's takes is, pauses included, and other columns with it."""
    spoken = Segment.objects.filter(job_id=job_id, status=Segment.Status.DONE)
    sums = spoken.aggregate(pauses=Sum("pause_after_ms"), seconds=Sum("take__audio_seconds"))
    seconds = (sums["pauses"] or 0) / 1000 + (sums["seconds"] or 0.0)
    RenderJob.objects.filter(pk=job_id).update(
        audio_seconds=seconds, updated_at=leases.database_now(), **columns
    )


FOR_EVER = 0  # a retention of no seconds: the job is kept whatever the default says


def _expiry_of(job: RenderJob, ended_at: dt.datetime) -> dt.datetime | None:
    """Return when a job that ends now is to be deleted; an item of a batch goes with that."""
    return None if job.batch_id else expiry(job.retention_seconds, ended_at)


def expiry(retention_seconds: int | None, ended_at: dt.datetime) -> dt.datetime | None:
    """Return when to delete a job that ended at `ended_at`; None keeps it for ever.

    It may ask for `retention_seconds`; None leaves it to TTS_RETENTION_DAYS, 0 keeps it.
    """
    if retention_seconds is None:
        retention_seconds = round(settings.RETENTION_DAYS * 24 * 3600)
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
        with transaction.atomic():
            # Unless its deadline was moved or it was cancelled in this moment.
            late = RenderJob.objects.filter(deadline_at__lte=leases.database_now())
            if not lock_jobs(late.filter(pk=job_id, status__in=UNFINISHED, cancel_requested=False)):
                continue
            deadline = late.values_list("deadline_at", flat=True).get(pk=job_id)
            assert deadline is not None
            message = (
                f"The job's deadline, {deadline.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC, passed "
                "before this text was rendered. Retry the job to render the rest without a "
                "deadline."
            )
            stopped += fail_open_segments(job_id, OPEN, code=DEADLINE_PASSED, message=message)
    return stopped


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
    columns = {name: changes[name] for name in ("priority", "deadline_at") if name in changes}
    with transaction.atomic():
        # Its row may become final at any moment: what is looked at here is locked first.
        lock_jobs(RenderJob.objects.filter(pk=job_id))
        job = RenderJob.objects.filter(pk=job_id).defer("text").first()
        if job is None:
            return False
        if columns and job.status not in UNFINISHED:
            raise ChangeRefusedError(
                "job_ended",
                f"The job is {job.status}, so its priority and deadline cannot be changed; "
                "its retention can.",
            )
        if "retention_seconds" in changes:
            if job.batch_id is not None:
                raise ChangeRefusedError(
                    "item_of_batch",
                    f"The job is an item of the batch {job.batch_id} and is kept as long as the "
                    "batch; change the batch's retention instead.",
                )
            seconds = columns["retention_seconds"] = changes["retention_seconds"]
            if job.status not in UNFINISHED and job.finished_at is not None:
                columns["expires_at"] = expiry(seconds, job.finished_at)
        if columns:
            RenderJob.objects.filter(pk=job_id).update(**columns, updated_at=leases.database_now())
    return True
