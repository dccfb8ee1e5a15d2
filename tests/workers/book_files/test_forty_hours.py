"""A book of forty hours is put together in little memory, many times faster than it plays."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers.book_files.made_books import probe

PROJECT = Path(__file__).resolve().parents[3]


@pytest.mark.thorough
def test_a_book_of_forty_hours_stays_under_300_mb(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tests.workers.book_files.forty_hours", str(tmp_path)],
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
