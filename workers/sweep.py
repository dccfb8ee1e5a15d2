"""Free what was lost: expired leases, unheard messages, leftovers. Safe to run twice, anywhere.

Every clock here is a column. Of all workers one moves `SweepTurn` forward and does the round.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import os
import shutil
import time
import uuid
from operator import itemgetter
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.storage import default_storage
from django.db import transaction
from django.db.models import Q

from synth.accounts.sign_in import forget_audit, forget_tries
from synth.audiobooks.start import start_wanted_books
from synth.batches.turns import advance_batches
from synth.batches.turns import delete as delete_batch
from synth.jobs.removal import delete_job, drop_inline_references, lock_jobs
from synth.live.watcher import end_live
from synth.models import Batch, LiveChunk, RenderJob, WorkerStatus
from synth.transitions.batches import settle_stalled_batches
from synth.transitions.jobs import (
    close_cancelled_jobs,
    fail_jobs_of_failed_versions,
    stop_overdue_jobs,
    stop_silenced_jobs,
)
from synth.webhooks import forget_webhooks
from ttsweb import leases
from ttsweb.storage import TEMPORARY_SUFFIX, delete_objects
from ttsweb.work import send
from voices import transitions as voice_transitions
from voices.models import CacheEviction, ClipCodes, ReferenceClip, StoredClip
from voices.objects import collect_clips, forget_transcripts
from workers.kinds import WORKS, open_turn, postpone_turn, settle_lost, take_turn
from workers.objects import delete_orphans
from workers.process.status import FOLDER, held_if_ended
from workers.rendering.live_writer import LIVE_FOLDER

ROWS_AT_ONCE = 1000


def clean() -> int:
    """Remove the pieces of jobs that ended and are not listened to; return how many."""
    end_live(keep_seconds=settings.LIVE_KEEP_SECONDS)
    count = 0
    unheard = LiveChunk.objects.filter(segment__job__live_requested_at__isnull=True).order_by()
    while found := dict(unheard.values_list("pk", "key")[:ROWS_AT_ONCE]):
        LiveChunk.objects.filter(pk__in=list(found)).delete()
        delete_objects([key for key in found.values() if key])
        count += len(found)
    if count:
        logger.info("live audio removed: pieces=%d", count)
    return count


def clean_folders() -> int:
    """Remove objects that no row lists, of jobs that are gone or not listened to; return how many.

    A worker that was killed between the two leaves one behind.
    """
    try:
        folders, _ = default_storage.listdir(LIVE_FOLDER)
    except FileNotFoundError:
        return 0
    names = {}
    for name in folders:
        with contextlib.suppress(ValueError):
            names[uuid.UUID(name)] = name
    jobs = RenderJob.objects.filter(pk__in=list(names), live_requested_at__isnull=False).order_by()
    count = 0
    for job_id in set(names) - set(jobs.values_list("pk", flat=True)):
        folder = f"{LIVE_FOLDER}/{names[job_id]}"
        with contextlib.suppress(OSError):  # somebody else removes it
            _, files = default_storage.listdir(folder)
            delete_objects([f"{folder}/{name}" for name in files])
            default_storage.delete(folder)
            count += len(files)
    return count


MAX_PER_ROUND = 500
# Deleting must not keep the sweep from freeing what dead workers held; the next round goes on.
ROUND_SECONDS = 5.0


def delete_expired_jobs(*, most: int = MAX_PER_ROUND, within_seconds: float = ROUND_SECONDS) -> int:
    """Delete ended jobs and batches past their `expires_at`, the longest overdue first.

    Items of a batch go with their batch. A download that runs goes on to its end: its file is open.

    Returns:
        How many.
    """
    until, now = time.monotonic() + within_seconds, leases.database_now()
    jobs = RenderJob.objects.filter(expires_at__lte=now, status__in=RenderJob.FINAL, batch=None)
    batches = Batch.objects.filter(expires_at__lte=now, ended_at__isnull=False)
    due = [
        (expires_at, pk, rows)
        for rows in (jobs, batches)
        for pk, expires_at in rows.order_by("expires_at").values_list("pk", "expires_at")[:most]
    ]
    count = 0
    for _, pk, rows in sorted(due, key=itemgetter(0))[:most]:
        still: Any = rows.filter(pk=pk)  # not retried, kept longer or deleted in this moment
        if rows is batches:  # in steps of its own: one transaction would hold up all writers
            row = still.first()
            if row is not None:
                delete_batch(row)
        else:
            still = still.defer("text")
            with transaction.atomic():
                row = still.first() if lock_jobs(still) else None
                if row is not None:
                    delete_job(row)
        count += row is not None
        if time.monotonic() > until:
            break
    if count:
        logger.info("expired jobs deleted: jobs=%d", count)
    return count


logger = logging.getLogger(__name__)

SWEEP, TIDY = "sweep", "tidy"
OVER = (WorkerStatus.State.STOPPED, WorkerStatus.State.FAILED)
RESENT_ROWS = 64  # of a kind: enough to wake every worker; their pumps find the rest
TEMPORARY_LEASES = 10  # a temporary file this many leases old has no living writer
SILENT_LEASES = 10  # a worker that said nothing for so long is not there any more
KEPT_WORKERS = dt.timedelta(days=1)  # a row of one that is gone, for whoever asks what it said
CLIP_GRACE = dt.timedelta(hours=1)  # an upload may be stored before its rows are written
EVICTION_AGE = dt.timedelta(hours=1)


def start_clock() -> None:
    """Have the first round of all know an outage before it, before this worker claims anything."""
    open_turn(SWEEP)


def sweep_if_due() -> bool:
    """Do a round if it is due and no other worker does it; return whether it was done here."""
    pause = max(settings.SWEEP_SECONDS, TEMPORARY_LEASES * settings.LEASE_SECONDS)
    if take_turn(TIDY, seconds=pause) is not None:
        tidy()
    # Leases end by a moment before the turn: a clock that jumps after it makes none look lost.
    now = leases.database_now()
    overdue = take_turn(SWEEP, seconds=settings.SWEEP_SECONDS)
    if overdue is None:
        return False
    # After a time without sweeps the database was away, for living workers too: they renew first.
    grace = settings.LEASE_SECONDS / 2  # two beats of a living worker
    if overdue < dt.timedelta(seconds=grace):
        free_lost(leases.expired(now))
    else:
        postpone_turn(SWEEP, seconds=max(settings.SWEEP_SECONDS, grace))
    close_cancelled_jobs()
    stop_overdue_jobs()
    stop_silenced_jobs()
    fail_jobs_of_failed_versions()
    settle_stalled_batches()
    start_wanted_books()
    advance_batches()
    resend()
    clean()
    delete_expired_jobs()
    forget_transcripts()
    return True


def free_lost(lost: Q) -> int:
    """Give back, or fail after too many losses, the claims that meet `lost`; return how many."""
    freed = {kind: settle_lost(kind, lost) for kind in WORKS}
    for kind, count in freed.items():
        if count:
            logger.warning("lost claims freed: %s=%d", kind.plural, count)
    return sum(freed.values())


def free_own(worker: str) -> int:
    """Give back what an earlier process of this name held: it is dead, since the name is ours."""
    for row in ClipCodes.objects.filter(claimed_by=worker, claim_token__isnull=False):
        if row.claim_token is not None:
            leases.hand_back(ClipCodes, leases.Claim(row.pk, row.claim_token))
    return free_lost(Q(claimed_by=worker))


def free_ended() -> int:
    """Give back at once what processes of this host held that are gone; return how many claims.

    Those of other hosts are found by their leases.
    """
    freed = 0
    for row in WorkerStatus.objects.exclude(state__in=OVER):
        with held_if_ended(settings.DATA_DIR / FOLDER, row.name, row.run) as is_ended:
            if is_ended:
                logger.warning("a worker's process has ended: worker=%s", row.name)
                freed += free_own(row.name)
                ended = WorkerStatus.objects.filter(pk=row.pk, run=row.run)
                end = "The worker's process ended unexpectedly."
                ended.update(state=WorkerStatus.State.STOPPED, detail=end)
    return freed


def resend() -> int:
    """Send again what was sent long ago and is still unclaimed; stop at the first failed send.

    Returns:
        How many rows were sent.
    """
    now = leases.database_now()
    cutoff = now - dt.timedelta(seconds=settings.RESEND_SECONDS)
    old = Q(sent_at__lt=cutoff) | Q(sent_at__isnull=True, not_before__lt=cutoff)
    count = 0
    for kind, work in WORKS.items():
        pks = list(work.waiting().filter(old).values_list("pk", flat=True)[:RESENT_ROWS])
        if not pks:
            continue
        if not send(kind, len(pks)):
            break
        count += kind.model._default_manager.filter(pk__in=pks).update(sent_at=now)
    return count


def tidy() -> None:
    """Remove leftovers: temporary files, unused clips, old evictions, rows of vanished workers."""
    now = leases.database_now()
    CacheEviction.objects.filter(created_at__lt=now - EVICTION_AGE).delete()
    silence = dt.timedelta(seconds=SILENT_LEASES * settings.LEASE_SECONDS)
    silent = WorkerStatus.objects.filter(last_seen_at__lt=now - silence).exclude(state__in=OVER)
    end = "The worker stopped reporting without an orderly end."
    silent.update(state=WorkerStatus.State.STOPPED, detail=end)
    forget_workers(before=now - KEPT_WORKERS)
    drop_leftover_references()
    forget_webhooks()
    forget_audit()
    forget_tries()
    clean_folders()
    unused = StoredClip.objects.filter(uses__isnull=True, created_at__lt=now - CLIP_GRACE)
    collect_clips(unused.values_list("pk", flat=True))
    for folder in (settings.STORAGE_DIR, settings.DATA_DIR / "tmp", settings.DATA_DIR / "cache"):
        if folder is not None:  # a bucket has none of its own
            remove_old_temporaries(Path(folder))
    delete_orphans()


def forget_workers(*, before: dt.datetime) -> None:
    """Remove the rows of workers that are gone: where each has a new name, they would pile up.

    The last one with an engine stays: from it follows which voices fit and which takes are there.
    """
    said = WorkerStatus.objects.exclude(engine_class={}).order_by("-last_seen_at")
    newest = list(said.values_list("pk", flat=True)[:1])
    gone = WorkerStatus.objects.filter(state__in=OVER, last_seen_at__lt=before)
    gone.exclude(pk__in=newest).delete()


def drop_leftover_references() -> None:
    """Let go of clips that came with jobs which ended while nobody could remove them."""
    if settings.KEEP_INLINE_REFERENCES:
        return
    spoken = ReferenceClip.objects.filter(version__voice__isnull=False)
    clips = ReferenceClip.objects.filter(
        version__voice__isnull=True, version__pinned_by__job__status__in=RenderJob.FINAL
    ).exclude(Q(stored__original_key="") | Q(stored__in=spoken.values("stored")))
    for job_id in set(clips.values_list("version__pinned_by__job_id", flat=True)):
        drop_inline_references([job_id])


def remove_old_temporaries(folder: Path) -> int:
    """Remove temporary files and folders that no living process writes; return how many."""
    oldest = time.time() - TEMPORARY_LEASES * settings.LEASE_SECONDS
    count = 0
    for parent, folders, files in os.walk(folder):
        for name in [one for one in (*folders, *files) if one.endswith(TEMPORARY_SUFFIX)]:
            path = Path(parent) / name
            with contextlib.suppress(FileNotFoundError):  # its writer has just finished
                inside = path.iterdir() if path.is_dir() else ()
                if max(one.stat().st_mtime for one in (path, *inside)) > oldest:
                    continue
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                count += 1
        folders[:] = [name for name in folders if not name.endswith(TEMPORARY_SUFFIX)]
    return count


def reopen_stale(worker: str, codec_fingerprint: str) -> int:
    """Have voices of another codec encoded again, unless a living worker still speaks that codec.

    Without that condition two workers of different checkpoints would undo each other's work. One
    that loads its engine lives: it may have let go of it for want of work, and will speak again.
    """
    now = leases.database_now()
    silence = dt.timedelta(seconds=2 * settings.LEASE_SECONDS)
    others = WorkerStatus.objects.filter(
        state__in=(*WorkerStatus.SERVING, WorkerStatus.State.WARMING),
        last_seen_at__gt=now - silence,
    ).exclude(pk=worker)
    if others.exclude(codec_fingerprint__in=("", codec_fingerprint)).exists():
        return 0
    count = voice_transitions.reopen_stale_versions(codec_fingerprint)
    if count:
        logger.info("encoding voices of another codec again: versions=%d", count)
    return count
