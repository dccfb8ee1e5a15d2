"""Make the files of books that people ask for, beside the main file of their job."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from synth import transitions
from synth.audiobooks.file_options import Kind, preset_of
from synth.audiobooks.files import BookContent, content_of
from synth.made_file import MadeFile
from synth.models import BookFile, BookSource, RenderJob, Take
from synth.transitions.segment_edits import render_lost_again
from ttsweb.storage import TEMPORARY_SUFFIX
from voices.objects import delete_objects
from workers import errors
from workers.audio.joined_takes import MixedRatesError, TakeMissingError, TakesChangedError
from workers.audio.writers import FileTooLongError
from workers.book_files.book_audio import BookFileError
from workers.book_files.chapter_encodes import Encoder, Encoding
from workers.book_files.chapter_mastering import Mastering
from workers.book_files.sidecars import book_report
from workers.books.export import realtime
from workers.books.file_kinds import FileOrder, Made, make_kind, write_report
from workers.books.job import JobBook, encode_cache, mastering_of, read_job_book
from workers.errors import retry_while_away, settle_errors
from workers.process.held_claims import HeldClaim
from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

OPEN_DELAY_SECONDS = 3.0


class ChaptersOpenError(Exception):
    """Chapters that the file is to have are rendered again; it waits for them."""


def make_book_file(process: WorkerProcess, claim: HeldClaim) -> None:
    """Make a claimed file and finish, fail or release it."""
    with settle_errors(process, claim, _settle_known):
        _make(process, claim)


def _make(process: WorkerProcess, claim: HeldClaim) -> None:
    row = BookFile.objects.select_related("job").get(pk=claim.pk)
    source = BookSource.objects.get(job=row.job_id)
    process.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="book-file-", suffix=TEMPORARY_SUFFIX, dir=process.scratch
    ) as folder:
        path, chapter = Path(folder) / f"made.{row.kind}", row.options.get("chapter")
        content = content_of(source, row.job)
        made = _write(path, row, source, content, claim).stored(path, row.kind)
    finish = partial(
        transitions.finish_book_file,
        claim.fence,
        made,
        content_digest=content.digest(chapter),
        is_partial=not content.is_whole(chapter),
    )
    if retry_while_away(finish):
        logger.info("file of a book made: kind=%s seconds=%.1f", row.kind, made.duration_seconds)
    else:
        delete_objects([made.key])


def _write(
    path: Path, row: BookFile, source: BookSource, content: BookContent, claim: HeldClaim
) -> MadeFile:
    """Make a file in the folder of `path`, of what is there now."""
    started = time.perf_counter()
    job, chapter, folder = row.job, row.options.get("chapter"), path.parent

    def is_unwanted() -> bool:
        # Chapters are encoded elsewhere, for longer than the sweep lets a still folder be.
        os.utime(folder)
        return claim.is_lost

    _check_there(row, content, chapter)
    cache = encode_cache()
    mastering = mastering_of(
        row.options.get("preset") or preset_of(source), _loudness(row, source, job)
    )
    encoder = Encoder(cache, mastering, is_unwanted=is_unwanted)
    # Levels are those of the whole book, also in a file of one chapter.
    indexes = {one.index for one in content.there()}
    book = read_job_book(job, source, cache, indexes=indexes, is_unwanted=is_unwanted)
    if chapter is not None:
        book = book.only(chapter)
    order = FileOrder(
        kind=row.kind,
        options=row.options,
        path=path,
        folder=folder,
        book=book,
        source=source,
        count=len(content.chapters),
        own=_own_encoding(job),
    )
    made = make_kind(order, encoder)
    cache.trim()
    report = _report(made, book, mastering, encoder)
    report["chapters_missing"] = [
        {"index": one.index, "title": one.title}
        for one in content.of(chapter)
        if one.index not in set(book.indexes)
    ]
    report["assembly_realtime"] = realtime(made.seconds, started)
    if row.kind == Kind.REPORT:
        write_report(path, report)
    return MadeFile.of(path, duration_seconds=made.seconds, report=report)


def _check_there(row: BookFile, content: BookContent, chapter: int | None) -> None:
    """Pass if all that the file is to have is there.

    Raises:
        ChaptersOpenError: some of it is still to come.
        BookFileError: it never will be, unless somebody retries the book.
    """
    is_enough = content.is_whole(chapter) or row.is_partial
    if is_enough and content.there(chapter):
        return
    if row.job.status in RenderJob.FINAL:
        raise BookFileError(
            "book_not_finished",
            f"The book is now {row.job.status}, and text that this file needs was not "
            "spoken. Retry the book, then make the file again.",
        )
    raise ChaptersOpenError


def _loudness(row: BookFile, source: BookSource, job: RenderJob) -> float | None:
    """Return the loudness asked for; kinds that take none are as the book's own file."""
    if "loudness" in row.options:
        found: float | None = row.options["loudness"]
        return found
    return None if preset_of(source) == "acx" else job.loudness


def _own_encoding(job: RenderJob) -> Encoding:
    """Return how the chapters of the job's M4B are, or would be, encoded."""
    if job.format != "m4b":
        return Encoding("aac")
    return Encoding("aac", bit_rate=job.bit_rate, sample_rate=job.sample_rate)


def _report(made: Made, book: JobBook, mastering: Mastering, encoder: Encoder) -> dict[str, Any]:
    """Return what was measured, with chapters by their places in the book."""
    report = book_report(made.chapters, mastering)
    for row, index in zip(report["chapters"], book.indexes, strict=True):
        row["index"] = index
    report["failed_chapters"] = [one["index"] for one in report["chapters"] if not one["passed"]]
    return {
        **report,
        "voices": list(book.voices),
        "chapters_encoded": encoder.encoded,
        "chapters_reused": encoder.reused,
        "cover_note": book.cover_note,
        **made.more,
    }


def _settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    """Settle the errors that only files of books have."""
    if isinstance(error, TakeMissingError):
        return _settle_lost_takes(claim, error)
    if isinstance(error, (ChaptersOpenError, TakesChangedError)):
        return errors.wait(claim, seconds=OPEN_DELAY_SECONDS)
    if isinstance(error, BookFileError):
        return errors.fail(claim, error.code, error.message)
    if isinstance(error, MixedRatesError):
        message = f"{error} Start the book again, so that one model speaks the whole book."
        return errors.fail(claim, "mixed_sample_rates", message)
    if isinstance(error, FileTooLongError):
        return errors.fail(claim, "file_too_long", str(error))
    return None


def _settle_lost_takes(claim: HeldClaim, error: TakeMissingError) -> bool:
    """Have takes rendered again whose audio is gone; the file waits for them."""
    logger.warning(
        "audio of takes is no longer stored, rendering again: segments=%s", error.segment_ids
    )
    takes = Take.objects.filter(segments__in=error.segment_ids)
    keys = list(takes.values_list("audio_key", flat=True))
    delete_objects(keys)  # a damaged one would be used again
    if render_lost_again(error.segment_ids):
        return errors.wait(claim, seconds=OPEN_DELAY_SECONDS)
    message = (
        "Some of the book's audio is no longer stored, and the book is cancelled. Retry the "
        "book, then make the file again."
    )
    return errors.fail(claim, "takes_lost", message)
