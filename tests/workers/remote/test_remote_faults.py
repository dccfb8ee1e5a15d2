"""Faults of a worker elsewhere, of its line and of its site: nothing is lost or done twice."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from django.db.models import QuerySet
from django.utils import timezone

from synth.accounts.access import revoke_key
from synth.models import RenderJob, Segment, Take, WorkerStatus
from synth.transitions.jobs import cancel_job
from tests.workers.end_to_end.test_live_audio import HEAD_BYTES, assert_same, read_on, samples_of
from tests.workers.pairs import (
    CLOCKS,
    Pair,
    RunningWorker,
    assert_whole,
    counter,
    new_voice,
    submit,
    wait_encoded,
    wait_ended,
    wait_for,
)
from tests.workers.remote.sites import RemoteSetting
from tests.workers.web import served
from voices.models import Voice
from voices.objects import delete_voice

LONG = "\n\n".join(f"{number} oxen and a fox. " + "An ox. " * 30 for number in range(40))
SHORT = pytest.mark.parametrize("lease", [CLOCKS["TTS_LEASE_SECONDS"]])
FILES = pytest.mark.parametrize("pair", ["files"], indirect=True)


def start(setting: RemoteSetting, name: str = "gpu") -> tuple[RunningWorker, Voice]:
    """Return a worker at home, and a voice that it has encoded."""
    worker, voice = setting.home.start_worker(name).wait_ready(), new_voice()
    wait_encoded(voice)
    return worker, voice


def wait_busy(setting: RemoteSetting, worker: RunningWorker) -> None:
    name = setting.home.name_of(worker)
    held = Segment.objects.filter(status=Segment.Status.CLAIMED, claimed_by=name)
    wait_for(held.exists, what=f"{worker.name} renders", poll=0.005)


def has_rows(rows: QuerySet[Segment], least: int) -> bool:
    return rows.count() >= least


def attempts() -> set[int]:
    return set(Segment.objects.values_list("attempts", flat=True))


def test_killed_worker_costs_nothing_but_time_and_the_next_one_takes_over_at_once(
    setting: RemoteSetting,
) -> None:
    first, voice = start(setting)
    job = submit(voice, sentences=8)
    wait_busy(setting, first)
    first.kill()
    lost = Segment.objects.filter(status=Segment.Status.CLAIMED).count()
    setting.home.start_worker()
    wait_ended(job)

    assert lost > 0, "the worker was not busy when it was killed"
    assert_whole(job)
    assert attempts() == {1}
    assert counter("encoder_run") == 1
    assert Take.objects.count() == 8


@FILES
def test_second_worker_of_one_key_and_name_is_refused_and_the_first_one_works_on(
    setting: RemoteSetting,
) -> None:
    first, voice = start(setting)
    job = submit(voice, sentences=12)
    wait_busy(setting, first)
    elsewhere = replace(setting.home, folder=setting.home.folder / "elsewhere", workers=[])
    second = elsewhere.start_worker("gpu")

    assert second.popen.wait(180) == 1
    assert "a worker named 'gpu' is already running, on another host" in second.log
    wait_ended(job)
    assert_whole(job)
    assert set(Segment.objects.values_list("attempts", "losses")) == {(1, 0)}
    assert first.popen.poll() is None


@SHORT
@FILES
def test_late_result_of_a_worker_that_was_cut_off_past_its_lease_is_refused(
    setting: RemoteSetting, pair: Pair
) -> None:
    worker, voice = start(setting)
    job = submit(voice, sentences=12)
    wait_busy(setting, worker)
    setting.line.mode = "cut"
    held = Segment.objects.filter(claimed_by=setting.home.name_of(worker), status="claimed")
    lost = set(held.values_list("pk", flat=True))
    assert lost
    wait_for(lambda: not held.exists(), what="the leases have run out")
    other = pair.start_worker("local", role="gpu").wait_ready()
    wait_ended(job)
    setting.line.mode = "open"
    other.kill()
    later = submit(voice, sentences=2, first=50)
    wait_ended(later)

    assert_whole(job, later)
    rows = Segment.objects.filter(pk__in=lost)
    assert set(rows.values_list("claimed_by", flat=True)) == {"local"}
    again = Segment.objects.filter(job=later, claimed_by=setting.home.name_of(worker))
    assert again.exists(), "it never worked again"
    assert Take.objects.count() == 14
    assert worker.popen.poll() is None


@SHORT
@FILES
def test_web_process_that_sleeps_past_the_leases_publishes_nothing_twice(
    setting: RemoteSetting, pair: Pair
) -> None:
    other = pair.start_worker("local", role="gpu").wait_ready()
    worker, voice = start(setting)
    job = submit(voice, sentences=60)  # enough for both
    wait_busy(setting, worker)
    setting.web.send(signal.SIGSTOP)
    # It may have been stopped in a transaction, which on SQLite keeps all others waiting.
    time.sleep(3 * float(CLOCKS["TTS_LEASE_SECONDS"]))
    setting.web.send(signal.SIGCONT)
    wait_ended(job)
    other.kill()
    later = submit(voice, sentences=2, first=100)
    wait_ended(later)

    assert_whole(job, later)
    again = Segment.objects.filter(job=later, claimed_by=setting.home.name_of(worker))
    assert again.exists(), "it never worked again"
    assert Take.objects.count() == 62


@FILES
def test_web_process_killed_and_started_again_in_the_middle_loses_nothing(
    setting: RemoteSetting,
) -> None:
    worker, voice = start(setting)
    job = submit(voice, sentences=40)
    rows = Segment.objects.filter(job=job, status="done")
    for least in (5, 15):
        wait_for(partial(has_rows, rows, least), what="some are rendered")
        setting.web.kill()
        setting.web.start()
    wait_ended(job)

    assert_whole(job)
    assert attempts() == {1}, "what was in hand was rendered again"
    job.refresh_from_db()
    assert (job.takes_rendered, job.takes_reused) == (40, 0)
    assert Take.objects.count() == 40
    assert worker.popen.poll() is None


@FILES
@pytest.mark.parametrize("mode", ["twice", "lossy"])
def test_steps_that_come_twice_and_answers_that_are_lost_change_nothing(
    setting: RemoteSetting, mode: str
) -> None:
    setting.line.mode = mode
    worker, voice = start(setting)
    jobs = [submit(voice, sentences=6, first=20 * number) for number in range(2)]
    wait_ended(*jobs)

    assert_whole(*jobs)
    assert counter("encoder_run") == 1
    assert attempts() == {1}
    assert set(Segment.objects.values_list("losses", flat=True)) == {0}
    assert Take.objects.count() == 12
    assert setting.line.passed["settle"] >= 2
    assert len(list((setting.pair.data_dir / "storage" / "takes").rglob("*.*"))) == 24
    assert worker.stop() == 0


def end_deadline(job: RenderJob, voice: Voice) -> None:
    RenderJob.objects.filter(pk=job.pk).update(deadline_at=timezone.now())


ENDS: dict[str, Callable[[RenderJob, Voice], object]] = {
    "cancel": lambda job, voice: cancel_job(job.pk),
    "deadline": end_deadline,
    "deleted voice": lambda job, voice: delete_voice(voice),
}


@FILES
@pytest.mark.parametrize("end", ENDS)
def test_work_that_nobody_wants_any_more_stops(setting: RemoteSetting, end: str) -> None:
    worker, voice = start(setting)
    job = submit(voice, text=LONG, max_retakes=0)
    wait_busy(setting, worker)
    ENDS[end](job, voice)

    row = WorkerStatus.objects.filter(pk=setting.home.name_of(worker))
    idle = row.filter(figures__segments_in_flight=0, figures__slots_in_use=0)
    wait_for(idle.exists, what="the engine is idle")
    wait_ended(job)
    assert Segment.objects.filter(job=job, status="done").count() < 40
    assert job.status != RenderJob.Status.SUCCEEDED


@FILES
def test_listener_hears_a_worker_elsewhere_while_it_renders(
    setting: RemoteSetting, pair: Pair
) -> None:
    _, voice = start(setting)
    with served(pair) as client:
        job = submit(voice, sentences=30)
        with client.stream("GET", f"/api/v1/jobs/{job.pk}/audio?live=1") as answer:
            parts = answer.iter_raw()
            first = read_on(parts, HEAD_BYTES + 2000)
            done_by_then = Segment.objects.filter(job=job, status="done").count()
            rest = b"".join(parts)
    wait_ended(job)

    assert done_by_then < 30
    assert setting.line.passed["pieces"] > 0
    assert_whole(job)
    assert_same(samples_of(first + rest), job)


@SHORT
@FILES
def test_worker_whose_key_is_revoked_ends_and_what_it_held_is_done_by_another(
    setting: RemoteSetting, pair: Pair
) -> None:
    worker, voice = start(setting)
    job = submit(voice, sentences=12)
    wait_busy(setting, worker)
    revoke_key(setting.home.key)

    assert worker.popen.wait(180) == 1
    assert "This API key was revoked" in worker.log
    pair.start_worker("local", role="gpu")
    wait_ended(job)
    assert_whole(job)
    assert Take.objects.count() == 12


@FILES
def test_stopped_worker_hands_its_work_back_unspent(setting: RemoteSetting) -> None:
    worker, voice = start(setting)
    worker.stop()
    worker = setting.home.start_worker(DRAIN_SECONDS=0).wait_ready()
    job = submit(voice, text=LONG, max_retakes=0)
    wait_busy(setting, worker)

    assert worker.stop() == 0

    waiting = Segment.objects.filter(job=job).exclude(status=Segment.Status.DONE)
    assert waiting.exists()
    assert set(waiting.values_list("status", "attempts", "losses")) == {("queued", 0, 0)}
