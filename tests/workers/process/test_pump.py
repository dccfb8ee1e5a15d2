"""The pump claims by itself and heeds a filling disk; leases are renewed while work moves."""

from __future__ import annotations

import datetime as dt
import errno
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from django.db import OperationalError
from pytest_django import Settings

from synth.engine import EngineError
from synth.models import Export, Segment, WorkerStatus
from tests.factories import (
    CODEC_FINGERPRINT,
    make_ended_job,
    make_export,
    make_job,
    make_stored_clip,
    make_voice,
    stored,
)
from tests.workers.conftest import MiniatureProcess
from tests.workers.pairs import wait_for
from tests.workers.process.conftest import ready_job, segments_of
from ttsweb import leases
from ttsweb.work import Kind
from voices.models import CacheEviction
from workers.process import pump as pump_module
from workers.process.claiming import take, take_exports, take_segments, take_work
from workers.process.pump import (
    HUNG_BEATS,
    STILL_BEATS,
    EngineKeeper,
    Heartbeat,
    LoopThread,
    Pump,
    ThreadWatch,
    UnwantedStop,
    stop_unwanted,
    watch_disk,
)

pytestmark = pytest.mark.django_db


def make_pump(process: MiniatureProcess, *, is_broken: bool = False) -> Pump:
    heart: Any = SimpleNamespace(has_failed_for=lambda seconds: is_broken)
    return Pump(process, heart)


@pytest.fixture
def pump(process: MiniatureProcess) -> Pump:
    return make_pump(process)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why the process would have ended."""
    reasons: list[str] = []
    monkeypatch.setattr(pump_module, "end_process", reasons.append)
    return reasons


def status() -> WorkerStatus:
    return WorkerStatus.objects.get(pk="mini")


def test_rows_that_no_message_brought_are_claimed_and_told(
    process: MiniatureProcess, pump: Pump
) -> None:
    ready_job(process, 2)

    pump.step()

    assert set(Segment.objects.values_list("claimed_by", flat=True)) == {"mini"}
    assert (status().figures["segments_in_flight"], status().figures["slots"]) == (2, 4)


def test_nearly_full_disk_stops_claiming_and_says_so_until_there_is_room(
    process: MiniatureProcess, pump: Pump, settings: Settings
) -> None:
    ready_job(process)
    settings.MIN_FREE_BYTES = 10**15

    pump.step()
    assert Segment.objects.get().status == "queued"
    assert "and it needs" in status().detail

    settings.MIN_FREE_BYTES = 0
    process._paused_until = 0
    watch_disk(process, process.site.care().trouble)
    make_pump(process).step()
    assert Segment.objects.get().status == "claimed"
    assert status().detail == ""


def test_eviction_reaches_memory(process: MiniatureProcess, pump: Pump) -> None:
    clip = make_stored_clip()
    assert process.codes is not None
    cache = process.codes.cache
    pump.step()
    cache.put((clip.fingerprint, "c"), np.zeros((10, 3), dtype=np.int16), epoch=cache.epoch)

    CacheEviction.objects.create(clip_fingerprint=clip.fingerprint)
    pump._next_care = 0
    pump.step()

    assert len(cache) == 0


def test_a_hungry_engine_gets_segments_at_once_and_other_work_is_looked_for_in_its_time(
    process: MiniatureProcess, pump: Pump, settings: Settings
) -> None:
    settings.PUMP_SECONDS = 3600.0
    pump.step()
    export = make_ended_job().exports.get()
    Export.objects.update(status="queued")
    ready_job(process)

    pump.step()  # as when the engine rings
    assert Segment.objects.get(job__status="running").claimed_by == "mini"
    assert stored(export, "status") == ("queued",)

    process.look_for_work(Kind.DELIVERY)
    pump.step()  # of another kind
    assert stored(export, "status") == ("queued",)

    process.look_for_work(Kind.EXPORT)
    assert process.wake.is_set()
    pump.step()
    assert stored(export, "status") == ("claimed",)


def test_while_a_suspect_runs_alone_every_step_looks_whether_it_has_ended(
    process: MiniatureProcess, pump: Pump, settings: Settings
) -> None:
    settings.PUMP_SECONDS = 3600.0
    pump.step()
    process.is_isolating = True  # of one that has just ended
    ready_job(process)

    pump.step()

    assert not process.is_isolating
    assert Segment.objects.get().claimed_by == "mini"


def test_held_row_that_is_gone_or_taken_is_abandoned(process: MiniatureProcess) -> None:
    ready_job(process, 3)
    take_segments(process)
    gone, taken, ours = segments_of(process)
    Segment.objects.filter(pk=gone.pk).delete()
    Segment.objects.filter(pk=taken.pk).update(claim_token=None)

    stop_unwanted(process)

    assert (gone.is_lost, taken.is_lost, ours.is_lost) == (True, True, False)


@pytest.mark.parametrize("kind", Kind)
def test_held_work_of_every_kind_is_abandoned_when_its_row_is_gone(
    process: MiniatureProcess, kind: Kind
) -> None:
    pk = 2**40 if kind is Kind.SEGMENT else uuid.uuid4()
    claim = process.held.add(kind, pk, uuid.uuid4())

    stop_unwanted(process)

    assert claim.is_lost


def test_held_work_is_looked_at_with_each_step_while_somebody_listens(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.process.pump.STOP_SECONDS", 3600.0)
    stop = UnwantedStop(process)
    stop.step()
    ready_job(process)
    take_segments(process)
    [claim] = segments_of(process)
    Segment.objects.update(claim_token=None)

    stop.step()
    assert not claim.is_lost
    claim.take_id = uuid.uuid4()
    stop.step()

    assert claim.is_lost


@pytest.mark.parametrize(("holds", "is_broken"), [(True, True), (False, True), (True, False)])
def test_process_whose_heart_stopped_ends_if_it_holds_work(
    process: MiniatureProcess, settings: Settings, ends: list[str], holds: bool, is_broken: bool
) -> None:
    settings.LEASE_SECONDS = 0.05
    if holds:
        ready_job(process)
    pump = make_pump(process, is_broken=is_broken)

    pump.step()
    assert ends == []
    time.sleep(0.06)
    pump.step()

    assert bool(ends) is (holds and is_broken)


def test_heart_that_failed_with_the_whole_database_is_given_time(
    process: MiniatureProcess, settings: Settings, ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.LEASE_SECONDS = 0.05
    ready_job(process)
    pump = make_pump(process, is_broken=True)
    pump.step()
    time.sleep(0.06)

    def away(*_: object) -> int:
        raise OperationalError("away")

    with monkeypatch.context() as patch:
        patch.setattr(pump_module, "take_work", away)
        with pytest.raises(OperationalError):
            pump.step()
    pump.step()

    assert ends == []


def test_worker_of_files_needs_no_engine(make_process: Callable[..., MiniatureProcess]) -> None:
    process = make_process(engine=None, role="cpu")

    make_pump(process).step()

    assert (process.codes, status().role) == (None, "cpu")


class StandInEngine:
    """Moves when told to: a real engine cannot be made to hang."""

    codec_fingerprint = CODEC_FINGERPRINT
    slots = 4
    undecoded = 0

    def __init__(self) -> None:
        self.steps, self.is_busy = 0, True


@pytest.fixture
def stand_in() -> StandInEngine:
    return StandInEngine()


@pytest.fixture
def holding(
    make_process: Callable[..., MiniatureProcess], stand_in: StandInEngine
) -> MiniatureProcess:
    """A process that holds the segments of one job, whose leases are nearly over."""
    process = make_process(engine=stand_in)
    make_job(segments=2)
    take_segments(process)
    age_leases()
    return process


def age_leases() -> None:
    soon = leases.database_now() + dt.timedelta(seconds=1)
    for model in (Segment, Export):
        model._default_manager.filter(claim_token__isnull=False).update(lease_until=soon)


def are_renewed(rows: Any) -> bool:
    later = leases.database_now() + dt.timedelta(seconds=10)
    return all(row.lease_until > later for row in rows.objects.filter(claim_token__isnull=False))


def beat(heart: Heartbeat, times: int) -> None:
    for _ in range(times):
        heart.beat()


@pytest.mark.parametrize("is_busy", [True, False])
def test_moving_or_idle_engine_renews_every_segment(
    holding: MiniatureProcess, stand_in: StandInEngine, is_busy: bool
) -> None:
    stand_in.is_busy = is_busy
    heart = Heartbeat(holding)

    for _ in range(2 * STILL_BEATS):
        stand_in.steps += is_busy
        age_leases()
        heart.beat()

    assert are_renewed(Segment)


def test_busy_engine_that_stands_still_lets_its_leases_run_out_but_not_those_of_files(
    holding: MiniatureProcess,
) -> None:
    make_export(status="queued")
    take_exports(holding)
    heart = Heartbeat(holding)
    beat(heart, STILL_BEATS + 1)
    age_leases()

    beat(heart, 3)

    assert (are_renewed(Segment), are_renewed(Export)) == (False, True)
    assert "no progress" in holding.status.detail


def test_engine_that_stands_still_gets_nothing_more_until_it_moves(
    holding: MiniatureProcess, stand_in: StandInEngine
) -> None:
    heart, before = Heartbeat(holding), set(holding.held.of(*Kind))
    beat(heart, STILL_BEATS + 1)
    make_job(segments=1)
    make_voice(ready=False)
    make_export(status="queued")

    def taken() -> set[Kind]:
        take_work(holding)
        take_segments(holding)  # as for a message
        take(holding, Kind.VERSION)
        return {claim.kind for claim in set(holding.held.of(*Kind)) - before}

    assert taken() == {Kind.EXPORT}
    stand_in.steps += 1
    heart.beat()
    assert taken() == {Kind.EXPORT, Kind.SEGMENT, Kind.VERSION}


def test_one_long_step_loses_nothing(holding: MiniatureProcess, stand_in: StandInEngine) -> None:
    heart = Heartbeat(holding)

    beat(heart, STILL_BEATS)
    stand_in.steps += 1
    age_leases()
    heart.beat()

    assert are_renewed(Segment)
    assert holding.status.detail == ""


def test_engine_that_hangs_for_good_ends_the_process(
    holding: MiniatureProcess, ends: list[str]
) -> None:
    heart = Heartbeat(holding)

    beat(heart, HUNG_BEATS)
    assert ends == []
    heart.beat()

    assert "does not respond" in ends[0]


def test_claim_that_is_no_longer_ours_is_abandoned_and_its_batch_goes_on(
    holding: MiniatureProcess,
) -> None:
    lost, kept = segments_of(holding)
    Segment.objects.filter(pk=lost.pk).update(claim_token=None, status="queued")

    Heartbeat(holding).beat()

    assert (lost.is_lost, kept.is_lost) == (True, False)
    assert are_renewed(Segment)


Start = Callable[..., LoopThread]


@pytest.fixture
def start() -> Iterator[Start]:
    """A function that starts a loop, which ends with the test."""
    stop = threading.Event()

    def begin(step: Callable[[], object], *, seconds: float = 0.005, **how: Any) -> LoopThread:
        thread = LoopThread("loop", step, seconds=seconds, stop=stop, **how)
        thread.start()
        return thread

    yield begin
    stop.set()


def test_error_does_not_end_the_loop(start: Start) -> None:
    calls: list[int] = []

    def step() -> None:
        calls.append(1)
        if len(calls) < 4:
            raise RuntimeError("surprise")

    thread = start(step)
    wait_for(lambda: len(calls) > 5, what="the loop goes on")

    assert thread.failures == 0


def test_outage_is_told_in_one_line_and_a_mistake_with_its_place(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    errors = [OSError(errno.EIO, "no disk"), ValueError("wrong")]

    def step() -> None:
        if errors:
            raise errors.pop(0)

    start(step)
    wait_for(lambda: len(caplog.records) == 2, what="both are told")

    outage, mistake = caplog.records
    assert (outage.levelname, outage.exc_info) == ("WARNING", None)
    assert "waits for an outage to end" in outage.getMessage()
    assert mistake.levelname == "ERROR" and mistake.exc_info is not None


def test_ring_comes_before_the_clock(start: Start) -> None:
    calls: list[int] = []
    wake = threading.Event()
    thread = start(lambda: calls.append(1), seconds=3600, wake=wake)
    wait_for(lambda: len(calls) == 1, what="the first step")

    wake.set()
    wait_for(lambda: len(calls) == 2, what="the second step")

    thread._stopper.set()
    wake.set()
    thread.join(30)


def test_step_says_when_it_is_to_be_called_again(start: Start) -> None:
    calls: list[int] = []

    def step() -> float | None:
        calls.append(1)
        return 0.01 if len(calls) < 3 else None

    start(step, seconds=3600)
    wait_for(lambda: len(calls) == 3, what="it is called again long before its time")


def test_loop_that_fails_for_long_is_broken_and_one_that_failed_once_is_not(start: Start) -> None:
    def fail() -> None:
        raise RuntimeError("surprise")

    slow = start(fail, seconds=60)
    wait_for(lambda: slow.failures == 1, what="the slow one fails")
    assert not slow.has_failed_for(0.0)

    fast = start(fail)
    wait_for(lambda: fast.has_failed_for(0.05), what="the fast one is broken")


def test_thread_that_ended_unasked_is_broken() -> None:
    stop = threading.Event()
    thread = LoopThread("loop", lambda: None, seconds=1, stop=stop)

    assert thread.has_failed_for(60)
    stop.set()
    assert not thread.has_failed_for(60)


def idle_keeper(process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Mock]:
    """Return what looks after an engine that was last used long ago, and its `release`."""
    release = Mock()  # the engine is one of all tests
    monkeypatch.setattr(process.host, "release", release)
    keeper = EngineKeeper(process)
    keeper._used_at -= 1000
    return keeper, release


def test_engine_without_work_is_let_go_of_only_where_a_setting_says_so(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    keeper, release = idle_keeper(process, monkeypatch)
    keeper.step()
    assert not release.called

    settings.IDLE_UNLOAD_SECONDS = 900.0
    keeper, release = idle_keeper(process, monkeypatch)
    keeper.step()
    assert release.called
    assert status().state == "unloaded"


def test_engine_that_works_or_is_about_to_stays(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    settings.IDLE_UNLOAD_SECONDS = 900.0
    keeper, release = idle_keeper(process, monkeypatch)
    with process.held.holding(Kind.VERSION, uuid.uuid4(), uuid.uuid4()):
        keeper.step()
    ready_job(process)
    keeper._used_at -= 1000
    keeper.step()

    assert not release.called


def test_load_that_fails_is_told_and_tried_again(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready_job(process)
    engine, host = process.host.engine, process.host
    host._engine, host._codec_fingerprint = None, engine.codec_fingerprint
    process.status.state = WorkerStatus.State.UNLOADED
    monkeypatch.setattr(
        host, "start", Mock(side_effect=[EngineError("No memory is left."), engine])
    )
    keeper = EngineKeeper(process)

    def load() -> None:
        keeper.step()
        assert keeper._loading is not None
        keeper._loading.join()

    load()
    assert process.status.state == "failed"
    assert process.status.detail.endswith("every half minute. No memory is left.")
    keeper.step()  # not yet
    assert process.status.state == "failed"

    keeper._next_load_at = 0.0
    load()
    assert (process.status.state, process.status.detail) == ("ready", "")


def test_load_that_ends_in_a_drain_makes_nothing_ready(process: MiniatureProcess) -> None:
    process.status.state = WorkerStatus.State.DRAINING
    process.status.state = WorkerStatus.State.READY
    assert process.status.state == "draining"


@pytest.mark.parametrize("how", ["hangs", "is gone"])
def test_process_ends_where_a_thread_can_claim_or_renew_nothing_more(
    how: str, ends: list[str]
) -> None:
    stop, blocked, steps = threading.Event(), threading.Event(), iter(range(3))

    def step() -> None:
        if next(steps, None) is None:
            if how == "is gone":
                raise SystemExit  # what no loop catches
            blocked.wait(60)

    thread = LoopThread("pump", step, seconds=0.001, stop=stop)
    watch = ThreadWatch([thread], looks=3)
    thread.start()
    wait_for(lambda: thread.steps == 3, what="it steps")
    if how == "is gone":
        thread.join(60)
    for _ in range(4):
        watch.look()
    if how == "hangs":
        assert not ends, "one more step was allowed that long"
    watch.look()

    assert how in ends[0]
    blocked.set()
    stop.set()


def test_threads_that_step_now_and_then_are_left_alone(ends: list[str]) -> None:
    thread = Mock(steps=0)
    watch = ThreadWatch([thread], looks=3)

    for number in range(20):
        thread.steps = number // 3
        watch.look()

    assert not ends
