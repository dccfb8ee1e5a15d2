"""Threads that serve an engine leave it the processor, those that must be on time do not."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import pytest

from synth.models import RenderJob
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import Pair, new_voice, submit, wait_encoded, wait_ended
from ttsweb.work import Kind
from workers.process import worker_process
from workers.process.worker_process import Nicer, WorkerProcess, lower_priority

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="threads have a niceness of their own on Linux"
)


def niceness(_: int = 0) -> int:
    """Return that of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.parametrize(
    ("role", "nicer"), [("all", Nicer.SERVING), ("gpu", Nicer.SERVING), ("cpu", 0)]
)
def test_threads_that_store_leave_the_processor_to_an_engine(role: str, nicer: int) -> None:
    own = niceness()
    process = WorkerProcess(name="w1", role=role)

    assert set(process.store(niceness, range(20))) == {min(own + nicer, 19)}
    assert niceness() == own


@pytest.mark.parametrize(("hears", "nicer"), [(False, Nicer.SPARE), (True, Nicer.SERVING)])
def test_one_that_stores_beside_a_busy_engine_takes_what_time_is_left(
    process: MiniatureProcess, hears: bool, nicer: Nicer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "PATIENCE_SECONDS", 60.0)  # however slow the machine is
    own = niceness()
    process.speech._transcriber = Mock() if hears else None
    for number in range(2 * process.host.engine.slots + 1):
        process.held.add(Kind.SEGMENT, number, uuid.uuid4())

    assert set(process.store(niceness, range(20))) == {min(own + nicer, 19)}
    assert niceness() == own


def test_thread_is_as_nice_whoever_started_it() -> None:
    own = niceness()
    found: list[int] = []

    def end() -> None:
        lower_priority(Nicer.SERVING)
        found.append(niceness())

    def begin() -> None:
        lower_priority(Nicer.SERVING)
        inner = threading.Thread(target=end)
        inner.start()
        inner.join()

    outer = threading.Thread(target=begin)
    outer.start()
    outer.join()

    assert found == [min(own + Nicer.SERVING, 19)]


def test_thread_that_may_not_be_nicer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    own = niceness()
    monkeypatch.setattr(os, "setpriority", refuse)

    lower_priority(Nicer.SPARE)

    assert niceness() == own


@pytest.mark.thorough
def test_working_worker_has_its_engine_before_what_serves_it(pair: Pair) -> None:
    worker = pair.start_worker().wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    wait_ended(submit(voice, sentences=3, priority=RenderJob.Priority.BULK))

    found = Counter(
        os.getpriority(os.PRIO_PROCESS, int(task.name))
        for task in Path(f"/proc/{worker.popen.pid}/task").iterdir()
    )

    own = niceness()
    assert found.pop(min(own + Nicer.SERVING, 19)) >= 1  # what stores
    assert found.pop(min(own + Nicer.SPARE, 19), 0) <= 1
    # The main thread, pump, sweep, heartbeat, status, the engine's three, the broker's, and what
    # begins and settles segments: while they write, all other writers wait for them.
    assert set(found) == {own}
    assert found[own] >= 11
