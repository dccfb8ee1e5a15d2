"""Join a finished job's takes, with the pauses between them, into the file that people download."""

from __future__ import annotations

import logging
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from synth import transitions
from synth.made_file import MadeFile
from synth.models import Export, RenderJob, Segment, Take
from ttsweb.leases import Claim
from ttsweb.storage import TEMPORARY_SUFFIX
from ttsweb.work import Kind, enqueue
from voices.objects import delete_objects
from workers import errors
from workers.audio.joined_takes import (
    JoinedTakes,
    MixedRatesError,
    TakeMissingError,
    TakesChangedError,
)
from workers.audio.mastering import AudioOptions, make_file
from workers.audio.writers import FileTooLongError
from workers.batch_zip import ItemsLostError, ItemsOpenError, zip_batch
from workers.book_files.book_audio import BookFileError
from workers.books.export import is_mastered_by_chapters, make_book
from workers.errors import retry_while_away, settle_error
from workers.process.held_claims import HeldClaim
from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)
OPEN_DELAY_SECONDS = 1.0
URGENT_SECONDS, LOOK_SECONDS = 0.5, 0.02  # how long a file lets others pass; how often it looks


class SegmentsOpenError(Exception):
    """Segments were opened again; the file waits for them."""


def assemble(process: WorkerProcess, claims: Sequence[HeldClaim]) -> None:
    """Make the files of claimed exports, and finish, fail or release each of them.

    Short ones come together: their rows are read at once, and written in one transaction.
    """
    files: dict[Claim, MadeFile] = {}
    held = {claim.fence: claim for claim in claims}
    try:
        for claim, make in _read(claims):
            let_urgent_pass(process, claim)
            try:
                if process.handing_back.is_set():
                    break  # the shutdown gives the rest back
                if claim.is_lost:
                    continue
                files[claim.fence] = _make(process, claim, make)
            except Exception as error:  # noqa: BLE001
                settle_error(process, claim, error, _settle_known)
        _finish(process, files, held)
    except Exception as error:  # noqa: BLE001
        for claim in claims:
            settle_error(process, claim, error, _settle_known)
    finally:
        for claim in claims:
            process.held.drop(claim)


def let_urgent_pass(process: WorkerProcess, claim: HeldClaim) -> None:
    """Wait a moment before a file for which nobody waits, while this process has what is urgent."""
    until = time.monotonic() + URGENT_SECONDS
    if claim.priority == RenderJob.Priority.INTERACTIVE:
        return
    while process.held.has_interactive() and time.monotonic() < until:
        if process.stopping.wait(LOOK_SECONDS):
            return


Make = Callable[..., MadeFile]
Find = Callable[[], tuple[Export, Make]]


def _read(claims: Sequence[HeldClaim]) -> Iterator[tuple[HeldClaim, Find]]:
    """Yield each claim with what finds how its file is made, in few queries for all of them."""
    rows = Export.objects.filter(pk__in=[claim.pk for claim in claims])
    rows = rows.select_related("job", "batch").defer("job__text")
    exports = {export.pk: export for export in rows}
    jobs = [one.job.pk for one in exports.values() if one.job is not None and _is_text(one.job)]
    segments: dict[uuid.UUID, list[Segment]] = {}
    if len(claims) > 1:  # short ones
        found = Segment.objects.filter(job__in=jobs).select_related("take")
        for segment in found.order_by("chapter__index", "index"):
            segments.setdefault(segment.job_id, []).append(segment)
    for claim in claims:
        export = exports.get(claim.pk)
        if export is not None:
            found_of = segments.get(export.job_id) if export.job_id is not None else None
            yield claim, partial(_way_of, export, found_of)


def _way_of(export: Export, segments: list[Segment] | None) -> tuple[Export, Make]:
    """Return an export and what makes its file.

    Raises:
        SegmentsOpenError: some are to be rendered first.
    """
    if export.batch is not None:
        return export, partial(zip_batch, batch=export.batch)
    assert export.job is not None  # the table has a constraint
    return export, _joining(export, export.job, segments)


def _is_text(job: RenderJob) -> bool:
    return job.kind == RenderJob.Kind.SPEECH


def _make(process: WorkerProcess, claim: HeldClaim, find: Find) -> MadeFile:
    """Make a file and bring it into the storage."""
    export, make = find()
    process.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="export-", suffix=TEMPORARY_SUFFIX, dir=process.scratch
    ) as folder:
        path = Path(folder) / f"export.{export.format}"
        return make(path, is_unwanted=lambda: claim.is_lost).stored(path, export.format)


def _finish(
    process: WorkerProcess, files: dict[Claim, MadeFile], held: dict[Claim, HeldClaim]
) -> None:
    """Write that the files are there; one that cannot be written does not hold up the others."""
    if not files:
        return
    try:
        settled = retry_while_away(partial(transitions.finish_exports, files))
    except Exception as error:  # noqa: BLE001
        if len(files) == 1:
            settle_error(process, held[next(iter(files))], error, _settle_known)
            return
        for fence, file in files.items():
            _finish(process, {fence: file}, held)
        return
    seconds = sum(files[fence].duration_seconds for fence in settled)
    logger.info("files made: count=%d seconds=%.1f", len(settled), seconds)
    delete_objects([file.key for fence, file in files.items() if fence not in settled])


def _joining(export: Export, job: RenderJob, segments: list[Segment] | None) -> Make:
    """Return what makes a job's file of its takes.

    Raises:
        SegmentsOpenError: some are to be rendered first.
    """
    if segments is None:
        if job.segments.filter(status__in=OPEN).exists():
            raise SegmentsOpenError
        if not _is_text(job) and is_mastered_by_chapters(export):
            return partial(make_book, export=export, job=job)
        rows = Segment.objects.filter(job=job.pk, status=Segment.Status.DONE)
        rows = rows.select_related("take").order_by("chapter__index", "index")
        takes = JoinedTakes(rows, speed=job.speed)
    else:
        if any(segment.status in OPEN for segment in segments):
            raise SegmentsOpenError
        done = [segment for segment in segments if segment.status == Segment.Status.DONE]
        takes = JoinedTakes(done, speed=job.speed)
    return partial(make_file, takes=takes, options=_audio_options(export, job))


def _audio_options(export: Export, job: RenderJob) -> AudioOptions:
    return AudioOptions(
        format=export.format,
        sample_rate=job.sample_rate,
        bit_rate=job.bit_rate,
        loudness=job.loudness,
    )


def _settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    """Settle the errors that only files have."""
    if isinstance(error, TakeMissingError):
        logger.warning(
            "audio of takes is no longer stored, rendering again: segments=%s", error.segment_ids
        )
        _render_again(error.segment_ids)
        return errors.wait(claim)
    if isinstance(error, ItemsLostError):
        logger.warning(
            "files of items are no longer stored, making them again: items=%s", error.item_ids
        )
        return bool(transitions.remake_items(error.batch_id, error.item_ids))
    if isinstance(error, (SegmentsOpenError, ItemsOpenError, TakesChangedError)):
        return errors.wait(claim, seconds=OPEN_DELAY_SECONDS)
    if isinstance(error, MixedRatesError):
        message = f"{error} Submit the job again, so that one model speaks the whole job."
        return errors.fail(claim, "mixed_sample_rates", message)
    if isinstance(error, FileTooLongError):
        return errors.fail(claim, "file_too_long", str(error))
    if isinstance(error, BookFileError):
        return errors.fail(claim, error.code, error.message)
    return None


def _render_again(segment_ids: list[int]) -> None:
    """Queue segments whose take is lost; a damaged object goes, or it would be used again."""
    takes = Take.objects.filter(segments__in=segment_ids)
    delete_objects(list(takes.values_list("audio_key", flat=True)))
    transitions.reopen_segments(segment_ids)
    enqueue(Kind.SEGMENT, segment_ids)
