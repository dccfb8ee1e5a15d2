"""The pump claims by itself, heeds a filling disk, and ends a process without a heart."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from django.db import OperationalError
from pytest_django import Settings

from synth.models import Segment, WorkerStatus
from tests.factories import make_ended_job, make_job, make_stored_clip, make_version
from tests.workers.conftest import MiniatureProcess
from ttsweb.work import Kind
from voices.models import CacheEviction
from workers.process import pump as pump_module
from workers.process.claiming import take_segments
from workers.process.pump import Pump, stop_unwanted, watch_disk

pytestmark = pytest.mark.django_db


def make_pump(process: MiniatureProcess, *, is_broken: bool = False) -> Pump:
    heart: Any = SimpleNamespace(has_failed_for=lambda seconds: is_broken)
    return Pump(process, heart)


def make_ready_job(process: MiniatureProcess, segments: int = 1) -> None:
    codec = process.host.engine.codec_fingerprint
    make_job(version=make_version(codec_fingerprint=codec), segments=segments)


def test_rows_that_no_message_brought_are_claimed(process: MiniatureProcess) -> None:
    make_ready_job(process)

    make_pump(process).step()

    assert Segment.objects.get().claimed_by == "mini"


def test_status_row_says_what_is_in_flight(process: MiniatureProcess) -> None:
    make_ready_job(process, segments=2)

    make_pump(process).step()

    row = WorkerStatus.objects.get(pk="mini")
    assert row.figures["segments_in_flight"] == 2
    assert row.figures["slots"] == 4


def test_nearly_full_disk_stops_claiming_and_says_so_until_there_is_room(
    process: MiniatureProcess, settings: Settings
) -> None:
    make_ready_job(process)
    settings.MIN_FREE_BYTES = 10**15
    pump = make_pump(process)

    pump.step()
    assert Segment.objects.get().status == "queued"
    assert "and it needs" in WorkerStatus.objects.get(pk="mini").detail

    settings.MIN_FREE_BYTES = 0
    process._paused_until = 0
    watch_disk(process)
    make_pump(process).step()
    assert Segment.objects.get().status == "claimed"
    assert WorkerStatus.objects.get(pk="mini").detail == ""


def test_eviction_reaches_memory(process: MiniatureProcess) -> None:
    clip = make_stored_clip()
    assert process.codes is not None
    pump = make_pump(process)
    pump.step()
    codes = np.zeros((10, 3), dtype=np.int16)
    process.codes.cache.put((clip.fingerprint, "c"), codes, epoch=process.codes.cache.epoch)

    CacheEviction.objects.create(clip_fingerprint=clip.fingerprint)
    pump._next_care = 0
    pump.step()

    assert len(process.codes.cache) == 0


def test_a_hungry_engine_gets_segments_at_once_and_other_work_is_looked_for_in_its_time(
    process: MiniatureProcess, settings: Settings
) -> None:
    settings.PUMP_SECONDS = 3600.0
    pump = make_pump(process)
    pump.step()
    export = make_ended_job().exports.get()
    export.status = "queued"
    export.save()
    make_ready_job(process)

    pump.step()  # as when the engine rings
    assert Segment.objects.get(job__status="running").claimed_by == "mini"
    export.refresh_from_db()
    assert export.status == "queued"

    process.look_for_work()
    assert process.wake.is_set()
    pump.step()
    export.refresh_from_db()
    assert export.status == "claimed"


def test_while_a_suspect_runs_alone_every_step_looks_whether_it_has_ended(
    process: MiniatureProcess, settings: Settings
) -> None:
    settings.PUMP_SECONDS = 3600.0
    pump = make_pump(process)
    pump.step()
    process.is_isolating = True  # of one that has just ended
    make_ready_job(process)

    pump.step()

    assert not process.is_isolating
    assert Segment.objects.get().claimed_by == "mini"


def test_held_row_that_is_gone_or_taken_is_abandoned(process: MiniatureProcess) -> None:
    make_ready_job(process, segments=3)
    take_segments(process)
    gone, taken, ours = sorted(process.held.of(Kind.SEGMENT), key=lambda claim: claim.pk)
    Segment.objects.filter(pk=gone.pk).delete()
    Segment.objects.filter(pk=taken.pk).update(claim_token=None)

    stop_unwanted(process)

    assert (gone.is_lost, taken.is_lost, ours.is_lost) == (True, True, False)


@pytest.mark.parametrize(("holds", "is_broken"), [(True, True), (False, True), (True, False)])
def test_process_whose_heart_stopped_ends_if_it_holds_work(
    process: MiniatureProcess,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    holds: bool,
    is_broken: bool,
) -> None:
    ends: list[str] = []
    monkeypatch.setattr(pump_module, "end_process", ends.append)
    settings.LEASE_SECONDS = 0.05
    if holds:
        make_ready_job(process)
    pump = make_pump(process, is_broken=is_broken)

    pump.step()
    assert ends == []
    time.sleep(0.06)
    pump.step()

    assert bool(ends) is (holds and is_broken)


def test_heart_that_failed_with_the_whole_database_is_given_time(
    process: MiniatureProcess, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[str] = []
    monkeypatch.setattr(pump_module, "end_process", ends.append)
    settings.LEASE_SECONDS = 0.05
    make_ready_job(process)
    pump = make_pump(process, is_broken=True)
    pump.step()
    time.sleep(0.06)

    with monkeypatch.context() as patch:
        patch.setattr(pump_module, "take_work", _away)
        patch.setattr(pump_module, "take_segments", _away)
        with pytest.raises(OperationalError):
            pump.step()
    pump.step()

    assert ends == []


def _away(process: object) -> int:
    raise OperationalError("away")


def test_worker_of_files_needs_no_engine(make_process: Callable[..., MiniatureProcess]) -> None:
    process = make_process(engine=None, role="cpu")

    make_pump(process).step()

    assert process.codes is None
    assert WorkerStatus.objects.get(pk="mini").role == "cpu"
