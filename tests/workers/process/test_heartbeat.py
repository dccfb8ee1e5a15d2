"""Leases are renewed while work moves, and only then."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from synth.models import Export, Segment
from tests.factories import CODEC_FINGERPRINT, make_export, make_job
from tests.workers.conftest import MiniatureProcess
from ttsweb import leases
from ttsweb.work import Kind
from workers.process import pump as heartbeat_module
from workers.process.claiming import take_exports
from workers.process.pump import HUNG_BEATS, STILL_BEATS, Heartbeat

pytestmark = pytest.mark.django_db


class StandInEngine:
    """Moves when told to: a real engine cannot be made to hang."""

    codec_fingerprint = CODEC_FINGERPRINT
    slots = 4
    undecoded = 0

    def __init__(self) -> None:
        self.steps, self.is_busy = 0, True


@pytest.fixture
def engine() -> StandInEngine:
    return StandInEngine()


@pytest.fixture
def process(
    make_process: Callable[..., MiniatureProcess], engine: StandInEngine
) -> MiniatureProcess:
    """A process that holds the segments of one job, whose leases are nearly over."""
    from workers.process.claiming import take_segments

    made = make_process(engine=engine)
    make_job(segments=2)
    take_segments(made)
    age_leases()
    return made


def age_leases() -> None:
    soon = leases.database_now() + dt.timedelta(seconds=1)
    Segment.objects.filter(claim_token__isnull=False).update(lease_until=soon)
    Export.objects.filter(claim_token__isnull=False).update(lease_until=soon)


def are_renewed(rows: Any) -> bool:
    later = leases.database_now() + dt.timedelta(seconds=10)
    return all(row.lease_until > later for row in rows.objects.filter(claim_token__isnull=False))


def beat(heart: Heartbeat, times: int) -> None:
    for _ in range(times):
        heart.beat()


def test_moving_engine_renews_every_segment(
    process: MiniatureProcess, engine: StandInEngine
) -> None:
    heart = Heartbeat(process)

    for _ in range(2 * STILL_BEATS):
        engine.steps += 1
        age_leases()
        heart.beat()

    assert are_renewed(Segment)


def test_idle_engine_renews(process: MiniatureProcess, engine: StandInEngine) -> None:
    engine.is_busy = False
    heart = Heartbeat(process)

    beat(heart, 2 * STILL_BEATS)

    assert are_renewed(Segment)


def test_busy_engine_that_stands_still_lets_its_leases_run_out_but_not_those_of_files(
    process: MiniatureProcess,
) -> None:
    make_export(status="queued")
    take_exports(process)
    heart = Heartbeat(process)
    beat(heart, STILL_BEATS + 1)
    age_leases()

    beat(heart, 3)

    assert not are_renewed(Segment)
    assert are_renewed(Export)
    assert "no progress" in process.status.detail


def test_one_long_step_loses_nothing(process: MiniatureProcess, engine: StandInEngine) -> None:
    heart = Heartbeat(process)

    beat(heart, STILL_BEATS)
    engine.steps += 1
    age_leases()
    heart.beat()

    assert are_renewed(Segment)
    assert process.status.detail == ""


def test_engine_that_hangs_for_good_ends_the_process(
    process: MiniatureProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[str] = []
    monkeypatch.setattr(heartbeat_module, "end_process", reasons.append)
    heart = Heartbeat(process)

    beat(heart, HUNG_BEATS)
    assert reasons == []
    heart.beat()

    assert "does not respond" in reasons[0]


def test_claim_that_is_no_longer_ours_is_abandoned_and_its_batch_goes_on(
    process: MiniatureProcess,
) -> None:
    lost, kept = process.held.of(Kind.SEGMENT)
    Segment.objects.filter(pk=lost.pk).update(claim_token=None, status="queued")

    Heartbeat(process).beat()

    assert (lost.is_lost, kept.is_lost) == (True, False)
    assert are_renewed(Segment)
