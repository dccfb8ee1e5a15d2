"""Time to the first audio beside other work: that there is other work."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from lab.bench import stream
from synth.contract import RenderSpec, SegmentAudio
from synth.engine import Engine
from synth.engine.errors import PromptTooLongError
from tests.lab.bench.bench_options import run

SIZES = ("--requests", "2", "--frames", "4", "--slots", "2", "--voice-frames", "6")
SMALL = (*SIZES, "--text-letters", "20")


def test_what_runs_beside_a_stream_fits_into_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    beside: list[Future[SegmentAudio]] = []
    submit = Engine.submit

    def note(engine: Engine, spec: RenderSpec, *, priority: int = 0) -> Future[SegmentAudio]:
        future = submit(engine, spec, priority=priority)
        if priority:
            beside.append(future)
        return future

    monkeypatch.setattr(Engine, "submit", note)

    report = run(stream, *SMALL, "--busy", "0,1")

    assert [row["busy_slots"] for row in report.rows] == [0, 0, 0, 1, 1, 1]
    assert beside
    assert all(future.cancelled() or future.exception() is None for future in beside)


def test_slots_that_could_not_be_kept_busy_are_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BUSY_TIMES", 10_000)
    monkeypatch.setattr(stream, "check_context", lambda shape, positions: None)
    with pytest.raises(PromptTooLongError):
        run(stream, *SMALL, "--busy", "1")
