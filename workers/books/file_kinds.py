"""Make each kind of file of a book of its chapters; what was encoded before is used again."""

from __future__ import annotations

import bisect
import json
import shutil
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from django.core.files.storage import default_storage

from synth.audiobooks.files import OWN, Kind, audio_format
from synth.audiobooks.plans import load_plan
from synth.books.book import StoredBookError
from synth.books.file_names import safe_name
from synth.books.plan import PlannedChapter
from synth.books.plan_edits import PlanEditError
from synth.formats import BOOK_FILES
from synth.models import BookSource
from synth.text.segments import SPEAKER_TAG
from workers.audio.writers import read_blocks
from workers.book_files.book_audio import BookAudio, BookFileError, ChapterAudio, SegmentSpan
from workers.book_files.chapter_encodes import ChapterFile, Encoder, Encoding
from workers.book_files.chapter_files import (
    make_chapter_files,
    make_one_file,
    make_sample,
    sample_encoding,
)
from workers.book_files.chapter_mastering import LevelMeter, Levels
from workers.book_files.cover import book_cover
from workers.book_files.m4b import Mark, make_m4b, marks_of
from workers.book_files.read_along import make_read_along
from workers.book_files.read_along_source import make_read_along_of
from workers.book_files.sidecars import put_on_shelf, write_book_subtitles
from workers.books.job import JobBook


def add_anchors(book: JobBook, source: BookSource) -> BookAudio:
    """Return a book whose segments name their documents; those of credits name none.

    Raises:
        FileNotFoundError, StoredBookError, PlanEditError: as reading the plan raises them.
    """
    planned = {chapter.id: chapter for chapter in load_plan(source).chapters}
    started = source.started.get("chapters", [])
    chapters = []
    for index, chapter in zip(book.indexes, book.audio.chapters, strict=True):
        found = planned.get(started[index]["id"]) if index < len(started) else None
        chapters.append(chapter if found is None else _anchor_spans(chapter, found))
    return replace(book.audio, chapters=tuple(chapters))


def _anchor_spans(chapter: ChapterAudio, planned: PlannedChapter) -> ChapterAudio:
    places = _Places(planned)
    spans = tuple(replace(span, anchor=places.of(span)) for span in chapter.segments)
    return replace(chapter, segments=spans)


class _Places:
    """Follow the segments of a chapter through its blocks, by their letters."""

    def __init__(self, chapter: PlannedChapter) -> None:
        self._starts, self._paths, parts = [], [], []
        position = 0
        for block, path in _spoken_texts(chapter):
            letters = _letters(block)
            self._starts.append(position)
            self._paths.append(path)
            parts.append(letters)
            position += len(letters)
        self._letters = "".join(parts)
        self._cursor = 0

    def of(self, span: SegmentSpan) -> str:
        """Return the document of the next segment; of one that has other words, where it is due."""
        if not self._paths:
            return ""
        wanted = _letters(SPEAKER_TAG.sub("", span.text))
        at = self._letters.find(wanted, self._cursor) if wanted else -1
        place = self._cursor if at < 0 else at
        if at >= 0:
            self._cursor = at + len(wanted)
        return self._paths[max(0, bisect.bisect_right(self._starts, place) - 1)]


def _spoken_texts(chapter: PlannedChapter) -> Iterator[tuple[str, str]]:
    for planned in chapter.blocks:
        if planned.reason is None:
            yield planned.block.text, planned.path


def _letters(text: str) -> str:
    """Return what texts are compared by: letters and digits without accents, in lower case."""
    folded = unicodedata.normalize("NFKD", text).casefold()
    return "".join(one for one in folded if one.isalnum())


def measure_chapters_in(
    path: Path, form: str, chapters: Sequence[ChapterFile], marks: Sequence[Mark]
) -> list[ChapterFile]:
    """Return the chapters with levels that were measured between their marks in a file.

    Args:
        form: the file's audio format.
        marks: in samples of the chapters' own rate, one after the other.
    """
    rate = chapters[0].sample_rate
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


@dataclass(frozen=True, slots=True)
class FileOrder:
    """Say what is to be made: a kind with its options, in a scratch folder.

    `count` is how many chapters the whole book has, `own` the encoding of the job's main file.
    """

    kind: str
    options: dict[str, Any]
    path: Path
    folder: Path
    book: JobBook
    source: BookSource
    count: int
    own: Encoding

    @property
    def form(self) -> str:
        """Return the audio format."""
        return audio_format(self.kind, self.options.get("format"))

    @property
    def encoding(self) -> Encoding:
        """Return how chapters are encoded."""
        return Encoding(
            BOOK_FILES[self.form].chapters_as,
            bit_rate=self.options.get("bit_rate"),
            sample_rate=self.options.get("sample_rate"),
        )


@dataclass(frozen=True, slots=True)
class Made:
    """Hold what became of an order: its chapters as they were encoded, and its length."""

    chapters: Sequence[ChapterFile]
    seconds: float
    more: dict[str, Any] = field(default_factory=dict)


def make_kind(order: FileOrder, encoder: Encoder) -> Made:
    """Write the file of an order to its path; of a report it is written by the caller.

    Raises:
        BookFileError: it cannot be made; the message says why.
        EncodeUnwantedError, TakeMissingError, TakesChangedError, OSError: as encoding raises them.
    """
    maker = _MAKERS.get(order.kind) or (
        _splice_m4b if BOOK_FILES[order.kind].spliced_from else _one_file
    )
    return maker(order, encoder)


def _splice_m4b(order: FileOrder, encoder: Encoder) -> Made:
    made = make_m4b(order.path, order.book.audio, encoder, order.encoding)
    return _made_of(made.chapters)


def _one_file(order: FileOrder, encoder: Encoder) -> Made:
    chapters, marks = make_one_file(order.path, order.book.audio, encoder, order.encoding)
    if BOOK_FILES[order.kind].bit_rates is not None:  # joining its chapters encoded it again
        chapters = measure_chapters_in(order.path, order.kind, chapters, marks)
    return _made_of(chapters)


def _chapters(order: FileOrder, encoder: Encoder) -> Made:
    made = make_chapter_files(
        order.folder / "chapters", order.book.audio, encoder, order.encoding,
        places=order.book.indexes, count=order.count,
    )  # fmt: skip
    if order.options["chapter"] is not None:
        made.paths[0].replace(order.path)
    else:
        _pack(order.path, order.folder / "chapters")
    return _made_of(made.chapters)


def _shelf(order: FileOrder, encoder: Encoder) -> Made:
    book, audio = order.book, order.book.audio
    folder = order.folder / "files"
    folder.mkdir()
    if BOOK_FILES[order.form].spliced_from:
        path = folder / f"{safe_name(audio.facts.title, 'Untitled')}.m4b"
        chapters = make_m4b(path, audio, encoder, order.encoding).chapters
        paths = [path]
    else:
        paths, chapters = make_chapter_files(
            folder, audio, encoder, order.encoding, places=book.indexes, count=order.count
        )
    cover = book_cover(audio.cover, audio.facts)
    library = order.folder / "library"
    put_on_shelf(library, audio.facts, paths, cover, marks_of(chapters), chapters[0].sample_rate)
    shutil.rmtree(folder)
    _pack(order.path, library)
    return _made_of(chapters)


def _read_along(order: FileOrder, encoder: Encoder) -> Made:
    chapters: list[ChapterFile] = []
    noting = _Noting(encoder, chapters)
    if order.options["format"] != OWN:
        make_read_along(order.path, order.book.audio, noting, order.encoding)
        return _made_of(chapters)
    if not order.source.filename.lower().endswith(".epub"):
        raise BookFileError(
            "source_unreadable",
            "The book was not uploaded as an EPUB, so it has no EPUB text for a read-along "
            "file. Use the `format` `made`, which makes one from the spoken text.",
        )
    upload = order.folder / "upload.epub"
    try:
        with default_storage.open(order.source.object_key) as stored, upload.open("wb") as file:
            shutil.copyfileobj(stored, file, 1 << 20)
        audio = add_anchors(order.book, order.source)
    except (FileNotFoundError, StoredBookError, PlanEditError) as error:
        raise BookFileError(
            "book_gone",
            "The book's own text is no longer stored, or was read by another version. Use "
            "the `format` `made`, or upload the book again.",
        ) from error
    _, missing = make_read_along_of(order.path, upload, audio, noting, order.encoding)
    return Made(chapters, _seconds(chapters), {"unplaced_segments": missing})


def _sample(order: FileOrder, encoder: Encoder) -> Made:
    audio = order.book.audio
    chapter = encoder.chapter(audio, 0, sample_encoding(audio))
    reused = encoder.reused
    seconds = make_sample(order.path, audio, 0, encoder, minutes=order.options["minutes"])
    encoder.reused = reused  # the same encode, looked up once more
    chapter = chapter._replace(num_samples=round(seconds * chapter.sample_rate))
    mark = Mark(chapter.title, 0, chapter.num_samples)
    return Made(measure_chapters_in(order.path, "mp3", [chapter], [mark]), seconds)


def _subtitles(order: FileOrder, encoder: Encoder) -> Made:
    chapters = list(encoder.chapters(order.book.audio, order.own))
    write_book_subtitles(order.path, chapters, order.kind)
    return _made_of(chapters)


def _report(order: FileOrder, encoder: Encoder) -> Made:
    return _made_of(list(encoder.chapters(order.book.audio, order.encoding)))


_MAKERS: dict[str, Callable[[FileOrder, Encoder], Made]] = {
    Kind.CHAPTERS: _chapters,
    Kind.SHELF: _shelf,
    Kind.READ_ALONG: _read_along,
    Kind.SAMPLE: _sample,
    Kind.SRT: _subtitles,
    Kind.VTT: _subtitles,
    Kind.REPORT: _report,
}


class _Noting(Encoder):
    """Encode as another encoder does, and note the chapters."""

    def __init__(self, encoder: Encoder, chapters: list[ChapterFile]) -> None:
        self._inner, self._chapters = encoder, chapters

    def chapter(self, book: Any, index: int, encoding: Encoding) -> ChapterFile:
        """Return one chapter."""
        found = self._inner.chapter(book, index, encoding)
        self._chapters.append(found)
        return found


def write_report(path: Path, report: dict[str, Any]) -> None:
    """Write a report as a file of its own."""
    path.write_text(json.dumps(report, ensure_ascii=False, indent=2), encoding="utf-8")


def _pack(path: Path, folder: Path) -> None:
    """Put all files of a folder into a ZIP as they are: audio does not get smaller.

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


def _made_of(chapters: Sequence[ChapterFile]) -> Made:
    return Made(chapters, _seconds(chapters))


def _seconds(chapters: Sequence[ChapterFile]) -> float:
    return sum(one.num_samples for one in chapters) / chapters[0].sample_rate if chapters else 0.0
