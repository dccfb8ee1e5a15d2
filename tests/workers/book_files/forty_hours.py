"""Make a book of forty hours in this process, and say how much memory and time it took.

    python -m tests.workers.book_files.forty_hours FOLDER [HOURS ENCODED]

Of its chapters a few are encoded (ENCODED hours), the others are the same again under other
titles: what a chapter needs in memory does not depend on how many there are, while the file's index
does.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from synth.contract import AudioArray
from tests.workers.book_files.made_books import AAC, FACTS, RATE, encoder, make_m4b, pulses
from workers.book_files.book_audio import BookAudio, ChapterAudio
from workers.book_files.m4b import marks_of

CHAPTER_MINUTES = 20


def measured(folder: Path, hours: float, encoded_hours: float) -> dict[str, float]:
    """Return seconds of audio and of work, and the greatest resident size in MB."""
    base = _greatest_mb()
    minute = np.tile(pulses(2.0), 30)
    minutes = CHAPTER_MINUTES if encoded_hours >= 1 else 60 * encoded_hours

    def blocks(seed: int) -> Iterator[AudioArray]:
        for number in range(round(minutes)):
            yield np.roll(minute, 1000 * (seed + number))

    count = round(60 * hours / minutes)
    different = max(1, round(60 * encoded_hours / minutes))
    chapters = tuple(
        ChapterAudio(
            f"Chapter {index + 1}",
            lambda seed=index % different: blocks(seed),  # type: ignore[misc]  # bound for each
            (),
            content_key=str(index % different),
        )
        for index in range(count)
    )
    work, book = encoder(folder), BookAudio(FACTS, chapters, RATE)
    start = time.perf_counter()
    for index in range(different):
        work.chapter(book, index, AAC)
    encoded_at = time.perf_counter()
    marks = marks_of(make_m4b(folder / "book.m4b", book, work))
    end = time.perf_counter()
    audio = marks[-1].end / RATE
    encoded_audio = marks[different - 1].end / RATE
    return {
        "audio_seconds": round(audio, 1),
        "peak_mb": round(_greatest_mb(), 1),
        "start_mb": round(base, 1),
        "encode_times_real_time": round(encoded_audio / (encoded_at - start), 1),
        "splice_times_real_time": round(audio / (end - encoded_at), 1),
        "splice_seconds": round(end - encoded_at, 2),
        "encoded": work.encoded,
        "reused": work.reused,
    }


def _greatest_mb() -> float:
    """Return the greatest resident size of this program; `ru_maxrss` may be its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


if __name__ == "__main__":
    numbers = [float(one) for one in sys.argv[2:]] or [40.0, 0.1]
    sys.stdout.write(json.dumps(measured(Path(sys.argv[1]), *numbers)) + "\n")
