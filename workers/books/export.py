"""Make the main file of a book's job: chapters from its takes, with marks, cover and tags."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from django.db.models import Q

from synth.audiobooks.file_options import preset_of
from synth.formats import BOOK_FILES
from synth.made_file import MadeFile
from synth.models import BookSource, Export, RenderJob
from workers.audio.mastering import MAX_PEAKS, TARGET_TOLERANCE_LU, ExportUnwantedError
from workers.book_files.chapter_encodes import ChapterFile, Encoder, EncodeUnwantedError, Encoding
from workers.book_files.chapter_files import make_one_file
from workers.book_files.chapter_mastering import Mastering
from workers.book_files.m4b import Mark, make_m4b
from workers.book_files.sidecars import chapter_checks
from workers.books.job import JobBook, encode_cache, mastering_of, read_job_book


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
        ExportUnwantedError: nobody waits for the file any more.
        TakeMissingError, TakesChangedError, MixedRatesError, BookFileError, OSError: as reading and
            writing raise them.
    """
    started = time.perf_counter()
    source = _source_of(export)
    mastering = mastering_of(preset_of(source) if source else "standard", job.loudness)
    cache = encode_cache()
    encoder = Encoder(cache, mastering, is_unwanted=is_unwanted)
    try:
        book = read_job_book(job, source, cache, is_unwanted=is_unwanted)
        chapters, marks = _write(path, export.format, book, encoder, job)
    except EncodeUnwantedError as error:
        raise ExportUnwantedError from error
    cache.trim()
    rate, size = chapters[0].sample_rate, path.stat().st_size
    seconds = marks[-1].end / rate
    report = {
        **_measure_file(chapters, marks, mastering, size=size, seconds=seconds),
        "chapters_encoded": encoder.encoded,
        "chapters_reused": encoder.reused,
        "voices": list(book.voices),
        "assembly_realtime": realtime(seconds, started),
        "cover_note": book.cover_note,
    }
    return MadeFile.of(
        path,
        duration_seconds=seconds,
        report=report,
        peaks=peaks_of_book(chapters, most=MAX_PEAKS),
        cues=_cues(chapters, marks, book.segment_ids),
        sample_rate=rate,
    )


def realtime(seconds: float, started: float) -> float | None:
    """Return the seconds of audio for each second of work since `started` (perf_counter)."""
    elapsed = time.perf_counter() - started
    return round(seconds / elapsed, 2) if elapsed > 0 else None


def _write(
    path: Path, form: str, book: JobBook, encoder: Encoder, job: RenderJob
) -> tuple[Sequence[ChapterFile], Sequence[Mark]]:
    known = BOOK_FILES[form]
    encoding = Encoding(known.chapters_as, bit_rate=job.bit_rate, sample_rate=job.sample_rate)
    if not known.spliced_from:
        return make_one_file(path, book.audio, encoder, encoding)
    made = make_m4b(path, book.audio, encoder, encoding)
    return made.chapters, made.marks


def _cues(
    chapters: Sequence[ChapterFile], marks: Sequence[Mark], ids: Sequence[Sequence[int]]
) -> list[tuple[int, int, int]]:
    """Return where each segment lies in the file, in its samples."""
    found = []
    for mark, chapter, segments in zip(marks, chapters, ids, strict=True):
        for pk, span in zip(segments, chapter.spans, strict=True):
            found.append((pk, mark.start + span.start, mark.start + span.end))
    return found


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
    checks = chapter_checks(chapter, mastering)
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
