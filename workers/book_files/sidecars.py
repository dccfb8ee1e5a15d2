"""Write what goes beside a book's audio: the shelf of Audiobookshelf, subtitles, the report."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from synth.books.book import Cover
from synth.formats import safe_name
from synth.jobs.timestamps import Spoken, to_srt, to_vtt
from workers.book_files.book_audio import BookFacts
from workers.book_files.chapter_encodes import ChapterFile
from workers.book_files.chapter_mastering import Mastering
from workers.book_files.cover import cover_name
from workers.book_files.m4b import Mark, marks_of

_YEAR = re.compile(r"\d{4}")


def shelf_folder(facts: BookFacts) -> PurePosixPath:
    """Return a book's folder below a library: `Author/Series/2 - 1895 - Title {Narrator}`."""
    author = safe_name(", ".join(facts.authors), "Unknown author")
    title = safe_name(facts.title, "Untitled")
    year = _year(facts)
    name = f"{year} - {title}" if year else title
    if facts.narrators:
        name = f"{name} {{{safe_name(', '.join(facts.narrators), 'Narrator')}}}"
    if not facts.series:
        return PurePosixPath(author, name)
    if facts.series_index:
        name = f"{safe_name(facts.series_index, '0')} - {name}"
    return PurePosixPath(author, safe_name(facts.series, "Series"), name)


def metadata_json(facts: BookFacts, marks: Sequence[Mark], sample_rate: int) -> dict[str, Any]:
    """Return the sidecar: facts that no tag can hold, and chapters in seconds."""
    series = f"{facts.series} #{facts.series_index}" if facts.series_index else facts.series
    return {
        "tags": [],
        "chapters": [
            {
                "id": index,
                "start": round(mark.start / sample_rate, 6),
                "end": round(mark.end / sample_rate, 6),
                "title": mark.title,
            }
            for index, mark in enumerate(marks)
        ],
        "title": facts.title,
        "subtitle": facts.subtitle or None,
        "authors": list(facts.authors),
        "narrators": list(facts.narrators),
        "series": [series] if facts.series else [],
        "genres": list(facts.genres),
        "publishedYear": _year(facts),
        "publishedDate": facts.date or None,
        "publisher": facts.publisher or None,
        "description": facts.description or None,
        "isbn": None,
        "asin": None,
        "language": facts.language or None,
        "explicit": False,
        "abridged": False,
    }


def put_on_shelf(
    library: Path,
    facts: BookFacts,
    files: Iterable[Path],
    cover: Cover,
    chapters: Sequence[ChapterFile],
) -> Path:
    """Move a book's files with cover and sidecar below `library`, and return its folder.

    Raises:
        OSError: the disk is full.
    """
    folder = library / shelf_folder(facts)
    folder.mkdir(parents=True)
    for file in files:
        file.rename(folder / file.name)
    (folder / cover_name(cover)).write_bytes(cover.content)
    facts_of_shelf = metadata_json(facts, marks_of(chapters), chapters[0].sample_rate)
    sidecar = json.dumps(facts_of_shelf, ensure_ascii=False, indent=2)
    (folder / "metadata.json").write_text(sidecar, encoding="utf-8", errors="replace")
    return folder


def _year(facts: BookFacts) -> str | None:
    found = _YEAR.search(facts.date)
    return found.group() if found else None


def write_book_subtitles(path: Path, chapters: Sequence[ChapterFile], form: str) -> None:
    """Write one file, SRT or VTT, timed for all chapters one after the other.

    Raises:
        OSError: the disk is full.
    """
    spoken = [
        Spoken(
            chapter=index, index=number, start=mark.start + span.start, end=mark.start + span.end,
            text=span.text, speaker=span.speaker, voice=span.voice or None,
        )
        for index, (mark, chapter) in enumerate(zip(marks_of(chapters), chapters, strict=True))
        for number, span in enumerate(chapter.spans)
    ]  # fmt: skip
    rate = chapters[0].sample_rate if chapters else 1
    write = to_srt if form == "srt" else to_vtt
    path.write_text(write(spoken, rate), encoding="utf-8")


MAX_FILE_SECONDS = 120 * 60  # what ACX takes per file


class Check(NamedTuple):
    """Hold one demand on a chapter: what was asked, found, and a sentence about it."""

    code: str
    is_passed: bool
    sentence: str


def book_report(chapters: Sequence[ChapterFile], mastering: Mastering) -> dict[str, Any]:
    """Return the report of a book as JSON: a row for each chapter, with its checks."""
    rows = [_row(chapter, mastering) for chapter in chapters]
    failed = [row["index"] for row in rows if not row["passed"]]
    return {
        "mastering": asdict(mastering),
        "passed": bool(rows) and not failed,
        "failed_chapters": failed,
        "seconds": round(sum(row["seconds"] for row in rows), 3),
        "chapters": rows,
    }


def _row(chapter: ChapterFile, mastering: Mastering) -> dict[str, Any]:
    checks = list(chapter_checks(chapter, mastering))
    return {
        "index": chapter.place,
        "title": chapter.title,
        **asdict(chapter.levels),
        "seconds": round(chapter.num_samples / chapter.sample_rate, 3),
        "num_samples": chapter.num_samples,
        "sample_rate": chapter.sample_rate,
        "size_bytes": chapter.path.stat().st_size,
        "gain_db": chapter.gain_db,
        "limiter_db": chapter.limiter_db,
        "passed": all(check.is_passed for check in checks),
        "checks": [
            {"code": check.code, "passed": check.is_passed, "sentence": check.sentence}
            for check in checks
        ],
    }


def chapter_checks(chapter: ChapterFile, mastering: Mastering) -> Iterator[Check]:
    """Yield what a mastering asks of a chapter's file, measured on the file."""
    levels = chapter.levels
    if levels.loudness_lufs is None:
        yield Check(
            "speech", False, "The chapter is silent: nothing in it is louder than -70 LUFS."
        )
        return
    if mastering.target_lufs is not None:
        off = levels.loudness_lufs - mastering.target_lufs
        yield _check(
            "loudness", abs(off) <= mastering.tolerance_db,
            f"The chapter's loudness is {levels.loudness_lufs:.1f} LUFS, but the target is "
            f"{mastering.target_lufs:g}",
            "the peaks reach their limit first" if off < 0 else "the gain was not reduced enough",
        )  # fmt: skip
    if mastering.rms_range_dbfs is not None:
        low, high = mastering.rms_range_dbfs
        yield _check(
            "rms", low <= levels.rms_dbfs <= high,
            f"The chapter's RMS is {levels.rms_dbfs:.1f} dBFS, but must be {low:g} to {high:g}",
            "the chapter has long pauses, or peaks that cannot be raised",
        )  # fmt: skip
    yield _check(
        "peak", levels.true_peak_dbtp <= mastering.peak_limit_dbtp,
        f"The chapter's peak is {levels.true_peak_dbtp:.1f} dBTP, but at most "
        f"{mastering.peak_limit_dbtp:g} is allowed", "the encoder raised it",
    )  # fmt: skip
    if mastering.floor_limit_dbfs is not None:
        yield _check(
            "floor", levels.floor_dbfs <= mastering.floor_limit_dbfs,
            f"The chapter's quietest half second has {levels.floor_dbfs:.1f} dBFS, but at most "
            f"{mastering.floor_limit_dbfs:g} is allowed",
            "the voice's clip has noise in its background",
        )  # fmt: skip
    if mastering.rms_range_dbfs is not None:
        yield _check(
            "duration", levels.seconds <= MAX_FILE_SECONDS,
            f"The chapter lasts {levels.seconds / 60:.1f} minutes, but at most "
            f"{MAX_FILE_SECONDS // 60} are allowed", "split it into two chapters",
        )  # fmt: skip


def _check(code: str, is_passed: bool, fact: str, why_not: str) -> Check:
    return Check(code, is_passed, f"{fact}." if is_passed else f"{fact}: {why_not}.")
