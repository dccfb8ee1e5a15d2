"""Make each kind of file of a book of its chapters; what was encoded before is used again."""

from __future__ import annotations

import bisect
import shutil
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django.core.files.storage import default_storage

from synth.audio.writers import read_blocks
from synth.audiobooks.files import OWN, Kind, audio_format
from synth.audiobooks.plans import load_plan
from synth.books.book import StoredBookError
from synth.books.file_names import safe_name
from synth.books.plan import PlannedChapter
from synth.books.plan_edits import PlanEditError
from synth.formats import BOOK_FILES
from synth.models import BookFile, BookSource
from synth.text.segments import SPEAKER_TAG
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
from workers.book_files.sidecars import put_on_shelf, write_book_subtitles

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
