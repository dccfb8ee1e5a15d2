"""Let go of what is no longer wanted: exports, takes, inline references, jobs.

Rows go first, in a transaction; their objects go after it has committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import QuerySet

from synth.models import BookFile, Export, LiveChunk, RenderJob, Segment, Take
from synth.signals import item_deleted
from ttsweb.storage import delete_objects_on_commit
from voices.models import ReferenceClip, StoredClip, VoiceVersion
from voices.objects import collect_clips, drop_references

ITEMS_AT_ONCE = 200  # of a batch, in one transaction


def lock_jobs(jobs: QuerySet[RenderJob]) -> list[uuid.UUID]:
    """Lock the rows of jobs, in one order; call inside a transaction, before rows below them.

    Every step that changes a job locks it first. In any other order two steps could each hold what
    the other one waits for, and PostgreSQL would fail one of them.
    """
    return list(jobs.select_for_update(of=("self",)).order_by("pk").values_list("pk", flat=True))


def update_jobs(jobs: QuerySet[RenderJob], **columns: Any) -> int:
    """Update several jobs in one step; return how many.

    One UPDATE locks its rows in any order, so they are locked in the one of all steps first; where
    the database has one writer at a time there is nothing to lock.
    """
    if not connection.features.has_select_for_update:
        return jobs.update(**columns)
    with transaction.atomic():
        return RenderJob.objects.filter(pk__in=lock_jobs(jobs)).update(**columns)


def drop_exports(rows: QuerySet[Export]) -> None:
    """Delete exports and their files; call inside a transaction."""
    keys = [key for key in rows.values_list("key", flat=True) if key]
    rows.delete()
    delete_objects_on_commit(keys)


def drop_book_files(rows: QuerySet[BookFile]) -> None:
    """Delete files of books; call inside a transaction."""
    keys = [key for key in rows.select_for_update().values_list("key", flat=True) if key]
    rows.delete()
    delete_objects_on_commit(keys)


def drop_inline_references(job_ids: Sequence[uuid.UUID]) -> None:
    """Let go of the clips that came with ended jobs, unless TTS_KEEP_INLINE_REFERENCES is on.

    Audio that another unfinished job's reference or a voice shares stays until its last user is
    gone; the codes stay as long as a job does that the clip came with.
    """
    if settings.KEEP_INLINE_REFERENCES:
        return
    clips = ReferenceClip.objects.filter(
        version__voice__isnull=True, version__pinned_by__job__in=job_ids
    )
    stored = list(clips.values_list("stored_id", flat=True))
    encoded = StoredClip.objects.filter(pk__in=stored, codes__encoded_at__isnull=False)
    clips.exclude(stored__in=encoded).delete()
    if stored:
        transaction.on_commit(partial(collect_clips, stored))


def delete_takes(take_ids: Collection[uuid.UUID]) -> None:
    """Delete those of some takes that no segment has any more; call inside a transaction."""
    unused = Take.objects.filter(segments__isnull=True, candidate_of__isnull=True)
    orphans = unused.filter(pk__in=take_ids)
    keys = [key for pair in orphans.values_list("codes_key", "audio_key") for key in pair]
    orphans.delete()
    delete_objects_on_commit(keys)


def delete_job(job: RenderJob) -> None:
    """Delete a job in any state, its files, and the takes that no other job uses.

    Where an item of a batch goes alone, the batch is counted again.
    """
    with transaction.atomic():
        delete_jobs([job.pk])
        if job.batch_id is not None:
            item_deleted.send(RenderJob, batch_id=job.batch_id)


def delete_jobs(job_ids: Sequence[uuid.UUID]) -> None:
    """Delete some jobs with all that is theirs alone."""
    with transaction.atomic():
        lock_jobs(RenderJob.objects.filter(pk__in=job_ids))
        inline = VoiceVersion.objects.filter(voice__isnull=True, pinned_by__job__in=job_ids)
        inline_ids = list(inline.values_list("pk", flat=True))
        segments = Segment.objects.filter(job__in=job_ids)
        spoken = segments.filter(take__isnull=False).order_by()
        takes = set(spoken.values_list("take_id", flat=True))
        compared = Take.objects.filter(candidate_of__job__in=job_ids)
        takes |= set(compared.values_list("pk", flat=True))
        drop_exports(Export.objects.filter(job__in=job_ids))
        drop_book_files(BookFile.objects.filter(job__in=job_ids))
        heard = LiveChunk.objects.filter(segment__job__in=job_ids).exclude(key="").order_by()
        delete_objects_on_commit(list(heard.values_list("key", flat=True)))
        RenderJob.objects.filter(pk__in=job_ids).delete()
        delete_takes(takes)
        unpinned = VoiceVersion.objects.filter(pk__in=inline_ids, pinned_by__isnull=True)
        drop_references(unpinned)
        unpinned.delete()
