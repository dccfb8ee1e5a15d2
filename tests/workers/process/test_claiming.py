"""A worker claims what it can use and no more; a suspect runs alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.utils import timezone

from synth.models import RenderJob, Segment
from tests.factories import make_export, make_job, make_version, make_voice
from tests.workers.conftest import MiniatureProcess
from tests.workers.process.conftest import ready_job, segments_of
from ttsweb.work import Kind
from voices.models import VoiceVersion
from workers.process.claiming import note_last_losses, take, take_exports, take_segments, take_work
from workers.process.held_claims import HeldClaim

pytestmark = pytest.mark.django_db
BULK = RenderJob.Priority.BULK
two_slots, four_slots = (pytest.mark.usefixtures(name) for name in ("two_slots", "four_slots"))


def keys() -> list[int]:
    """Return the keys of all segments."""
    return list(Segment.objects.order_by("pk").values_list("pk", flat=True))


def change(pks: list[int], **columns: object) -> None:
    Segment.objects.filter(pk__in=pks).update(**columns)


def held_pks(process: MiniatureProcess) -> list[int]:
    return [claim.pk for claim in segments_of(process)]


def end_first(process: MiniatureProcess) -> None:
    """Let go of one segment, as when it has ended."""
    process.held.drop(segments_of(process)[0])


@two_slots
def test_no_more_segments_are_held_than_keep_the_engine_busy(process: MiniatureProcess) -> None:
    ready_job(process, 7)

    assert [take_segments(process), take_segments(process)] == [4, 0]
    end_first(process)
    assert take_segments(process) == 1
    process.held.note_rendered(segments_of(process)[0])  # makes room before it is settled
    assert take_segments(process) == 1
    assert process.held.count(Kind.SEGMENT) == 5


@two_slots
def test_bulk_work_that_fills_a_worker_leaves_room_for_an_interactive_job(
    process: MiniatureProcess,
) -> None:
    bulk = ready_job(process, 9, priority=BULK)
    take_segments(process)
    urgent = ready_job(process, 9)

    assert take_segments(process) == 4

    claims = segments_of(process)
    assert [claim.job_id for claim in claims].count(bulk.pk) == 4
    assert {claim.priority for claim in claims if claim.job_id == urgent.pk} == {0}
    assert take_segments(process) == 0, "an interactive job's claims are bounded as well"


def test_interactive_segments_begin_before_bulk_ones(process: MiniatureProcess) -> None:
    ready_job(process, 2, priority=BULK)
    urgent = ready_job(process, 2)
    begun: list[list[HeldClaim]] = []
    process.run = lambda claims, work, *arguments: begun.append(list(claims))  # type: ignore[method-assign]

    assert take_segments(process) == 4

    assert [{claim.job_id for claim in batch} == {urgent.pk} for batch in begun] == [True, False]


def test_segment_of_another_codec_is_left_to_others(process: MiniatureProcess) -> None:
    make_job(version=make_version(codec_fingerprint="other" * 12))

    assert take_segments(process) == 0


@pytest.mark.parametrize(
    ("role", "taken"), [("cpu", {Kind.EXPORT}), ("gpu", {Kind.VERSION, Kind.SEGMENT})]
)
def test_role_takes_its_own_kind_of_work(
    make_process: Callable[..., MiniatureProcess], role: str, taken: set[Kind]
) -> None:
    process = make_process(role=role)
    ready_job(process)
    make_voice(ready=False)
    make_export(status="queued")

    take_work(process)

    assert {claim.kind for claim in process.held.of(*Kind)} == taken


def test_worker_without_a_warm_engine_claims_nothing_for_it(
    process: MiniatureProcess, make_process: Callable[..., MiniatureProcess]
) -> None:
    ready_job(process)
    make_voice(ready=False)
    cold = make_process(engine=None)

    assert (take_segments(cold), take(cold, Kind.VERSION), take_work(cold)) == (0, 0, 0)


@pytest.mark.parametrize("reason", ["stopping", "pause"])
def test_worker_that_stops_or_pauses_claims_nothing(process: MiniatureProcess, reason: str) -> None:
    ready_job(process)
    make_export(status="queued")
    if reason == "stopping":
        process.stopping.set()
    else:
        process.pause_claims("The disk is full.")

    assert take_work(process) + take_segments(process) + take_exports(process) == 0
    assert set(Segment.objects.values_list("status", flat=True)) == {"queued"}


def test_segment_on_its_last_attempt_runs_alone(process: MiniatureProcess) -> None:
    ready_job(process, 3)
    make_voice(ready=False)
    _, suspect, last = keys()
    now = timezone.now()
    change([suspect, last], not_before=now + dt.timedelta(hours=1))
    assert take_segments(process) == 1
    change([suspect, last], not_before=now)
    change([suspect], attempts=2)

    assert take_work(process) == 0, "something was taken beside a waiting suspect"
    assert take_segments(process) == 0, "a message broke the isolation"
    end_first(process)
    take_work(process)
    assert [claim.pk for claim in process.held.of(*Kind)] == [suspect]
    take_work(process)
    assert take(process, Kind.VERSION) == 0
    assert len(process.held) == 1

    end_first(process)
    take_work(process)
    assert process.held.count(Kind.VERSION) == process.held.count(Kind.SEGMENT) == 1


def test_version_on_its_last_attempt_runs_alone(process: MiniatureProcess) -> None:
    for _ in range(2):
        make_voice(ready=False)
    suspect = VoiceVersion.objects.order_by("created_at")[1]
    VoiceVersion.objects.filter(pk=suspect.pk).update(attempts=2)

    take_work(process)

    assert [claim.pk for claim in process.held.of(*Kind)] == [suspect.pk]


@four_slots
def test_segments_lost_once_run_among_half_as_many_and_others_with_them(
    process: MiniatureProcess,
) -> None:
    ready_job(process, 12)
    lost = keys()[:3]
    change(lost, losses=1)

    take_work(process)
    assert held_pks(process) == lost[:2]
    take_work(process)
    assert len(process.held) == 2, "a suspect has more beside it"

    end_first(process)
    change(lost[:1], status="done")
    take_work(process)
    assert len(process.held) == 2

    change(lost, status="done")
    for claim in segments_of(process):
        process.held.drop(claim)
    take_work(process)
    assert len(process.held) == 8, "with no suspect left the worker holds as many as ever"


LONG_AGO = dt.timedelta(minutes=5)


def lose_waiting(process: MiniatureProcess) -> None:
    change(keys()[7:9], losses=1)


def lose_of_others_and_long_ago(process: MiniatureProcess) -> None:
    *_, old, other = keys()
    now, done = timezone.now(), {"status": "done", "losses": 1}
    change([other], claimed_by="other", finished_at=now, **done)
    change([old], claimed_by=process.name, finished_at=now - LONG_AGO, **done)


def lose_lately(process: MiniatureProcess) -> None:
    done = {"status": "done", "losses": 1, "claimed_by": process.name}
    change(keys()[-1:], finished_at=timezone.now(), **done)


def lose_what_is_paused(process: MiniatureProcess) -> None:
    paused = ready_job(process, 2)
    RenderJob.objects.filter(pk=paused.pk).update(paused_at=timezone.now())
    change(list(paused.segments.values_list("pk", flat=True)), losses=1)


@four_slots
@pytest.mark.parametrize(
    ("arrange", "held"),
    [
        (lose_waiting, slice(7, 9)),  # suspects come before what was never lost
        (lose_lately, slice(0, 2)),  # small, though what was lost is done already
        (lose_of_others_and_long_ago, slice(0, 8)),
        (lose_what_is_paused, slice(0, 8)),  # what cannot run now holds nothing up
    ],
)
def test_losses_say_how_many_and_which_segments_are_held(
    process: MiniatureProcess, arrange: Callable[[MiniatureProcess], None], held: slice
) -> None:
    ready_job(process, 12)
    pks = keys()
    arrange(process)

    note_last_losses(process)
    take_work(process)
    assert held_pks(process) == pks[held]

    process.held.note_rendered(segments_of(process)[0])
    take_work(process)
    if held.stop < 8:
        assert len(process.held) == 2, "what is still to be stored was left out"


@four_slots
@pytest.mark.parametrize(("lost", "losses", "most"), [(9, 1, 2), (2, 1, 1), (1, 1, 1), (9, 3, 1)])
def test_worker_begins_with_half_of_what_the_one_before_it_lost(
    process: MiniatureProcess, lost: int, losses: int, most: int
) -> None:
    ready_job(process, 12)
    first = keys()[:lost]
    change(first, losses=losses, claimed_by=process.name)
    note_last_losses(process)
    change(first, status="done")

    take_work(process)

    assert len(process.held) == most


@four_slots
def test_interactive_job_finds_room_beside_few_others(process: MiniatureProcess) -> None:
    ready_job(process, 9, priority=BULK)
    process.ahead.note_loss(2)
    take_work(process)
    urgent = ready_job(process, 9)

    take_work(process)

    claims = segments_of(process)
    assert [claim.job_id for claim in claims].count(urgent.pk) == 2
    assert len(claims) == 4


@four_slots
def test_segment_lost_twice_runs_alone_and_the_less_suspect_first(
    process: MiniatureProcess,
) -> None:
    ready_job(process, 6)
    more, _, _, _, less, _ = keys()
    change([more], losses=3)
    change([less], losses=2)

    for alone in (less, more):
        take_work(process)
        take_work(process)
        assert held_pks(process) == [alone]
        end_first(process)
        change([alone], status="done")
    take_work(process)
    assert len(process.held) == 4
