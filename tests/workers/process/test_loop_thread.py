"""A loop goes on after errors, wakes when it is rung, and says when it is broken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from workers.process.pump import LoopThread


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.005)


@pytest.fixture
def stop() -> threading.Event:
    return threading.Event()


def start(
    step: Callable[[], None],
    stop: threading.Event,
    *,
    seconds: float = 0.005,
    wake: threading.Event | None = None,
) -> LoopThread:
    thread = LoopThread("loop", step, seconds=seconds, stop=stop, wake=wake)
    thread.start()
    return thread


def test_error_does_not_end_the_loop(stop: threading.Event) -> None:
    calls: list[int] = []

    def step() -> None:
        calls.append(1)
        if len(calls) < 4:
            raise RuntimeError("surprise")

    thread = start(step, stop)
    wait_for(lambda: len(calls) > 5)

    assert thread.failures == 0
    stop.set()
    thread.join(5)


def test_ring_comes_before_the_clock(stop: threading.Event) -> None:
    calls: list[int] = []
    wake = threading.Event()
    thread = start(lambda: calls.append(1), stop, seconds=60, wake=wake)
    wait_for(lambda: len(calls) == 1)

    wake.set()
    wait_for(lambda: len(calls) == 2)

    stop.set()
    wake.set()
    thread.join(5)


def test_loop_that_fails_for_long_is_broken_and_one_that_failed_once_is_not(
    stop: threading.Event,
) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise RuntimeError("surprise")

    slow = start(fail, stop, seconds=60)
    wait_for(lambda: slow.failures == 1)
    assert not slow.has_failed_for(0.0)

    fast = start(fail, stop)
    wait_for(lambda: fast.has_failed_for(0.05))
    stop.set()


def test_thread_that_ended_unasked_is_broken(stop: threading.Event) -> None:
    thread = LoopThread("loop", lambda: None, seconds=1, stop=stop)

    assert thread.has_failed_for(60)
    stop.set()
    assert not thread.has_failed_for(60)
