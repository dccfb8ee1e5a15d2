"""A worker claims what it can use and no more; a suspect runs alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.utils import timezone

from synth.engine import Engine
from synth.models import RenderJob, Segment
from tests.factories import make_export, make_job, make_version, make_voice
from tests.workers.conftest import MiniatureProcess
from ttsweb.work import Kind
from voices.models import VoiceVersion
from workers.process.claiming import note_last_losses, take, take_exports, take_segments, take_work
from workers.process.held_claims import HeldClaim

pytestmark = pytest.mark.django_db


@pytest.fixture
def codec(process: MiniatureProcess) -> str:
    return process.host.engine.codec_fingerprint


@pytest.fixture
def two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine say that it has two slots; nothing is rendered here."""
    monkeypatch.setattr(Engine, "slots", 2)


def make_ready_job(codec: str, segments: int) -> None:
    make_job(version=make_version(codec_fingerprint=codec), segments=segments)


def test_no_more_segments_are_held_than_keep_the_engine_busy(
    process: MiniatureProcess, codec: str, two_slots: None
) -> None:
    make_ready_job(codec, 6)

    assert take_segments(process) == 4
    assert take_segments(process) == 0
    process.held.drop(process.held.of(Kind.SEGMENT)[0])
    assert take_segments(process) == 1


def test_rendered_segment_makes_room_before_it_is_settled(
    process: MiniatureProcess, codec: str, two_slots: None
) -> None:
    make_ready_job(codec, 6)
    take_segments(process)

    process.held.note_rendered(process.held.of(Kind.SEGMENT)[0])

    assert take_segments(process) == 1
    assert process.held.count(Kind.SEGMENT) == 5


def test_bulk_work_that_fills_a_worker_leaves_room_for_an_interactive_job(
    process: MiniatureProcess, codec: str, two_slots: None
) -> None:
    version = make_version(codec_fingerprint=codec)
    bulk = make_job(version=version, segments=9, priority=RenderJob.Priority.BULK)
    take_segments(process)
    urgent = make_job(version=version, segments=9)

    assert take_segments(process) == 4

    claims = process.held.of(Kind.SEGMENT)
    assert [claim.job_id for claim in claims].count(bulk.pk) == 4
    assert {claim.priority for claim in claims if claim.job_id == urgent.pk} == {0}
    assert take_segments(process) == 0, "an interactive job's claims are bounded as well"


def test_interactive_segments_begin_before_bulk_ones(process: MiniatureProcess, codec: str) -> None:
    version = make_version(codec_fingerprint=codec)
    make_job(version=version, segments=2, priority=RenderJob.Priority.BULK)
    urgent = make_job(version=version, segments=2)
    begun: list[list[HeldClaim]] = []
    process.run = lambda claims, work, *arguments: begun.append(list(claims))  # type: ignore[method-assign]

    assert take_segments(process) == 4

    assert [{claim.job_id for claim in batch} == {urgent.pk} for batch in begun] == [True, False]


def test_segment_of_another_codec_is_left_to_others(process: MiniatureProcess) -> None:
    make_ready_job("other" * 12, 1)

    assert take_segments(process) == 0


@pytest.mark.parametrize(
    ("role", "taken"), [("cpu", {Kind.EXPORT}), ("gpu", {Kind.VERSION, Kind.SEGMENT})]
)
def test_role_takes_its_own_kind_of_work(
    make_process: Callable[..., MiniatureProcess], codec: str, role: str, taken: set[Kind]
) -> None:
    make_ready_job(codec, 1)
    make_voice(ready=False)
    make_export(status="queued")
    process = make_process(role=role)

    take_work(process)

    assert {claim.kind for claim in process.held.of(*Kind)} == taken


def test_worker_without_a_warm_engine_claims_nothing_for_it(
    make_process: Callable[..., MiniatureProcess], codec: str
) -> None:
    make_ready_job(codec, 1)
    make_voice(ready=False)
    process = make_process(engine=None)

    assert (take_segments(process), take(process, Kind.VERSION), take_work(process)) == (0, 0, 0)


@pytest.mark.parametrize("reason", ["stopping", "pause"])
def test_worker_that_stops_or_pauses_claims_nothing(
    process: MiniatureProcess, codec: str, reason: str
) -> None:
    make_ready_job(codec, 1)
    make_export(status="queued")
    if reason == "stopping":
        process.stopping.set()
    else:
        process.pause_claims("The disk is full.")

    assert take_work(process) + take_segments(process) + take_exports(process) == 0
    assert set(Segment.objects.values_list("status", flat=True)) == {"queued"}


def test_segment_on_its_last_attempt_runs_alone(process: MiniatureProcess, codec: str) -> None:
    make_ready_job(codec, 3)
    make_voice(ready=False)
    first, suspect, _ = Segment.objects.order_by("pk")
    later = Segment.objects.exclude(pk=first.pk)
    later.update(not_before=first.not_before + dt.timedelta(hours=1))
    assert take_segments(process) == 1
    later.update(not_before=first.not_before)
    Segment.objects.filter(pk=suspect.pk).update(attempts=2)

    assert take_work(process) == 0, "something was taken beside a waiting suspect"
    assert take_segments(process) == 0, "a message broke the isolation"
    process.held.drop(process.held.of(Kind.SEGMENT)[0])
    take_work(process)
    assert [claim.pk for claim in process.held.of(*Kind)] == [suspect.pk]
    take_work(process)
    assert take(process, Kind.VERSION) == 0
    assert len(process.held) == 1

    process.held.drop(process.held.of(Kind.SEGMENT)[0])
    take_work(process)
    assert process.held.count(Kind.VERSION) == 1
    assert process.held.count(Kind.SEGMENT) == 1


def test_version_on_its_last_attempt_runs_alone(process: MiniatureProcess) -> None:
    for _ in range(2):
        make_voice(ready=False)
    suspect = VoiceVersion.objects.order_by("created_at")[1]
    VoiceVersion.objects.filter(pk=suspect.pk).update(attempts=2)

    take_work(process)

    assert [claim.pk for claim in process.held.of(*Kind)] == [suspect.pk]


@pytest.fixture
def four_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine say that it has four slots; nothing is rendered here."""
    monkeypatch.setattr(Engine, "slots", 4)


def held_pks(process: MiniatureProcess) -> set[int]:
    return {claim.pk for claim in process.held.of(Kind.SEGMENT)}


def test_segments_lost_once_run_among_half_as_many_and_others_with_them(
    process: MiniatureProcess, codec: str, four_slots: None
) -> None:
    make_ready_job(codec, 12)
    keys = list(Segment.objects.order_by("pk").values_list("pk", flat=True))
    Segment.objects.filter(pk__in=keys[:3]).update(losses=1)

    take_work(process)
    assert held_pks(process) == set(keys[:2])
    take_work(process)
    assert len(process.held) == 2, "a suspect has more beside it"

    process.held.drop(process.held.of(Kind.SEGMENT)[0])
    Segment.objects.filter(pk=keys[0]).update(status="done")
    take_work(process)
    assert len(process.held) == 2

    Segment.objects.filter(pk__in=keys[:3]).update(status="done")
    for claim in process.held.of(Kind.SEGMENT):
        process.held.drop(claim)
    take_work(process)
    assert len(process.held) == 8, "with no suspect left the worker holds as many as ever"


def test_suspects_come_before_what_was_never_lost(
    process: MiniatureProcess, codec: str, four_slots: None
) -> None:
    make_ready_job(codec, 12)
    keys = list(Segment.objects.order_by("pk").values_list("pk", flat=True))
    Segment.objects.filter(pk__in=keys[7:9]).update(losses=1)

    take_work(process)

    assert held_pks(process) == set(keys[7:9])


@pytest.mark.parametrize(("lost", "losses", "most"), [(9, 1, 2), (2, 1, 1), (1, 1, 1), (9, 3, 1)])
def test_worker_begins_with_half_of_what_the_one_before_it_lost(
    process: MiniatureProcess, codec: str, four_slots: None, lost: int, losses: int, most: int
) -> None:
    make_ready_job(codec, 12)
    Segment.objects.update(losses=0)
    first = list(Segment.objects.order_by("pk").values_list("pk", flat=True)[:lost])
    Segment.objects.filter(pk__in=first).update(losses=losses, claimed_by=process.name)
    note_last_losses(process)
    Segment.objects.filter(pk__in=first).update(status="done")

    take_work(process)

    assert len(process.held) == most


def test_worker_begins_small_where_what_was_lost_lately_is_done_already(
    process: MiniatureProcess, codec: str, four_slots: None
) -> None:
    make_ready_job(codec, 12)
    done = Segment.objects.filter(pk=Segment.objects.latest("pk").pk)
    done.update(status="done", losses=1, claimed_by=process.name, finished_at=timezone.now())

    note_last_losses(process)
    take_work(process)
    assert len(process.held) == 2

    process.held.note_rendered(process.held.of(Kind.SEGMENT)[0])
    take_work(process)
    assert len(process.held) == 2, "what is still to be stored was left out"


def test_losses_of_other_workers_and_of_long_ago_hold_nothing_up(
    process: MiniatureProcess, codec: str, four_slots: None
) -> None:
    make_ready_job(codec, 12)
    other, old = Segment.objects.order_by("-pk")[:2]
    now = timezone.now()
    done = {"status": "done", "losses": 1}
    rows = Segment.objects.all()
    rows.filter(pk=other.pk).update(claimed_by="other", finished_at=now, **done)
    long_ago = now - dt.timedelta(minutes=5)
    rows.filter(pk=old.pk).update(claimed_by=process.name, finished_at=long_ago, **done)

    note_last_losses(process)
    take_work(process)

    assert len(process.held) == 8


def test_interactive_job_finds_room_beside_few_others(
    process: MiniatureProcess, codec: str, four_slots: None
) -> None:
    version = make_version(codec_fingerprint=codec)
    make_job(version=version, segments=9, priority=RenderJob.Priority.BULK)
    process.ahead.note_loss(2)
    take_work(process)
    urgent = make_job(version=version, segments=9)

    take_work(process)

    claims = process.held.of(Kind.SEGMENT)
    assert [claim.job_id for claim in claims].count(urgent.pk) == 2
    assert len(claims) == 4


def test_segment_lost_twice_runs_alone_and_the_less_suspect_first(
    process: MiniatureProcess, codec: str, four_slots: None
) -> None:
    make_ready_job(codec, 6)
    keys = list(Segment.objects.order_by("pk").values_list("pk", flat=True))
    Segment.objects.filter(pk=keys[0]).update(losses=3)
    Segment.objects.filter(pk=keys[4]).update(losses=2)

    for alone in (keys[4], keys[0]):
        take_work(process)
        take_work(process)
        assert held_pks(process) == {alone}
        process.held.drop(process.held.of(Kind.SEGMENT)[0])
        Segment.objects.filter(pk=alone).update(status="done")
    take_work(process)
    assert len(process.held) == 4


def test_lost_segments_that_cannot_run_now_hold_nothing_up(
    process: MiniatureProcess, codec: str, four_slots: None
) -> None:
    make_ready_job(codec, 2)
    Segment.objects.update(losses=1)
    RenderJob.objects.update(paused_at=timezone.now())
    make_ready_job(codec, 12)

    take_work(process)

    assert len(process.held) == 8
