"""Let the pieces for listeners go: rows first, then objects. Safe to run twice, anywhere."""

from __future__ import annotations

import contextlib
import logging
import uuid

from django.conf import settings
from django.core.files.storage import default_storage

from synth.models import LiveChunk, RenderJob
from synth.transitions.live import end_live
from voices.objects import delete_objects
from workers.rendering.live_chunks import FOLDER

logger = logging.getLogger(__name__)

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
        folders, _ = default_storage.listdir(FOLDER)
    except FileNotFoundError:
        return 0
    names = {job_id: name for name in folders if (job_id := _as_uuid(name)) is not None}
    heard = set(
        RenderJob.objects.filter(pk__in=list(names), live_requested_at__isnull=False)
        .order_by()
        .values_list("pk", flat=True)
    )
    count = 0
    for job_id in set(names) - heard:
        folder = f"{FOLDER}/{names[job_id]}"
        with contextlib.suppress(OSError):  # somebody else removes it
            _, files = default_storage.listdir(folder)
            delete_objects([f"{folder}/{name}" for name in files])
            default_storage.delete(folder)
            count += len(files)
    return count


def _as_uuid(name: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(name)
    except ValueError:
        return None
