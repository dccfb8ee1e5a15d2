"""Test workers.process.worker_process: what a process with an engine sets for all its threads."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from synth.contract import RenderSpec
from synth.models import RenderJob
from tests.workers.conftest import MiniatureProcess
from ttsweb.work import Kind
from workers.process import worker_process
from workers.process.held_claims import HeldClaim, Room
from workers.process.worker_process import (
    MOST_UNSTORED,
    MOST_UNSTORED_PER_SLOT,
    SWITCH_SECONDS,
    WORKER_THREADS,
    WorkerProcess,
)
from workers.rendering.render_request import RenderRequest
from workers.rendering.rendered import MOST_AT_ONCE, Rendered


def rendered(number: int) -> Rendered:
    """Return what the engine made of some segment."""
    claim = HeldClaim(Kind.SEGMENT, number, uuid.uuid4())
    return Rendered(claim, RenderRequest(RenderSpec("Ox."), "key", priority=0), Future())


@pytest.fixture(autouse=True)
def interval() -> Iterator[float]:
    """Put Python's interval back behind a test; return what it was."""
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


@pytest.mark.parametrize("role", ["gpu", "all"])
def test_an_engines_threads_get_the_interpreter_soon(role: str) -> None:
    WorkerProcess(name="w1", role=role)

    assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)


def test_a_worker_of_files_leaves_the_interval_alone(interval: float) -> None:
    WorkerProcess(name="w1", role="cpu")

    assert sys.getswitchinterval() == interval


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
    for number in range(2 * process.host.engine.slots):  # the engine has enough to do
        process.held.add(Kind.SEGMENT, number, uuid.uuid4(), job_id=uuid.uuid4())
    job_id, interactive = uuid.uuid4(), RenderJob.Priority.INTERACTIVE
    items = [rendered(number) for number in range(100, 103)]
    for item in items:
        item.claim.job_id, item.claim.priority = job_id, interactive
        process.held._claims.add(item.claim)
        process.held._unrendered.add(item.claim)
    bulk = rendered(200)
    bulk.claim.priority = RenderJob.Priority.BULK
    process.note_rendered(items[0])
    process.note_rendered(bulk)
    process.note_rendered(items[1])
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
    for number in range(held):
        process.held.add(Kind.SEGMENT, number, uuid.uuid4(), job_id=uuid.uuid4())
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
    for number in range(9):
        process.held.add(Kind.SEGMENT, number, uuid.uuid4(), job_id=uuid.uuid4())
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
