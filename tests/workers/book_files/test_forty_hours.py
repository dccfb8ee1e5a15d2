"""A book of forty hours is put together in little memory, many times faster than it plays."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from synth.contract import AudioArray
from tests.workers.book_files.made_books import AAC, FACTS, RATE, encoder, make_m4b, probe, pulses
from workers.book_files.book_audio import BookAudio, ChapterAudio
from workers.book_files.m4b import marks_of

PROJECT = Path(__file__).resolve().parents[3]
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


@pytest.mark.thorough
def test_a_book_of_forty_hours_stays_under_300_mb(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.workers.book_files.test_forty_hours", str(tmp_path)],
        cwd=PROJECT, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    assert found["audio_seconds"] > 40 * 3600
    assert found["peak_mb"] < 300
    assert found["splice_times_real_time"] > 1000
    assert found["encode_times_real_time"] > 5  # on a machine that has much else to do
    with probe(tmp_path / "book.m4b") as opened:
        assert abs(opened.duration / 1e6 - found["audio_seconds"]) < 0.1
        chapters = opened.chapters()
        last = chapters[-1]["start"] * chapters[-1]["time_base"]
        stream = opened.streams.audio[0]
        opened.seek(int(last / stream.time_base), stream=stream)
        assert next(opened.decode(stream)).time >= last - 0.1


if __name__ == "__main__":
    numbers = [float(one) for one in sys.argv[2:]] or [40.0, 0.1]
    sys.stdout.write(json.dumps(measured(Path(sys.argv[1]), *numbers)) + "\n")
