"""Make the M4B of a book's job: chapters from its takes, with marks, cover and tags."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.storage import default_storage

from synth.bookshelf.plans import load_book
from synth.models import BookSource, Chapter, Export, Segment
from synth.transitions import FileFacts
from workers.book_files.book_audio import (
    BookAudio,
    BookFacts,
    BookFileError,
    ChapterAudio,
    SegmentSpan,
)
from workers.book_files.chapter_encodes import ChapterFile, Encoder, EncodeUnwantedError, Encoding
from workers.book_files.chapter_mastering import STANDARD
from workers.book_files.cover import checked_cover
from workers.book_files.encode_cache import EncodeCache
from workers.book_files.m4b import MadeBook, make_m4b
from workers.joined_takes import JoinedTakes, MixedRatesError
from workers.mastering import TARGET_TOLERANCE_LU, ExportUnwantedError, MadeFile

M4B = "m4b"


def make_book(path: Path, export: Export, *, is_unwanted: Callable[[], bool]) -> MadeFile:
    """Write a job's M4B to `path`; chapters that were encoded before are not encoded again.

    Raises:
        ExportUnwantedError: nobody waits for the file any more.
        TakeMissingError, MixedRatesError, BookFileError, OSError: as reading and writing raise
            them.
    """
    job = export.job
    source = BookSource.objects.filter(job=job).first()
    chapters: list[ChapterAudio] = []
    ids: list[list[int]] = []
    rates: set[int] = set()
    for chapter in job.chapters.order_by("index"):
        done = Segment.objects.filter(chapter=chapter, status=Segment.Status.DONE)
        done = done.select_related("take").order_by("index")
        if not done.exists():
            continue  # all of it failed, and the job says so
        takes = JoinedTakes(done, speed=job.speed)
        rates.add(takes.sample_rate)
        chapters.append(_audio_of(chapter, takes, done, job.speed))
        ids.append([segment.pk for segment in done])
    if len(rates) != 1:
        raise MixedRatesError(f"The takes have the sample rates {sorted(rates)}.")
    cover, note = _cover_of(source)
    book = BookAudio(_facts_of(export, source), tuple(chapters), rates.pop(), cover)
    mastering = STANDARD
    if job.loudness is not None:
        mastering = replace(STANDARD, name="asked", target_lufs=job.loudness)
    cache = EncodeCache(settings.DATA_DIR / "cache" / "chapters")
    encoder = Encoder(cache, mastering, is_unwanted=is_unwanted)
    encoding = Encoding("aac", bit_rate=job.bit_rate, sample_rate=job.sample_rate)
    try:
        made = make_m4b(path, book, encoder, encoding)
    except EncodeUnwantedError as error:
        raise ExportUnwantedError from error
    cache.trim()
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    size = path.stat().st_size
    seconds = made.marks[-1].end / made.sample_rate
    report = _report(made, encoder, size=size, seconds=seconds, target=mastering.target_lufs)
    report["cover_note"] = note
    facts = FileFacts(report=report, cues=_cues(made, ids), sample_rate=made.sample_rate)
    return MadeFile(digest, size, seconds, facts)


def _audio_of(chapter: Chapter, takes: JoinedTakes, done: Any, speed: float) -> ChapterAudio:
    """Return a chapter; its key is made of all that its samples depend on."""
    spans: list[SegmentSpan] = []
    keys: list[object] = [speed]
    position = 0  # before stretching, as JoinedTakes counts
    for segment in done:
        length = round(segment.take.audio_seconds * segment.take.sample_rate)
        start, end = round(position / speed), round((position + length) / speed)
        spans.append(SegmentSpan(segment.text, start, end, speaker=segment.speaker))
        position += length + round(segment.pause_after_ms * takes.sample_rate / 1000)
        keys.append((segment.take.content_key, str(segment.take.pk), segment.pause_after_ms))
    key = hashlib.sha256(json.dumps(keys).encode()).hexdigest()
    title = chapter.title or f"Chapter {chapter.index + 1}"
    return ChapterAudio(title, takes.blocks, tuple(spans), key)


def _facts_of(export: Export, source: BookSource | None) -> BookFacts:
    """Return what the tags say; of a book whose text is gone, what its row still knows."""
    voices = export.job.voices.select_related("version__voice").order_by("speaker")
    narrators = tuple(v.version.voice.name for v in voices if v.version.voice is not None)
    if source is None:
        return BookFacts(f"Job {str(export.job_id)[:8]}", narrators=narrators)
    try:
        told = load_book(source).metadata
    except FileNotFoundError:
        title = source.title or source.filename
        return BookFacts(title, authors=tuple(source.authors), narrators=narrators)
    return BookFacts(
        title=told.title or source.filename,
        subtitle=told.subtitle,
        authors=told.authors,
        narrators=narrators,
        language=told.language,
        publisher=told.publisher,
        date=told.date,
        description=told.description,
        series=told.series,
        series_index=told.series_index,
        genres=told.subjects,
        rights=told.rights,
    )


def _cover_of(source: BookSource | None) -> tuple[bytes | None, str]:
    """Return the book's cover, or why one is made in its place."""
    if source is None or not source.cover_key:
        return None, "The book has no cover that players show; one with its title was made."
    try:
        with default_storage.open(source.cover_key) as file:
            content = file.read()
        checked_cover(content)
    except FileNotFoundError:
        return None, "The cover is no longer stored; one with the title was made."
    except BookFileError as error:
        return None, f"{error.message} One with the title was made."
    return content, ""


def _cues(made: MadeBook, ids: list[list[int]]) -> list[tuple[int, int, int]]:
    """Return where each segment lies in the file, in its samples."""
    found = []
    for mark, chapter, segments in zip(made.marks, made.chapters, ids, strict=True):
        for pk, span in zip(segments, chapter.spans, strict=True):
            found.append((pk, mark.start + span.start, mark.start + span.end))
    return found


def _report(
    made: MadeBook, encoder: Encoder, *, size: int, seconds: float, target: float | None
) -> dict[str, Any]:
    """Return what was measured: of the whole file, and of each chapter."""
    rows = [_chapter_report(made, index, chapter) for index, chapter in enumerate(made.chapters)]
    loud = [row["loudness_lufs"] for row in rows if row["loudness_lufs"] is not None]
    is_reached = target is None or all(abs(one - target) <= TARGET_TOLERANCE_LU for one in loud)
    return {
        "seconds": seconds,
        "sample_rate": made.sample_rate,
        "channels": 1,
        "bit_rate": round(8 * size / seconds) if seconds else None,
        "loudness_lufs": round(sum(loud) / len(loud), 2) if loud else None,
        "true_peak_dbtp": max(row["true_peak_dbtp"] for row in rows),
        "target_lufs": target,
        "target_reached": is_reached,
        "gain_db": round(sum(row["gain_db"] for row in rows) / len(rows), 2),
        "limiter_db": max(row["limiter_db"] for row in rows),
        "note": "" if is_reached else "Some chapters do not reach the target; see them.",
        "chapters_encoded": encoder.encoded,
        "chapters_reused": encoder.reused,
        "chapters": rows,
    }


def _chapter_report(made: MadeBook, index: int, chapter: ChapterFile) -> dict[str, Any]:
    mark = made.marks[index]
    return {
        "title": mark.title,
        "start_seconds": mark.start / made.sample_rate,
        "seconds": (mark.end - mark.start) / made.sample_rate,
        "rms_dbfs": chapter.levels.rms_dbfs,
        "floor_dbfs": chapter.levels.floor_dbfs,
        "true_peak_dbtp": chapter.levels.true_peak_dbtp,
        "loudness_lufs": chapter.levels.loudness_lufs,
        "gain_db": chapter.gain_db,
        "limiter_db": round(chapter.limiter_db, 2),
    }
