"""Faults on both pairs of services, with real workers: nothing is lost, nothing is done twice."""

from __future__ import annotations

import ctypes
import datetime as dt
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from django.db import connection
from django.utils import timezone
from psycopg import sql

from synth.audiobooks.files import request_file
from synth.audiobooks.start import start_book
from synth.jobs.submit import Sender
from synth.models import BookFile, BookSource, Export, RenderJob, Segment, Take, WorkerStatus
from synth.transitions.jobs import cancel_job
from tests.factories import make_user
from tests.workers.books.disturbed_book import deaths
from tests.workers.books.test_book_jobs import epub, upload, wait_read
from tests.workers.faulty_worker import triple
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
from voices.models import Voice, VoiceVersion
from workers.process.held_claims import MOST_AT_ONCE

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


def attempts() -> set[int]:
    return set(Segment.objects.values_list("attempts", flat=True))


def test_worker_killed_while_rendering_costs_nothing_but_time(pair: Pair) -> None:
    first, voice = pair.start_with_voice("w1")
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
@pytest.mark.parametrize("successor", ["w1", "w2"])
def test_worker_of_the_same_host_takes_over_before_the_lease_ends(
    pair: Pair, successor: str
) -> None:
    long: dict[str, Any] = {"TTS_LEASE_SECONDS": 300}
    first, voice = pair.start_with_voice("w1", **long)
    job = submit(voice, sentences=6)
    wait_busy(first)
    first.kill()
    pair.start_worker(successor, **long)
    wait_ended(job)
    assert_whole(job)
    is_gone = WorkerStatus.objects.get(pk="w1").state == WorkerStatus.State.STOPPED
    assert is_gone == (successor == "w2")


@pytest.mark.thorough
def test_lost_messages_cost_a_moment(pair: Pair) -> None:
    worker, voice = pair.start_with_voice()
    first = submit(voice, sentences=4)
    wait_busy(worker)
    second = submit(voice, sentences=4, first=10)
    pair.lose_messages()
    wait_ended(first, second)
    assert_whole(first, second)
    assert attempts() == {1}


@pytest.mark.thorough
def test_message_that_comes_thrice_counts_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "_send", work._send)  # undoes what `triple` does to this process
    triple()
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
    assert attempts() == {1}
    assert Take.objects.count() == 8
    assert take_objects(pair) == 16


@pytest.mark.thorough
def test_worker_that_sleeps_past_its_lease_publishes_nothing_twice(pair: Pair) -> None:
    sleeper, voice = pair.start_with_voice("w1")
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
    worker, voice = pair.start_with_voice("w1", DRAIN_SECONDS=0, TTS_LEASE_SECONDS=300)
    job = submit(voice, sentences=6)
    wait_busy(worker)
    assert worker.stop() == 0
    assert WorkerStatus.objects.get(pk="w1").state == WorkerStatus.State.STOPPED
    waiting = Segment.objects.filter(job=job).exclude(status=Segment.Status.DONE)
    assert waiting.exists()
    assert set(waiting.values_list("status", "attempts", "claimed_by")) == {("queued", 0, "")}


@pytest.mark.thorough
@pytest.mark.parametrize("drain_seconds", [0, 2])
def test_stop_with_every_slot_busy_hands_all_of_it_back(pair: Pair, drain_seconds: int) -> None:
    worker, voice = pair.start_with_voice(
        "w1", DRAIN_SECONDS=drain_seconds, TTS_LEASE_SECONDS=300, TTS_ENGINE_SLOTS=16
    )
    text = "\n\n".join(f"{number} oxen and a fox. " + "An ox. " * 30 for number in range(300))
    job = submit(voice, text=text, priority=RenderJob.Priority.BULK, max_retakes=0)
    wait_all_slots_busy(worker, 16)

    assert worker.stop() == 0

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
    worker, voice = pair.start_with_voice("w1", TTS_ENGINE_SLOTS=1, DRAIN_SECONDS=20)
    job = submit(voice, sentences=6)
    wait_busy(worker)
    assert worker.stop() == 0
    statuses = list(Segment.objects.filter(job=job).values_list("status", flat=True))
    assert "claimed" not in statuses
    assert 1 <= statuses.count("done") < 6


def shut_database(name: str, seconds: float) -> None:
    """Refuse every connection of workers for some seconds (PostgreSQL only)."""
    allow = sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format
    with psycopg.connect(os.environ["TTS_TEST_POSTGRES_URL"], autocommit=True) as server:
        server.execute(allow(sql.Identifier(name), sql.SQL("false")))
        server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        time.sleep(seconds)
        server.execute(allow(sql.Identifier(name), sql.SQL("true")))
    connection.close()  # ours was ended as well


@pytest.mark.parametrize("pair", ["services"], indirect=True)
@pytest.mark.redis
@pytest.mark.postgres
def test_database_that_goes_away_is_waited_for(pair: Pair) -> None:
    worker, voice = pair.start_with_voice("w1")
    job = submit(voice, sentences=8)
    wait_busy(worker)
    shut_database(pair.database["NAME"], 1.5 * LEASE)
    wait_ended(job)
    assert_whole(job)
    assert worker.popen.poll() is None, "the worker ended"
    assert attempts() == {1}


class HourAhead(dt.datetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:  # type: ignore[override]
        return dt.datetime.now(tz) + dt.timedelta(hours=1)


@pytest.mark.parametrize("pair", ["services"], indirect=True)
@pytest.mark.redis
@pytest.mark.postgres
def test_job_of_a_host_whose_clock_is_ahead_is_rendered_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, voice = pair.start_with_voice("w1")
    with monkeypatch.context() as patch:
        patch.setattr(timezone, "datetime", HourAhead)
        job = submit(voice, sentences=2)
        assert job.created_at > dt.datetime.now(dt.UTC) + dt.timedelta(minutes=50)
    wait_ended(job)
    assert_whole(job)


@pytest.mark.thorough
def test_kills_fail_no_innocent_segment_and_cost_few_claims(pair: Pair) -> None:
    kills = [pair.data_dir / "die-at" / f"done-{14 * number}" for number in range(1, 25)]
    kills[0].parent.mkdir()
    for kill in kills:
        kill.touch()
    worker, voice = pair.start_with_voice(
        "w1", entry=FAULTY, TTS_TEST_FAULT="moments", TTS_LEASE_SECONDS=300
    )
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
    start = {"entry": FAULTY, "TTS_TEST_FAULT": "poison"}
    worker, voice = pair.start_with_voice("w1", **start)
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
    _, voice = pair.start_with_voice("w1", entry=FAULTY, TTS_TEST_FAULT="full")
    flag = pair.data_dir / "disk-is-full"
    flag.touch()
    job = submit(voice, sentences=2)
    row = WorkerStatus.objects.filter(pk="w1", detail__contains="disk is full")
    wait_for(row.exists, what="the worker says that the disk is full")
    assert take_objects(pair) == 0
    flag.unlink()
    wait_ended(job)
    assert_whole(job)
    assert attempts() == {1}
    wait_for(lambda: not row.exists(), what="the worker says that all is well again")


BOOK = epub(("Oxen", "Ox one. Ox two."))


class Victim(NamedTuple):
    """A kind of work: words of its row's text form, what gets all ready and returns what makes such
    a row, and how it is found.
    """

    words: str
    prepare: Callable[[Voice], Callable[[], Any]]
    find: Callable[[], Any]
    good: str


def spoken_book(voice: Voice) -> Callable[[], Any]:
    """Speak a book; return what asks for a file of it."""
    source = wait_read(upload(make_user("owner"), BOOK, format="wav"))
    job = start_book(source)
    wait_ended(job)
    source.refresh_from_db()
    return partial(request_file, source, "srt", {}, Sender(source.owner))


VICTIMS = {
    "version": Victim(
        "Ill v1",
        lambda voice: partial(new_voice, "Ill"),
        lambda: VoiceVersion.objects.filter(voice__name="Ill").values_list("status", "error_code"),
        "ready",
    ),
    "export": Victim(
        ".flac",
        lambda voice: partial(submit, voice, first=900, format="flac"),
        lambda: Export.objects.filter(format="flac").values_list("status", "error_code"),
        "done",
    ),
    "book": Victim(
        "ill.epub",
        lambda voice: partial(upload, make_user("owner"), BOOK, name="ill.epub"),
        lambda: BookSource.objects.values_list("state", "error_code"),
        "planned",
    ),
    "file": Victim(
        " srt", spoken_book, lambda: BookFile.objects.values_list("status", "error_code"), "done"
    ),
}


def run(pair: Pair, victim: Victim, **environment: Any) -> tuple[str, str]:
    """Do a piece of work beside a long job; return the state and error code that it ends with."""
    _, voice = pair.start_with_voice(
        "w1", entry=FAULTY, TTS_TEST_FAULT="row", TTS_TEST_ROW=victim.words, **environment
    )
    begin = victim.prepare(voice)
    others = submit(voice, sentences=80, priority=RenderJob.Priority.BULK)
    wait_for(Segment.objects.filter(job=others, status="done").exists, what="the job is rendered")
    begin()

    def ended() -> tuple[str, str] | None:
        row: tuple[str, str] | None = victim.find().first()
        return row if row and row[0] in (victim.good, "failed") else None

    found: tuple[str, str] = wait_for(ended, what="the work ended")
    wait_ended(others)
    assert_whole(others)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("pair", ["files"], indirect=True)
@pytest.mark.parametrize("kind", VICTIMS)
@pytest.mark.parametrize("alone", [False, True])
def test_what_was_beside_every_kill_is_done_once_it_is_alone_or_fails_if_it_kills_then_too(
    pair: Pair, kind: str, alone: bool
) -> None:
    found = run(pair, VICTIMS[kind], **({} if alone else {"TTS_TEST_BESIDE": 1}))
    assert found == (("failed", "worker_lost") if alone else (VICTIMS[kind].good, ""))
    assert deaths(pair) == LOSSES_BESIDE_OTHERS + 3 * alone
