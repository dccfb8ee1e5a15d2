"""Draw the waveform of a whole book of the waveforms of its chapters: nothing is decoded again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workers.book_files.chapter_encodes import ChapterFile


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
