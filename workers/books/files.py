"""Make the files of books: the main file of a job, and those that people ask for beside it."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from django.conf import settings
from django.db.models import Q

from synth.audio.writers import FileTooLongError
from synth.audiobooks.files import BookContent, Kind, content_of, preset_of
from synth.formats import BOOK_FILES
from synth.models import BookFile, BookSource, Export, RenderJob, Take
from synth.transitions.files import finish_book_file
from synth.transitions.segment_edits import render_lost_again
from ttsweb.storage import TEMPORARY_SUFFIX, MadeFile
from voices.objects import delete_objects
from workers import errors
from workers.audio.joined_takes import MixedRatesError, TakeMissingError, TakesChangedError
from workers.audio.mastering import MAX_PEAKS, TARGET_TOLERANCE_LU
from workers.book_files.book_audio import BookAudio, BookFileError
from workers.book_files.chapter_encodes import ChapterFile, EncodeCache, Encoder, Encoding
from workers.book_files.chapter_files import make_one_file
from workers.book_files.chapter_mastering import PRESETS, STANDARD, Mastering
from workers.book_files.m4b import Mark, marks_of
from workers.book_files.sidecars import book_report, chapter_checks
from workers.books.file_kinds import FileWork, make_kind
from workers.books.job import read_job_book
from workers.errors import retry_while_away, settle_errors
from workers.process.held_claims import HeldClaim
from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)


def peaks_of_book(chapters: Sequence[ChapterFile], *, most: int) -> list[int]:
    """Return at most `most` levels of equal parts of the chapters, one after the other."""
    total = sum(chapter.num_samples for chapter in chapters)
    count = min(most, total)
    found = np.zeros(count, dtype=np.int64)
    start = 0
    for chapter in chapters:
        parts = len(chapter.peaks)
        edges = start + np.arange(parts + 1, dtype=np.int64) * chapter.num_samples // max(1, parts)
        first = edges[:-1] * count // max(1, total)
        last = (np.maximum(edges[1:], edges[:-1] + 1) - 1) * count // max(1, total)
        for level, low, high in zip(chapter.peaks, first, last, strict=True):
            found[low : high + 1] = np.maximum(found[low : high + 1], level)
        start += chapter.num_samples
    return [int(level) for level in found]


def is_mastered_by_chapters(export: Export) -> bool:
    """Return whether a job's file is made of mastered chapters, or of its takes as they come."""
    form = BOOK_FILES.get(export.format)
    if form is None or form.spliced_from:
        return form is not None
    source = _source_of(export)
    return source is not None and bool(source.production.get("preset"))


def _source_of(export: Export) -> BookSource | None:
    """Return the book that a job speaks, or a sample of it."""
    own = Q(job=export.job_id) | Q(sample_job=export.job_id)
    return BookSource.objects.filter(own).first()


def make_book(
    path: Path, export: Export, job: RenderJob, *, is_unwanted: Callable[[], bool]
) -> MadeFile:
    """Write a job's file to `path`; chapters that were encoded before are not encoded again.

    Raises:
        EncodeUnwantedError: nobody waits for the file any more.
        TakeMissingError, TakesChangedError, MixedRatesError, BookFileError, OSError: as reading and
            writing raise them.
    """
    started = time.perf_counter()
    source = _source_of(export)
    preset = preset_of(source) if source else STANDARD.name
    encoder = _encoder(preset, job.loudness, is_unwanted)
    book = read_job_book(job, source, encoder)
    form = BOOK_FILES[export.format].chapters_as
    encoding = Encoding(form, bit_rate=job.bit_rate, sample_rate=job.sample_rate)
    chapters = make_one_file(path, book, encoder, encoding)
    encoder.cache.trim()
    marks = marks_of(chapters)
    rate, size = chapters[0].sample_rate, path.stat().st_size
    seconds = marks[-1].end / rate
    measured = _measure_file(chapters, marks, encoder.mastering, size=size, seconds=seconds)
    return MadeFile.of(
        path,
        duration_seconds=seconds,
        report=measured | _report_of_work(book, encoder, seconds, started),
        peaks=peaks_of_book(chapters, most=MAX_PEAKS),
        cues=[
            (span.segment_id, mark.start + span.start, mark.start + span.end)
            for mark, chapter in zip(marks, chapters, strict=True)
            for span in chapter.spans
        ],
        sample_rate=rate,
    )


def _encoder(preset: str, loudness: float | None, is_unwanted: Callable[[], bool]) -> Encoder:
    """Return an encoder into the cache that all books share; a loudness replaces the preset."""
    mastering = PRESETS[preset]
    if loudness is not None:
        mastering = replace(STANDARD, name="asked", target_lufs=loudness)
    cache = EncodeCache(Path(settings.DATA_DIR) / "cache" / "chapters")
    return Encoder(cache, mastering, is_unwanted=is_unwanted)


def _report_of_work(
    book: BookAudio, encoder: Encoder, seconds: float, started: float
) -> dict[str, Any]:
    """Return what a file took to be made since `started` (perf_counter), and of what."""
    elapsed = time.perf_counter() - started
    return {
        "chapters_encoded": encoder.encoded,
        "chapters_reused": encoder.reused,
        "voices": list(book.voices),
        "assembly_realtime": round(seconds / elapsed, 2) if elapsed > 0 else None,
        "cover_note": book.cover_note,
    }


def _measure_file(
    chapters: Sequence[ChapterFile],
    marks: Sequence[Mark],
    mastering: Mastering,
    *,
    size: int,
    seconds: float,
) -> dict[str, Any]:
    """Return what was measured: of the whole file, and of each chapter."""
    rows = [
        _chapter_row(mark, chapter, mastering)
        for mark, chapter in zip(marks, chapters, strict=True)
    ]
    loud = [row["loudness_lufs"] for row in rows if row["loudness_lufs"] is not None]
    target = mastering.target_lufs
    is_reached = (
        all(abs(one - target) <= TARGET_TOLERANCE_LU for one in loud)
        if target is not None
        else all(row["passed"] for row in rows)
    )
    return {
        "seconds": seconds,
        "sample_rate": chapters[0].sample_rate,
        "channels": 1,
        "bit_rate": round(8 * size / seconds) if seconds else None,
        "loudness_lufs": round(sum(loud) / len(loud), 2) if loud else None,
        "true_peak_dbtp": max(row["true_peak_dbtp"] for row in rows),
        "target_lufs": target,
        "target_reached": is_reached,
        "gain_db": round(sum(row["gain_db"] for row in rows) / len(rows), 2),
        "limiter_db": max(row["limiter_db"] for row in rows),
        "note": ""
        if is_reached
        else "Some chapters do not reach the target; the report names them.",
        "preset": mastering.name,
        "chapters": rows,
    }


def _chapter_row(mark: Mark, chapter: ChapterFile, mastering: Mastering) -> dict[str, Any]:
    checks = list(chapter_checks(chapter, mastering))
    rate = chapter.sample_rate
    return {
        "title": mark.title,
        "start_seconds": mark.start / rate,
        "seconds": (mark.end - mark.start) / rate,
        "rms_dbfs": chapter.levels.rms_dbfs,
        "floor_dbfs": chapter.levels.floor_dbfs,
        "true_peak_dbtp": chapter.levels.true_peak_dbtp,
        "loudness_lufs": chapter.levels.loudness_lufs,
        "gain_db": chapter.gain_db,
        "limiter_db": round(chapter.limiter_db, 2),
        "passed": all(check.is_passed for check in checks),
        "failures": [check.sentence for check in checks if not check.is_passed],
    }


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
        made = _write(path, row, source, content, claim)
        made = retry_while_away(partial(made.stored, path, row.kind))
    finish = partial(
        finish_book_file,
        claim,
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
    job, chapter = row.job, row.options.get("chapter")

    def is_unwanted() -> bool:
        # Chapters are encoded elsewhere, for longer than the sweep lets a still folder be.
        os.utime(path.parent)
        return claim.is_lost

    _check_there(row, content, chapter)
    # Kinds that take no loudness are as the book's own file.
    usual = None if preset_of(source) == "acx" else job.loudness
    preset = row.options.get("preset") or preset_of(source)
    encoder = _encoder(preset, row.options.get("loudness", usual), is_unwanted)
    # Levels are those of the whole book, also in a file of one chapter.
    indexes = {one.index for one in content.there()}
    book = read_job_book(job, source, encoder, indexes=indexes)
    if chapter is not None:
        only = tuple(one for one in book.chapters if one.index == chapter)
        book = replace(book, chapters=only)
    work = FileWork(row, source, path, book, encoder)
    chapters = make_kind(work)
    encoder.cache.trim()
    seconds = sum(one.num_samples for one in chapters) / chapters[0].sample_rate
    there = {one.index for one in book.chapters}
    report = {
        **book_report(chapters, encoder.mastering),
        **_report_of_work(book, encoder, seconds, started),
        **work.notes,
        "chapters_missing": [
            {"index": one.index, "title": one.title}
            for one in content.of(chapter)
            if one.index not in there
        ],
    }
    if row.kind == Kind.REPORT:
        path.write_text(json.dumps(report, ensure_ascii=False, indent=2), encoding="utf-8")
    return MadeFile.of(path, duration_seconds=seconds, report=report)


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
