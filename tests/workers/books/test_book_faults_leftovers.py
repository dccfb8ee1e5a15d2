"""What killed processes leave of the files of books goes; what living ones write stays."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pytest_django import Settings

from tests.workers.books.spoken_book import SpokenBook
from tests.workers.books.test_book_file_jobs import owner, spoken, worker
from workers import sweep
from workers.book_files.chapter_encodes import EncodeCache

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["owner", "spoken", "worker"]  # fixtures
KEY = "ab" * 32


def written(path: Path, *, seconds_ago: float) -> Path:
    """Write a file that was last changed so long ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"half")
    then = path.stat().st_mtime - seconds_ago
    os.utime(path, (then, then))
    return path


def test_half_written_chapters_of_killed_workers_are_removed(settings: Settings) -> None:
    folder = settings.DATA_DIR / "cache" / "chapters" / KEY[:2]
    lost = written(folder / ".1.part", seconds_ago=20 * settings.LEASE_SECONDS)
    fresh = written(folder / ".2.part", seconds_ago=settings.LEASE_SECONDS)
    sweep.tidy()
    assert (lost.exists(), fresh.exists()) == (False, True)


def test_chapters_whose_facts_were_never_written_are_removed_after_a_day(tmp_path: Path) -> None:
    cache = EncodeCache(tmp_path)
    lost = written(cache.path(KEY), seconds_ago=2 * 86_400)
    other = written(cache.path("cd" * 32), seconds_ago=3_600)
    whole = written(cache.path("ef" * 32), seconds_ago=2 * 86_400)
    cache.finish("ef" * 32, {})
    cache.trim()
    assert (lost.exists(), other.exists(), whole.exists()) == (False, True, True)


def test_folder_of_a_file_that_is_being_made_is_never_a_leftover(
    spoken: SpokenBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = EncodeCache.finish
    swept: list[int] = []

    def slowly(self: EncodeCache, key: str, facts: dict[str, Any]) -> dict[str, Any]:
        finished = finish(self, key, facts)
        swept.append(sweep.remove_old_temporaries(spoken.process.scratch))
        age_all(spoken.process.scratch)  # and it takes a day to encode the next chapter
        return finished

    monkeypatch.setattr(EncodeCache, "finish", slowly)
    spoken.made("chapters", format="flac")
    assert swept == [0, 0, 0]


def age_all(folder: Path) -> None:
    """Make everything in a folder a day old."""
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (path.stat().st_mtime - 86_400,) * 2)
