"""Test when waiting requests get slots: beside streams, and when the codec falls behind."""

from __future__ import annotations

import numpy as np
import pytest

from synth.engine.model.prefill import start_slots
from tests.synth.engine.engine_runs import Start, spec, wait_until, watch_frames


def test_prompts_keep_their_distance_while_a_stream_is_heard(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("synth.engine.slots.loop.MAX_PACK_POSITIONS", 1)  # one prompt in a pass
    engine = start(slots=8)
    frames = watch_frames(monkeypatch, is_open=False)
    begun: list[int] = []

    def note(*args: object) -> object:
        begun.append(frames.count)
        return start_slots(*args)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr("synth.engine.slots.batch.start_slots", note)
    stream = engine.stream(spec(max_frames=40), priority=0)
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    bulk = [engine.submit(spec(f"Number {n}.", max_frames=30), priority=10) for n in range(5)]
    frames.gate.set()
    for future in bulk:
        future.result(60)

    assert sum(len(chunk) for chunk in stream) == 40 * 2048
    gaps = np.diff(begun[1:6])
    assert list(gaps) == [4, 4, 4, 4]


def test_an_urgent_request_does_not_keep_that_distance(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=8)
    frames = watch_frames(monkeypatch, is_open=False)
    first = engine.stream(spec(max_frames=30), priority=0)
    wait_until(lambda: engine.describe()["slots_in_use"] == 1)
    engine.submit(spec(), priority=10)
    second = engine.submit(spec("Urgent too."), priority=0)

    frames.gate.set()
    second.result(60)

    assert frames.count < 30
    first.close()


def test_a_codec_that_falls_behind_holds_back_its_class_alone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=2)
    codec = engine._threads.codec
    codec._most_waiting = 10
    with codec.paused():
        futures = [engine.submit(spec(max_frames=6), priority=10) for _ in range(8)]
        wait_until(lambda: engine.describe()["codec_waiting_frames"] > 10)
        wait_until(lambda: engine.describe()["slots_in_use"] == 0)
        held_back = engine.describe()["waiting"]
        urgent = engine.submit(spec(max_frames=6), priority=0)
        wait_until(lambda: engine.describe()["codec_waiting_frames"] > 6 * (8 - held_back))

    assert held_back > 0
    assert urgent.result(60).codes.shape[1] == 6
    assert [future.result(60).codes.shape[1] for future in futures] == [6] * 8
