"""Faults on both pairs of services, with real workers: nothing is lost, nothing is done twice."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection
from psycopg import sql

from synth.models import RenderJob, Segment, Take, WorkerStatus
from synth.transitions.jobs import cancel_job
from tests.workers.pairs import (
    CLOCKS,
    Pair,
    RunningWorker,
    assert_whole,
    counter,
    new_voice,
    submit,
    wait_all_slots_busy,
    wait_encoded,
    wait_ended,
    wait_for,
)
from ttsweb import work
from ttsweb.leases import LOSSES_BESIDE_OTHERS
from workers.rendering.rendered import MOST_AT_ONCE

LEASE = float(CLOCKS["TTS_LEASE_SECONDS"])
FAULTY = "tests/workers/faulty_worker.py"
TGKILL = {"x86_64": 234}.get(platform.machine(), 131)  # the other machines share one table


def wait_busy(worker: RunningWorker) -> None:
    """Return once a worker holds segments."""
    held = Segment.objects.filter(status=Segment.Status.CLAIMED, claimed_by=worker.name)
    wait_for(held.exists, what=f"{worker.name} renders", poll=0.005)


def take_objects(pair: Pair) -> int:
    """Return how many objects of takes are in the storage."""
    return len(list((pair.data_dir / "storage" / "takes").rglob("*.*")))


def test_worker_killed_while_rendering_costs_nothing_but_time(pair: Pair) -> None:
    first = pair.start_worker("w1").wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    jobs = [submit(voice, sentences=4, first=10 * number) for number in range(2)]
    wait_busy(first)

    first.kill()
    lost = Segment.objects.filter(status=Segment.Status.CLAIMED).count()
    pair.start_worker("w2")
    wait_ended(*jobs)

    assert lost > 0, "the worker was not busy when it was killed"
    assert_whole(*jobs)
    assert counter("encoder_run") == 1
    assert Take.objects.count() == 8


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_worker_that_comes_back_under_its_name_does_not_wait_for_its_own_lease(pair: Pair) -> None:
    long: dict[str, Any] = {"TTS_LEASE_SECONDS": 300}
    first = pair.start_worker("w1", **long).wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=4)
    wait_busy(first)

    first.kill()
    pair.start_worker("w1", **long)
    wait_ended(job)

    assert_whole(job)


@pytest.mark.thorough
def test_lost_messages_cost_a_moment(pair: Pair) -> None:
    worker = pair.start_worker().wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    first = submit(voice, sentences=4)
    wait_busy(worker)

    second = submit(voice, sentences=4, first=10)
    pair.lose_messages()
    wait_ended(first, second)

    assert_whole(first, second)
    assert set(Segment.objects.values_list("attempts", flat=True)) == {1}


@pytest.mark.thorough
def test_message_that_comes_three_times_is_heeded_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = work._send

    def thrice(task: str, queue: str, *arguments: str) -> bool:
        return all([send(task, queue, *arguments) for _ in range(3)])

    monkeypatch.setattr(work, "_send", thrice)
    for name in ("w1", "w2"):
        pair.start_worker(name, entry=FAULTY, TTS_TEST_FAULT="triple")
    for worker in pair.workers:
        worker.wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    jobs = [submit(voice, sentences=4, first=10 * number) for number in range(2)]
    wait_ended(*jobs)

    assert_whole(*jobs)
    assert counter("encoder_run") == 1
    assert set(Segment.objects.values_list("attempts", flat=True)) == {1}
    assert Take.objects.count() == 8
    assert take_objects(pair) == 16


@pytest.mark.thorough
def test_worker_that_sleeps_past_its_lease_publishes_nothing_twice(pair: Pair) -> None:
    sleeper = pair.start_worker("w1").wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    other = pair.start_worker("w2").wait_ready()  # before there is work: one alone would end it

    jobs = [submit(voice, sentences=8, first=20 * number) for number in range(2)]
    wait_busy(sleeper)
    sleeper.send(signal.SIGSTOP)
    # It may have been stopped in a transaction, which on SQLite keeps all others waiting.
    time.sleep(3 * LEASE)
    sleeper.send(signal.SIGCONT)
    wait_ended(*jobs)
    other.kill()
    later = submit(voice, sentences=2, first=50)
    wait_ended(later)

    assert_whole(*jobs, later)
    assert Segment.objects.filter(job=later, claimed_by="w1").exists(), "it never worked again"
    assert Take.objects.count() == 18
    assert counter("encoder_run") == 1


def test_stopped_worker_hands_its_work_back_unspent(pair: Pair) -> None:
    worker = pair.start_worker("w1", DRAIN_SECONDS=0, TTS_LEASE_SECONDS=300).wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=6)
    wait_busy(worker)

    status = worker.stop()

    assert status == 0
    assert WorkerStatus.objects.get(pk="w1").state == WorkerStatus.State.STOPPED
    waiting = Segment.objects.filter(job=job).exclude(status=Segment.Status.DONE)
    assert waiting.exists()
    assert set(waiting.values_list("status", "attempts", "claimed_by")) == {("queued", 0, "")}


@pytest.mark.thorough
@pytest.mark.parametrize("drain_seconds", [0, 2])
def test_stop_with_every_slot_busy_hands_all_of_it_back(pair: Pair, drain_seconds: int) -> None:
    worker = pair.start_worker(
        "w1", DRAIN_SECONDS=drain_seconds, TTS_LEASE_SECONDS=300, TTS_ENGINE_SLOTS=16
    ).wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    text = "\n\n".join(f"{number} oxen and a fox. " + "An ox. " * 30 for number in range(300))
    job = submit(voice, text=text, priority=RenderJob.Priority.BULK, max_retakes=0)
    wait_all_slots_busy(worker, 16)

    status = worker.stop()

    assert status == 0
    waiting = Segment.objects.filter(job=job).exclude(status=Segment.Status.DONE)
    done = Segment.objects.filter(job=job, status=Segment.Status.DONE)
    takes = done.values("take").distinct().count()  # equal words of two segments are one take
    assert drain_seconds or waiting.count() >= 16
    assert set(waiting.values_list("status", "attempts", "claimed_by")) == {("queued", 0, "")}
    assert Take.objects.count() == takes
    assert take_objects(pair) == 2 * takes, "an object was left that no row names"

    cancel_job(job.pk)
    short = submit(voice, sentences=3)
    pair.start_worker("w2")
    wait_ended(job, short)
    assert_whole(short)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="one thread is signalled by a Linux call")
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_stop_that_the_kernel_hands_to_another_thread_is_heeded(pair: Pair) -> None:
    worker = pair.start_worker("w1").wait_ready()
    process = worker.popen.pid
    tasks = Path(f"/proc/{process}/task").iterdir()
    other = next(int(task.name) for task in tasks if int(task.name) != process)

    assert ctypes.CDLL(None).syscall(TGKILL, process, other, int(signal.SIGTERM)) == 0

    assert worker.popen.wait(180) == 0


@pytest.mark.thorough
def test_draining_worker_finishes_what_it_holds(pair: Pair) -> None:
    worker = pair.start_worker("w1", TTS_ENGINE_SLOTS=1, DRAIN_SECONDS=20).wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=6)
    wait_busy(worker)

    assert worker.stop() == 0

    statuses = list(Segment.objects.filter(job=job).values_list("status", flat=True))
    assert "claimed" not in statuses
    assert 1 <= statuses.count("done") < 6


@pytest.fixture
def shut_database(pair: Pair) -> Iterator[Any]:
    """A function that refuses every connection of workers for some seconds (PostgreSQL only)."""
    name = sql.Identifier(pair.database["NAME"])
    connection.close()

    def shut(seconds: float) -> None:
        with psycopg.connect(os.environ["TTS_TEST_POSTGRES_URL"], autocommit=True) as server:
            server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
            server.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
                [pair.database["NAME"]],
            )
            time.sleep(seconds)
            server.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
        connection.close()  # ours was ended as well

    yield shut


@pytest.mark.parametrize("pair", ["services"], indirect=True)
@pytest.mark.redis
@pytest.mark.postgres
def test_database_that_goes_away_is_waited_for(pair: Pair, shut_database: Any) -> None:
    worker = pair.start_worker("w1").wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=8)
    wait_busy(worker)

    shut_database(1.5 * LEASE)
    wait_ended(job)

    assert_whole(job)
    assert worker.popen.poll() is None, "the worker ended"
    assert set(Segment.objects.values_list("attempts", flat=True)) == {1}


@pytest.mark.thorough
def test_worker_of_the_same_host_takes_over_before_the_lease_is_over(pair: Pair) -> None:
    long: dict[str, Any] = {"TTS_LEASE_SECONDS": 300}
    first = pair.start_worker("w1", **long).wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=6)
    wait_busy(first)

    first.kill()
    pair.start_worker("w2", **long)
    wait_ended(job)

    assert_whole(job)
    assert WorkerStatus.objects.get(pk="w1").state == WorkerStatus.State.STOPPED


@pytest.mark.thorough
def test_kills_fail_no_innocent_segment_and_cost_few_claims(pair: Pair) -> None:
    kills = [pair.data_dir / "die-at" / f"done-{14 * number}" for number in range(1, 25)]
    kills[0].parent.mkdir()
    for kill in kills:
        kill.touch()
    worker = pair.start_worker(
        "w1", entry=FAULTY, TTS_TEST_FAULT="moments", TTS_LEASE_SECONDS=300
    ).wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    job = submit(voice, sentences=400)

    def has_come(kill: Path) -> bool:
        is_over = RenderJob.objects.filter(pk=job.pk, status__in=RenderJob.FINAL).exists()
        assert not is_over or not kill.exists(), f"the job ended before the kill at {kill.name}"
        return not kill.exists()

    for kill in kills:
        wait_for(partial(has_come, kill), what=f"the kill at {kill.name}")
    wait_ended(job)

    assert_whole(job)
    segments = Segment.objects.filter(job=job)
    assert set(segments.values_list("attempts", flat=True)) == {1}, "a kill spent an attempt"
    costs = [int(count) for count in re.findall(r"claims freed: segments=(\d+)", worker.log)]
    assert sum(costs) == sum(segments.values_list("losses", flat=True))
    assert len(costs) == 24, "a kill hit nothing"
    # Four slots, what lies ahead, three each, and as many as are stored together.
    assert costs[0] <= 4 * 4 + MOST_AT_ONCE
    # Half of the slots, and from then on the segment that is rendered when the kill comes.
    assert sum(costs[1:]) <= 2 + 22, f"the kills cost {costs}"
    assert Take.objects.count() == 400


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_poison_fails_alone_and_takes_no_neighbour(pair: Pair) -> None:
    voice = new_voice()
    start = {"entry": FAULTY, "TTS_TEST_FAULT": "poison"}
    worker = pair.start_worker("w1", **start).wait_ready()
    wait_encoded(voice)
    text = "\n\n".join(["Fox one.", "Fox two.", "It is poison.", "Fox three.", "Fox four."])
    job = submit(voice, text=text)
    deaths = 0

    def ended() -> bool:
        nonlocal worker, deaths
        if worker.popen.poll() is not None:
            deaths += 1
            worker = pair.start_worker("w1", **start)
        return RenderJob.objects.filter(pk=job.pk, status__in=RenderJob.FINAL).exists()

    wait_for(ended, what="the job ended", seconds=120)

    job.refresh_from_db()
    segments = {row.index: row for row in Segment.objects.filter(job=job)}
    assert deaths == LOSSES_BESIDE_OTHERS + 3  # beside others, beside fewer, and three times alone
    assert job.status == RenderJob.Status.PARTIAL
    assert segments[2].error_code == "worker_lost"
    assert [row.status for index, row in segments.items() if index != 2] == ["done"] * 4


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_full_disk_is_waited_for_and_spends_no_attempt(pair: Pair) -> None:
    pair.start_worker("w1", entry=FAULTY, TTS_TEST_FAULT="full").wait_ready()
    voice = new_voice()
    wait_encoded(voice)
    flag = pair.data_dir / "disk-is-full"
    flag.touch()

    job = submit(voice, sentences=2)
    row = WorkerStatus.objects.filter(pk="w1", detail__contains="disk is full")
    wait_for(row.exists, what="the worker says that the disk is full")
    assert take_objects(pair) == 0
    flag.unlink()
    wait_ended(job)

    assert_whole(job)
    assert set(Segment.objects.values_list("attempts", flat=True)) == {1}
    wait_for(lambda: not row.exists(), what="the worker says that all is well again")
