"""Join a finished job's takes, with the pauses between them, into the file that people download."""

from __future__ import annotations

import logging
import tempfile
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

from django.conf import settings
from django.core.files import File
from django.core.files.storage import default_storage

from synth import transitions
from synth.models import Export, Segment, Take
from synth.transitions import Claim
from synth.transitions.batches import ZIP
from ttsweb.storage import TEMPORARY_SUFFIX
from voices.objects import delete_objects
from workers.audio_writers import FileTooLongError
from workers.batch_zip import ItemsLostError, ItemsOpenError, zip_batch
from workers.book_export import is_mastered_by_chapters, make_book
from workers.book_files.book_audio import BookFileError
from workers.held_claims import HeldClaim
from workers.joined_takes import (
    JoinedTakes,
    MixedRatesError,
    TakeMissingError,
    TakesChangedError,
)
from workers.mastering import ExportUnwantedError, FileWish, MadeFile, make_file
from workers.outages import is_disk_full, is_outage, outlast
from workers.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
OUTAGE_DELAY_SECONDS = 5.0
OPEN_DELAY_SECONDS = 1.0
UNEXPECTED_MESSAGE = (
    "Making the file failed in a way nobody foresaw; the worker's log has the traceback."
)


class SegmentsOpenError(Exception):
    """Segments were opened again; the file waits for them."""


def assemble(process: WorkerProcess, claim: HeldClaim) -> None:
    """Make a claimed export's file and finish, fail or release it."""
    try:
        _assemble(process, claim)
    except Exception as error:
        if not process.handing_back.is_set():
            outlast(partial(_settle_error, process, claim, error))
    finally:
        process.held.drop(claim)


def _assemble(process: WorkerProcess, claim: HeldClaim) -> None:
    export = Export.objects.get(pk=claim.pk)
    make = partial(zip_batch, batch=export.job) if export.format == ZIP else _joining(export)
    process.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="export-", suffix=TEMPORARY_SUFFIX, dir=process.scratch
    ) as folder:
        path = Path(folder) / f"export.{export.format}"
        made = make(path, is_unwanted=lambda: claim.is_lost)
        name = f"exports/{made.sha256}/{uuid.uuid4().hex}.{export.format}"
        with path.open("rb") as file:
            key = default_storage.save(name, File(file))
    finish = partial(
        transitions.finish_export,
        Claim(claim.pk, claim.token),
        key=key,
        size_bytes=made.size_bytes,
        sha256=made.sha256,
        duration_seconds=made.seconds,
        facts=made.facts,
    )
    if outlast(finish):
        logger.info("file made: format=%s seconds=%.1f", export.format, made.seconds)
    else:
        delete_objects([key])


def _joining(export: Export) -> Callable[..., MadeFile]:
    """Return what makes a job's file of its takes.

    Raises:
        SegmentsOpenError: some are to be rendered first.
    """
    if export.job.segments.filter(status__in=OPEN).exists():
        raise SegmentsOpenError
    if is_mastered_by_chapters(export):
        return partial(make_book, export=export)
    segments = Segment.objects.filter(job=export.job_id, status=Segment.Status.DONE)
    segments = segments.select_related("take").order_by("chapter__index", "index")
    takes = JoinedTakes(segments, speed=export.job.speed)
    return partial(make_file, takes=takes, wish=_wish(export))


def _wish(export: Export) -> FileWish:
    job = export.job
    return FileWish(
        format=export.format,
        sample_rate=job.sample_rate,
        bit_rate=job.bit_rate,
        loudness=job.loudness,
    )


def _settle_error(process: WorkerProcess, claim: HeldClaim, error: Exception) -> bool:
    """Decide what an error means for the export; every step is fenced and may be repeated."""
    fence = Claim(claim.pk, claim.token)
    if isinstance(error, (Export.DoesNotExist, ExportUnwantedError)):
        return False
    if isinstance(error, TakeMissingError):
        logger.warning("audio of takes is gone, rendering again: segments=%s", error.segment_ids)
        _render_again(error.segment_ids)
        return transitions.release_export(fence)
    if isinstance(error, ItemsLostError):
        logger.warning("files of items are gone, making them again: items=%s", error.item_ids)
        return bool(transitions.remake_items(error.batch_id, error.item_ids))
    if isinstance(error, (SegmentsOpenError, ItemsOpenError, TakesChangedError)):
        return transitions.release_export(fence, delay_seconds=OPEN_DELAY_SECONDS)
    if isinstance(error, MixedRatesError):
        message = f"{error} Submit the job again, so that one model speaks all of it."
        return transitions.fail_export(fence, code="mixed_sample_rates", message=message)
    if isinstance(error, FileTooLongError):
        return transitions.fail_export(fence, code="file_too_long", message=str(error))
    if isinstance(error, BookFileError):
        return transitions.fail_export(fence, code=error.code, message=error.message)
    if is_outage(error):
        logger.warning("export waits, not its fault: %s", error)
        if is_disk_full(error):
            process.pause_claims("The disk is full: no file can be made.")
        return transitions.release_export(fence, delay_seconds=OUTAGE_DELAY_SECONDS)
    logger.error("export failed unexpectedly", exc_info=error)
    attempts = Export.objects.filter(pk=claim.pk).values_list("attempts", flat=True).first()
    if attempts is not None and attempts >= settings.MAX_ATTEMPTS:
        return transitions.fail_export(fence, code="unexpected_error", message=UNEXPECTED_MESSAGE)
    return transitions.release_export(fence, delay_seconds=2.0, spend_attempt=True)


def _render_again(segment_ids: list[int]) -> None:
    """Queue segments whose take is lost; a damaged object goes, or it would be used again."""
    takes = Take.objects.filter(segments__in=segment_ids)
    delete_objects(list(takes.values_list("audio_key", flat=True)))
    transitions.reopen_segments(segment_ids)
    transitions.enqueue_segments(segment_ids)
