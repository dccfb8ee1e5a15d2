"""Report what every chapter's file measures, and whether it is as shops ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from workers.book_files.chapter_encodes import ChapterFile
from workers.book_files.chapter_mastering import Mastering

MAX_FILE_SECONDS = 120 * 60  # what ACX takes per file


class Check(NamedTuple):
    """Hold one demand on a chapter: what was asked, found, and a sentence about it."""

    code: str
    is_passed: bool
    sentence: str


def book_report(chapters: Sequence[ChapterFile], mastering: Mastering) -> dict[str, Any]:
    """Return the report of a book as JSON: a row for each chapter, with its checks."""
    rows = [_row(index, chapter, mastering) for index, chapter in enumerate(chapters)]
    failed = [row["index"] for row in rows if not row["passed"]]
    return {
        "mastering": mastering.to_json(),
        "passed": bool(rows) and not failed,
        "failed_chapters": failed,
        "seconds": round(sum(row["seconds"] for row in rows), 3),
        "chapters": rows,
    }


def chapter_checks(chapter: ChapterFile, mastering: Mastering) -> list[Check]:
    """Return what a mastering asks of a chapter's file, measured on the file."""
    return list(_checks(chapter, mastering))


def _row(index: int, chapter: ChapterFile, mastering: Mastering) -> dict[str, Any]:
    checks = chapter_checks(chapter, mastering)
    return {
        "index": index,
        "title": chapter.title,
        **chapter.levels.to_json(),
        "seconds": round(chapter.num_samples / chapter.sample_rate, 3),
        "num_samples": chapter.num_samples,
        "sample_rate": chapter.sample_rate,
        "size_bytes": chapter.path.stat().st_size,
        "gain_db": chapter.gain_db,
        "limiter_db": chapter.limiter_db,
        "passed": _all_passed(checks),
        "checks": [
            {"code": check.code, "passed": check.is_passed, "sentence": check.sentence}
            for check in checks
        ],
    }


def _all_passed(checks: Iterable[Check]) -> bool:
    return all(check.is_passed for check in checks)


def _checks(chapter: ChapterFile, mastering: Mastering) -> Iterator[Check]:
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
