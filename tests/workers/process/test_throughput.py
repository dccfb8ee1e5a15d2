"""The figures of a worker: frames per second and memory."""

from __future__ import annotations

from workers.process.status import WINDOW_SECONDS, FrameRate, resident_bytes


def test_rate_is_that_of_the_last_half_minute() -> None:
    rate = FrameRate()

    assert rate.note(0, now=0.0) == 0.0
    assert rate.note(100, now=10.0) == 10.0
    assert rate.note(100, now=10.0 + WINDOW_SECONDS) == 0.0


def test_count_that_begins_again_is_another_engine() -> None:
    rate = FrameRate()
    rate.note(1000, now=0.0)
    rate.note(2000, now=10.0)

    assert rate.note(5, now=11.0) == 0.0
    assert rate.note(15, now=12.0) == 10.0


def test_a_process_holds_some_memory() -> None:
    found = resident_bytes()

    assert found is None or 10_000_000 < found < 10**12
