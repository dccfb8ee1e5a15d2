"""Make a job's own file, read as what files of books are made of: chapters, facts, cover, levels.

Voices are brought to the narrator's level, by one gain each and never one per sentence. What a
voice says in a chapter is measured once and kept by its content, so that a changed chapter is the
only one that is read again.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from django.conf import settings
from django.core.files.storage import default_storage
from django.db.models import Q

from synth.audio.filters import LoudnessMeter
from synth.audiobooks.files import preset_of
from synth.audiobooks.plans import METADATA_FIELDS, METADATA_LISTS, metadata_of_file
from synth.books.book import StoredBookError
from synth.contract import AudioArray
from synth.formats import BOOK_FILES
from synth.models import BookSource, Chapter, Export, RenderJob, Segment
from synth.text.pauses import Pauses
from ttsweb.storage import MadeFile
from workers.audio.mastering import (
    MAX_PEAKS,
    TARGET_TOLERANCE_LU,
    JoinedTakes,
    MixedRatesError,
    Pin,
    TakesChangedError,
)
from workers.book_files.book_audio import (
    BookAudio,
    BookFacts,
    BookFileError,
    ChapterAudio,
    SegmentSpan,
)
from workers.book_files.chapter_encodes import (
    ChapterFile,
    EncodeCache,
    Encoder,
    Encoding,
    publish_file,
)
from workers.book_files.chapter_files import make_one_file
from workers.book_files.chapter_mastering import PRESETS, STANDARD, Mastering
from workers.book_files.cover import check_cover
from workers.book_files.m4b import Mark, marks_of
from workers.book_files.sidecars import chapter_checks

_VALUES = (
    "pk", "text", "speaker", "pause_after_ms", "take_id", "take__content_key",
    "take__audio_seconds", "take__sample_rate",
)  # fmt: skip


def read_job_book(
    job: RenderJob,
    source: BookSource | None,
    encoder: Encoder,
    *,
    indexes: Collection[int] | None = None,
) -> BookAudio:
    """Return a job as a book of the chapters that have audio, or of some of them.

    Raises:
        MixedRatesError: its takes do not have one sample rate.
        EncodeUnwantedError, TakeMissingError, OSError: as measuring its voices raises them.
    """
    labels = _labels(job)
    chapters = []
    rates: set[int] = set()
    planned = list(job.chapters.order_by("index"))
    for chapter in planned:
        if indexes is not None and chapter.index not in indexes:
            continue
        done = Segment.objects.filter(chapter=chapter, status=Segment.Status.DONE).order_by("index")
        # Not the models: of a long book they would be most of what is in memory.
        rows = list(done.values_list(*_VALUES, named=True))
        if rows:  # else all of it failed, and the job says so
            rates |= {row.take__sample_rate for row in rows}
            chapters.append(_chapter(job, chapter, rows, labels))
    if len(rates) != 1:
        raise MixedRatesError(f"The takes have the sample rates {sorted(rates)}.")
    rate = rates.pop()
    voices = level_voices(chapters, rate, labels, encoder)
    cover, cover_note = _cover_of(source)
    return BookAudio(
        facts_of(job, source),
        tuple(chapters),
        rate,
        cover,
        voice_gains_db={row["voice"]: row["gain_db"] for row in voices if row["gain_db"]},
        voices=voices,
        cover_note=cover_note,
        num_chapters=len(planned),
    )


def facts_of(job: RenderJob, source: BookSource | None) -> BookFacts:
    """Return what the tags say: what people said, else the book's file, else its row."""
    voices = job.voices.select_related("version__voice").order_by("speaker")
    names = [one.version.voice.name for one in voices if one.version.voice is not None]
    narrators = tuple(dict.fromkeys(names))
    if source is None:
        return BookFacts(f"Job {str(job.pk)[:8]}", narrators=narrators)
    try:
        known = metadata_of_file(source)
    except (FileNotFoundError, StoredBookError):
        known = {"title": source.title or source.filename, "authors": source.authors}
    known = {"narrators": narrators, **known, **source.metadata}
    facts: dict[str, Any] = {
        name: tuple(known.get(name, ())) if name in METADATA_LISTS else known.get(name, "")
        for name in METADATA_FIELDS
    }
    return BookFacts(**facts)


def _chapter(
    job: RenderJob, chapter: Chapter, rows: Sequence[Any], labels: dict[int, str]
) -> ChapterAudio:
    """Return a chapter; its key is made of all that its samples depend on."""
    pauses = Pauses.of(job.pauses)
    spans: list[SegmentSpan] = []
    keys: list[object] = [job.speed]
    position, is_start = 0, True  # before stretching, as JoinedTakes counts
    for row in rows:
        rate = row.take__sample_rate
        length = round(row.take__audio_seconds * rate)
        start, end = round(position / job.speed), round((position + length) / job.speed)
        spans.append(
            SegmentSpan(
                row.text, start, end, voice=labels.get(row.speaker, ""), speaker=row.speaker,
                starts_paragraph=is_start, segment_id=row.pk,
            )
        )  # fmt: skip
        position += length + round(row.pause_after_ms * rate / 1000)
        is_start = row.pause_after_ms >= pauses.paragraph
        keys.append((row.take__content_key, str(row.take_id), row.pause_after_ms))
    pins = {row.pk: Pin(row.take_id, row.pause_after_ms) for row in rows}
    done = Segment.objects.filter(chapter=chapter, status=Segment.Status.DONE)
    ordered = done.select_related("take").order_by("index")

    def blocks() -> Iterator[AudioArray]:
        try:
            takes = JoinedTakes(ordered, speed=job.speed, pins=pins)
        except MixedRatesError as error:  # they had one rate a moment ago
            raise TakesChangedError from error
        yield from takes.blocks()

    title = chapter.title or f"Chapter {chapter.index + 1}"
    return ChapterAudio(title, blocks, tuple(spans), _digest(keys), chapter.index)


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _labels(job: RenderJob) -> dict[int, str]:
    """Return a name for the voice of each speaker; one voice has one, and no other has it."""
    names: dict[Any, str] = {}
    found = {}
    for row in job.voices.select_related("version__voice").order_by("speaker"):
        name = row.version.voice.name if row.version.voice is not None else f"{row.speaker}"
        if row.version_id not in names:
            is_taken = name in names.values()
            names[row.version_id] = f"{name} ({row.speaker})" if is_taken else name
        found[row.speaker] = names[row.version_id]
    return found


def _cover_of(source: BookSource | None) -> tuple[bytes | None, str]:
    """Return the book's cover, or why one is made in its place."""
    if source is None or not source.cover_key:
        return None, (
            "The book's cover is in a format that players do not show, so a cover with the "
            "title was made."
        )
    try:
        with default_storage.open(source.cover_key) as file:
            content = file.read()
        check_cover(content)
    except FileNotFoundError:
        return None, "The cover is no longer stored, so a cover with the title was made."
    except BookFileError as error:
        return None, f"{error.message} A cover with the title was made instead."
    return content, ""


MOST_GAIN_DB = 9.0
# Half a decibel is not heard; finer steps would encode a whole book anew for one more sentence.
STEP_DB = 0.5
_VERSION = 1


class Heard(NamedTuple):
    """What was measured of a voice: its loudness, None of silence, over so many seconds."""

    lufs: float | None
    seconds: float


def level_voices(
    chapters: Sequence[ChapterAudio], sample_rate: int, labels: Mapping[int, str], encoder: Encoder
) -> list[dict[str, Any]]:
    """Return what is reported of each voice, its gain in dB included; none of a book of one voice.

    Args:
        chapters: of the whole book, with content keys and spans that name their voices.
        labels: the voices by the job's speakers; speaker 0 is the narrator.

    Raises:
        EncodeUnwantedError: nobody waits for it any more.
        TakeMissingError, OSError: as reading and writing raise them.
    """
    spoken = {span.voice for chapter in chapters for span in chapter.segments}
    narrator = labels.get(0, "")
    if len(spoken) < 2 or narrator not in spoken:
        return []
    heard: dict[str, list[Heard]] = {voice: [] for voice in sorted(spoken)}
    for chapter in chapters:
        for voice, found in _measure_chapter(chapter, sample_rate, encoder).items():
            heard[voice].append(found)
    levels = {voice: _join_loudness(parts) for voice, parts in heard.items()}
    target, rows = levels[narrator], []
    for voice, lufs in levels.items():
        missing = 0.0 if target is None or lufs is None else target - lufs
        gain = max(-MOST_GAIN_DB, min(MOST_GAIN_DB, round(missing / STEP_DB) * STEP_DB))
        rows.append({
            "voice": voice,
            "speakers": sorted(speaker for speaker, label in labels.items() if label == voice),
            "loudness_lufs": lufs,
            "gain_db": gain + 0.0,
            "is_bounded": abs(missing) > MOST_GAIN_DB,
        })  # fmt: skip
    return rows


def _join_loudness(parts: Sequence[Heard]) -> float | None:
    """Return the loudness of parts together: the mean of their powers, by their lengths."""
    measured = [(part.lufs, part.seconds) for part in parts if part.lufs is not None]
    seconds = sum(length for _, length in measured)
    if not seconds:
        return None
    power = sum(10 ** (lufs / 10) * length for lufs, length in measured) / seconds
    return round(10 * math.log10(power), 2)


def _measure_chapter(chapter: ChapterAudio, rate: int, encoder: Encoder) -> dict[str, Heard]:
    """Return what was measured of each voice of a chapter; it is read if that is not known."""
    cache, keys, known = encoder.cache, {}, {}
    for voice in {span.voice for span in chapter.segments}:
        places = [(span.start, span.end) for span in chapter.segments if span.voice == voice]
        keys[voice] = _digest(("voice level", _VERSION, chapter.content_key, rate, places))
        if (facts := cache.facts(keys[voice])) is not None:
            known[voice] = Heard(facts["lufs"], facts["seconds"])
    if len(known) == len(keys):
        return known
    found = _measure_voices(chapter, rate, encoder)
    for voice, heard in found.items():
        with publish_file(cache.path(keys[voice])) as temporary:
            temporary.write_bytes(b"")
        cache.finish(keys[voice], heard._asdict())
    return found


def _measure_voices(chapter: ChapterAudio, rate: int, encoder: Encoder) -> dict[str, Heard]:
    """Read a chapter once and measure what each of its voices says, without pauses."""
    meters = {span.voice: LoudnessMeter(rate) for span in chapter.segments}
    lengths = dict.fromkeys(meters, 0)
    position, index, spans = 0, 0, chapter.segments
    for block in encoder.stop_if_unwanted(chapter.blocks()):
        end = position + len(block)
        while index < len(spans) and spans[index].start < end:
            span = spans[index]
            spoken_block = block[max(0, span.start - position) : max(0, span.end - position)]
            meters[span.voice].push(spoken_block)
            lengths[span.voice] += len(spoken_block)
            if span.end > end:
                break
            index += 1
        position = end
    return {
        voice: Heard(meter.close().integrated_lufs, lengths[voice] / rate)
        for voice, meter in meters.items()
    }


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
    encoder = encoder_of(preset, job.loudness, is_unwanted)
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
        report=measured | report_of_work(book, encoder, seconds, started),
        peaks=peaks_of_book(chapters, most=MAX_PEAKS),
        cues=[
            (span.segment_id, mark.start + span.start, mark.start + span.end)
            for mark, chapter in zip(marks, chapters, strict=True)
            for span in chapter.spans
        ],
        sample_rate=rate,
    )


def encoder_of(preset: str, loudness: float | None, is_unwanted: Callable[[], bool]) -> Encoder:
    """Return an encoder into the cache that all books share; a loudness replaces the preset."""
    mastering = PRESETS[preset]
    if loudness is not None:
        mastering = replace(STANDARD, name="asked", target_lufs=loudness)
    cache = EncodeCache(Path(settings.DATA_DIR) / "cache" / "chapters")
    return Encoder(cache, mastering, is_unwanted=is_unwanted)


def report_of_work(
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
