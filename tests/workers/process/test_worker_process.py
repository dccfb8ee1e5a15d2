"""What a process with an engine sets for all its threads, and how these share the processor."""

from __future__ import annotations

import os
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from synth.models import RenderJob
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import Pair, new_voice, submit, wait_encoded, wait_ended
from ttsweb.work import Kind
from workers.process import worker_process
from workers.process.held_claims import MOST_AT_ONCE, HeldClaim, Room
from workers.process.worker_process import (
    MOST_UNSTORED,
    MOST_UNSTORED_PER_SLOT,
    SWITCH_SECONDS,
    WORKER_THREADS,
    Nicer,
    WorkerProcess,
    lower_priority,
)

on_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="threads have a niceness of their own on Linux"
)


def rendered(number: int) -> HeldClaim:
    """Return some segment that the engine has rendered."""
    return HeldClaim(number, uuid.uuid4(), kind=Kind.SEGMENT)


def hold(process: MiniatureProcess, number: int) -> None:
    """Have a process hold so many segments, each of a job of its own."""
    for pk in range(number):
        process.held.add(Kind.SEGMENT, pk, uuid.uuid4(), job_id=uuid.uuid4())


@pytest.fixture(autouse=True)
def interval() -> Iterator[float]:
    """Put Python's interval back behind a test; return what it was."""
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


@pytest.mark.parametrize("role", ["gpu", "all", "cpu"])
def test_an_engines_threads_get_the_interpreter_soon(role: str, interval: float) -> None:
    WorkerProcess(name="w1", role=role)

    expected = interval if role == "cpu" else pytest.approx(SWITCH_SECONDS)
    assert sys.getswitchinterval() == expected


def test_nothing_more_is_claimed_while_storing_lags_far_behind(process: MiniatureProcess) -> None:
    most = MOST_UNSTORED + MOST_UNSTORED_PER_SLOT * process.host.engine.slots
    for number in range(most):
        process.rendered.add(rendered(number), is_urgent=False)
    assert process.segment_room().any_class > 0

    process.rendered.add(rendered(most), is_urgent=True)
    assert process.segment_room() == Room(0, 0)

    process.rendered.take()
    assert process.segment_room().any_class > 0


def test_interactive_job_is_settled_beside_bulk_work_once_nothing_of_it_is_missing(
    process: MiniatureProcess,
) -> None:
    hold(process, 2 * process.host.engine.slots)  # the engine has enough to do
    job_id = uuid.uuid4()
    items = [rendered(number) for number in range(100, 103)]
    for item in items:
        item.job_id, item.priority = job_id, RenderJob.Priority.INTERACTIVE
        process.held._claims.add(item)
        process.held._unrendered.add(item)
    bulk = rendered(200)
    bulk.priority = RenderJob.Priority.BULK
    for item in (items[0], bulk, items[1]):
        process.note_rendered(item)
    assert (len(process.rendered), len(process.rendered_first)) == (3, 0)

    process.note_rendered(items[2])

    assert process.rendered_first.take() == items
    assert len(process.rendered) == 1
    assert process.waiting.qsize() == 2, "each has a run of its own"


@pytest.mark.parametrize(
    ("held", "waiting", "is_stopping", "all_store"),
    [
        (9, 0, False, False),
        (9, MOST_AT_ONCE // 2 - 1, False, False),
        (9, MOST_AT_ONCE // 2, False, True),  # storing lags
        (9, 0, True, True),
        (8, 0, False, True),  # no more than twice the slots: the engine leaves room
    ],
)
def test_one_thread_stores_beside_a_busy_engine_as_long_as_it_keeps_up(
    process: MiniatureProcess, held: int, waiting: int, is_stopping: bool, all_store: bool
) -> None:
    expected = WORKER_THREADS if all_store else 1
    hold(process, held)
    for number in range(waiting):
        process.rendered.add(rendered(number), is_urgent=False)
    if is_stopping:
        process.stopping.set()
    threads: set[int] = set()
    all_there = threading.Barrier(expected)

    def step(number: int) -> int:
        if threading.get_ident() not in threads:
            threads.add(threading.get_ident())
            all_there.wait(timeout=180)
        return number * 2

    assert process.store(step, range(20)) == [number * 2 for number in range(20)]
    assert len(threads) == expected


@pytest.mark.parametrize("why", ["impatient", "urgent"])
def test_others_help_one_that_stores_where_it_gets_no_time(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(worker_process, "PATIENCE_SECONDS", 0.1 if why == "impatient" else 60)
    hold(process, 9)
    release, lock, done = threading.Event(), threading.Lock(), []

    def step(number: int) -> int:
        if number == 0:  # the first one gets no time
            if why == "urgent":
                process.rendered.add(rendered(100), is_urgent=True)
            assert release.wait(timeout=180)
        with lock:
            done.append(number)
            if len(done) == 19:
                release.set()
        return number * 2

    assert process.store(step, range(20)) == [number * 2 for number in range(20)]
    assert done[-1] == 0


def niceness(_: int = 0) -> int:
    """Return that of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@on_linux
@pytest.mark.parametrize(
    ("role", "nicer"), [("all", Nicer.SERVING), ("gpu", Nicer.SERVING), ("cpu", 0)]
)
def test_threads_that_store_leave_the_processor_to_an_engine(role: str, nicer: int) -> None:
    own = niceness()
    process = WorkerProcess(name="w1", role=role)

    assert set(process.store(niceness, range(20))) == {min(own + nicer, 19)}
    assert niceness() == own


@on_linux
@pytest.mark.parametrize(("hears", "nicer"), [(False, Nicer.SPARE), (True, Nicer.SERVING)])
def test_one_that_stores_beside_a_busy_engine_takes_what_time_is_left(
    process: MiniatureProcess, hears: bool, nicer: Nicer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_process, "PATIENCE_SECONDS", 60.0)  # however slow the machine is
    own = niceness()
    process.speech._transcriber = Mock() if hears else None
    hold(process, 2 * process.host.engine.slots + 1)

    assert set(process.store(niceness, range(20))) == {min(own + nicer, 19)}
    assert niceness() == own


@on_linux
def test_thread_is_as_nice_whoever_started_it() -> None:
    own = niceness()
    found: list[int] = []

    def run_nicer(then: Callable[[], object]) -> None:
        def body() -> None:
            lower_priority(Nicer.SERVING)
            then()

        thread = threading.Thread(target=body)
        thread.start()
        thread.join()

    run_nicer(lambda: run_nicer(lambda: found.append(niceness())))

    assert found == [min(own + Nicer.SERVING, 19)]


@on_linux
def test_thread_that_may_not_be_nicer_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    own = niceness()
    monkeypatch.setattr(os, "setpriority", Mock(side_effect=PermissionError(1, "not permitted")))

    lower_priority(Nicer.SPARE)

    assert niceness() == own


@on_linux
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
