"""Make the files that people ask for of a book, each kind of its chapters.

What was encoded before is used again.
"""

from __future__ import annotations

import bisect
import json
import logging
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from django.core.files.storage import default_storage

from synth.audio.writers import FileTooLongError, read_blocks
from synth.audiobooks.files import OWN, BookContent, Kind, audio_format, content_of, preset_of
from synth.audiobooks.plans import load_plan
from synth.books.book import StoredBookError
from synth.books.plan import PlannedChapter
from synth.books.plan_edits import PlanEditError
from synth.formats import BOOK_FILES, safe_name
from synth.models import BookFile, BookSource, RenderJob, Take
from synth.text.segments import SPEAKER_TAG
from synth.transitions.files import finish_book_file
from synth.transitions.segment_edits import render_lost_again
from ttsweb.storage import TEMPORARY_SUFFIX, MadeFile, delete_objects
from workers import kinds
from workers.audio.mastering import MixedRatesError, TakeMissingError, TakesChangedError
from workers.book_files.book_audio import (
    BookAudio,
    BookFileError,
    ChapterAudio,
    SegmentSpan,
    letters_of,
)
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.chapter_files import make_chapter_files, make_one_file, make_sample
from workers.book_files.chapter_mastering import LevelMeter, Levels
from workers.book_files.cover import book_cover
from workers.book_files.m4b import marks_of
from workers.book_files.read_along import make_read_along
from workers.book_files.read_along_source import make_read_along_of
from workers.book_files.sidecars import book_report, put_on_shelf, write_book_subtitles
from workers.books.job import (
    encoder_of,
    read_job_book,
    report_of_work,
)
from workers.kinds import retry_while_away, settle_errors
from workers.process.held_claims import HeldClaim
from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

Chapters = Sequence[ChapterFile]


@dataclass(frozen=True, slots=True)
class FileWork:
    """Hold what a file is made of: its row, its book, and an encoder.

    `path` is where it is written, in a folder of its own; `notes` are added to its report.
    """

    row: BookFile
    source: BookSource
    path: Path
    book: BookAudio
    encoder: Encoder
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def encoding(self) -> Encoding:
        """Return how chapters are encoded."""
        options = self.row.options
        form = audio_format(self.row.kind, options.get("format"))
        return Encoding(
            BOOK_FILES[form].chapters_as, options.get("bit_rate"), options.get("sample_rate")
        )


def make_kind(work: FileWork) -> Chapters:
    """Write a file, and return its chapters; a report is written by the caller.

    Raises:
        BookFileError: it cannot be made; the message says why.
        EncodeUnwantedError, TakeMissingError, TakesChangedError, OSError: as encoding raises them.
    """
    return _MAKERS.get(work.row.kind, _one_file)(work)


def _one_file(work: FileWork) -> Chapters:
    chapters = make_one_file(work.path, work.book, work.encoder, work.encoding)
    form = BOOK_FILES[work.row.kind]
    if form.spliced_from or form.bit_rates is None:
        return chapters
    return measure_chapters_in(work.path, form.name, chapters)  # joining encoded them again


def measure_chapters_in(path: Path, form: str, chapters: Chapters) -> Chapters:
    """Return chapters with the levels that they have in a file where they follow each other."""
    rate, marks = chapters[0].sample_rate, marks_of(chapters)
    found: list[Levels] = []
    meter, position = LevelMeter(rate), 0
    for block in read_blocks(path, form, rate):
        while len(found) < len(marks) - 1 and position + len(block) >= marks[len(found)].end:
            cut = marks[len(found)].end - position
            meter.push(block[:cut])
            found.append(meter.close())
            meter, block, position = LevelMeter(rate), block[cut:], position + cut
        meter.push(block)
        position += len(block)
    found.append(meter.close())
    return [
        chapter._replace(levels=levels) for chapter, levels in zip(chapters, found, strict=False)
    ]


def _chapters(work: FileWork) -> Chapters:
    folder = work.path.parent / "chapters"
    made = make_chapter_files(folder, work.book, work.encoder, work.encoding)
    if work.row.options["chapter"] is not None:
        next(iter(made)).replace(work.path)
    else:
        _pack(work.path, folder)
    return list(made.values())


def _shelf(work: FileWork) -> Chapters:
    book, folder = work.book, work.path.parent / "files"
    if work.encoding.format in BOOK_FILES:
        made = make_chapter_files(folder, book, work.encoder, work.encoding)
        paths, chapters = list(made), list(made.values())
    else:
        folder.mkdir()
        paths = [folder / f"{safe_name(book.facts.title, 'Untitled')}.m4b"]
        chapters = make_one_file(paths[0], book, work.encoder, work.encoding)
    library = work.path.parent / "library"
    put_on_shelf(library, book.facts, paths, book_cover(book.cover, book.facts), chapters)
    _pack(work.path, library)
    return chapters


def _read_along(work: FileWork) -> Chapters:
    if work.row.options["format"] != OWN:
        return make_read_along(work.path, work.book, work.encoder, work.encoding)
    if not work.source.filename.lower().endswith(".epub"):
        raise BookFileError(
            "source_unreadable",
            "The book was not uploaded as an EPUB, so it has no EPUB text for a read-along "
            "file. Use the `format` `made`, which makes one from the spoken text.",
        )
    upload = work.path.with_name("upload.epub")
    try:
        with default_storage.open(work.source.object_key) as stored, upload.open("wb") as file:
            shutil.copyfileobj(stored, file, 1 << 20)
        book = add_anchors(work.book, work.source)
    except (FileNotFoundError, StoredBookError, PlanEditError) as error:
        raise BookFileError(
            "book_gone",
            "The book's own text is no longer stored, or was read by another version. Use "
            "the `format` `made`, or upload the book again.",
        ) from error
    chapters, missing = make_read_along_of(work.path, upload, book, work.encoder, work.encoding)
    work.notes["unplaced_segments"] = missing
    return chapters


def _sample(work: FileWork) -> Chapters:
    minutes = work.row.options["minutes"]
    return measure_chapters_in(
        work.path, "mp3", [make_sample(work.path, work.book, work.encoder, minutes=minutes)]
    )


def _subtitles(work: FileWork) -> Chapters:
    """Write subtitles of the chapters as the job's M4B has them, or would have."""
    job, encoding = work.row.job, Encoding("aac")
    if job.format == "m4b":
        encoding = replace(encoding, bit_rate=job.bit_rate, sample_rate=job.sample_rate)
    chapters = list(work.encoder.chapters(work.book, encoding))
    write_book_subtitles(work.path, chapters, work.row.kind)
    return chapters


_MAKERS: dict[str, Callable[[FileWork], Chapters]] = {
    Kind.CHAPTERS: _chapters,
    Kind.SHELF: _shelf,
    Kind.READ_ALONG: _read_along,
    Kind.SAMPLE: _sample,
    Kind.SRT: _subtitles,
    Kind.VTT: _subtitles,
    Kind.REPORT: lambda work: list(work.encoder.chapters(work.book, work.encoding)),
}


def _pack(path: Path, folder: Path) -> None:
    """Move all files of a folder into a ZIP as they are: audio does not get smaller.

    They have no time, so that the same files are the same ZIP whenever it is made.
    """
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as packed:
        for file in sorted(one for one in folder.rglob("*") if one.is_file()):
            entry = zipfile.ZipInfo(str(file.relative_to(folder)))
            entry.file_size = file.stat().st_size  # says whether it needs sizes of 64 bits
            entry.external_attr = 0o644 << 16
            with file.open("rb") as source, packed.open(entry, "w") as target:
                shutil.copyfileobj(source, target, 1 << 20)
    shutil.rmtree(folder)


def add_anchors(book: BookAudio, source: BookSource) -> BookAudio:
    """Return a book whose segments name their documents; those of credits name none.

    Raises:
        FileNotFoundError, StoredBookError, PlanEditError: as reading the plan raises them.
    """
    planned = {chapter.id: chapter for chapter in load_plan(source).chapters}
    started = [planned.get(one["id"]) for one in source.started.get("chapters", [])]
    chapters = [
        _add_anchors_of(chapter, started[chapter.index])
        if chapter.index < len(started)
        else chapter
        for chapter in book.chapters
    ]
    return replace(book, chapters=tuple(chapters))


def _add_anchors_of(chapter: ChapterAudio, planned: PlannedChapter | None) -> ChapterAudio:
    """Follow the segments of a chapter through its blocks, by their letters."""
    blocks = [one for one in planned.blocks if one.reason is None] if planned is not None else []
    if not blocks:
        return chapter
    parts = [letters_of(one.block.text) for one in blocks]
    starts, whole = [0], "".join(parts)
    for part in parts[:-1]:
        starts.append(starts[-1] + len(part))
    cursor, spans = 0, list[SegmentSpan]()
    for span in chapter.segments:
        wanted = letters_of(SPEAKER_TAG.sub("", span.text))
        at = whole.find(wanted, cursor) if wanted else -1
        # The document of one that has other words is where it is due.
        place = cursor if at < 0 else at
        if at >= 0:
            cursor = at + len(wanted)
        path = blocks[max(0, bisect.bisect_right(starts, place) - 1)].path
        spans.append(replace(span, anchor=path))
    return replace(chapter, segments=tuple(spans))


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
    encoder = encoder_of(preset, row.options.get("loudness", usual), is_unwanted)
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
        **report_of_work(book, encoder, seconds, started),
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
        return kinds.wait(claim, seconds=OPEN_DELAY_SECONDS)
    if isinstance(error, BookFileError):
        return kinds.fail(claim, error.code, error.message)
    if isinstance(error, MixedRatesError):
        message = f"{error} Start the book again, so that one model speaks the whole book."
        return kinds.fail(claim, "mixed_sample_rates", message)
    if isinstance(error, FileTooLongError):
        return kinds.fail(claim, "file_too_long", str(error))
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
        return kinds.wait(claim, seconds=OPEN_DELAY_SECONDS)
    message = (
        "Some of the book's audio is no longer stored, and the book is cancelled. Retry the "
        "book, then make the file again."
    )
    return kinds.fail(claim, "takes_lost", message)
