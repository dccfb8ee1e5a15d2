"""Measure the chapters of a file that holds all of them, as its listeners hear it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workers.audio.written_audio import read_blocks
from workers.book_files.chapter_encodes import ChapterFile
from workers.book_files.chapter_levels import LevelMeter, Levels
from workers.mp4.file import Mark


def heard_chapters(
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
