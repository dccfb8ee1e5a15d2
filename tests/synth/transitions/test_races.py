"""Steps taken at once by many threads, on SQLite in a file and on PostgreSQL."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.db import connection, transaction
from pytest_django import DjangoDbBlocker, Settings

from synth.jobs.removal import delete_job
from synth.jobs.submit import Order, submit_job
from synth.models import Export, RenderJob, Segment
from synth.transitions.claims import claim_segments, wait_for_takes
from synth.transitions.jobs import cancel_job, close_cancelled_jobs, retry_job
from synth.transitions.segments import cancel_segment, fail_segment, free_lost_segments
from tests.factories import (
    CODEC_FINGERPRINT,
    claim_row,
    finish_export,
    finish_segment,
    make_job,
    make_take,
    make_user,
    make_voice,
)
from tests.voices.clips import clip_bytes
from tests.workers.pairs import Pair, wait_for
from ttsweb import leases
from ttsweb.configuration.builders import broker_settings, database_settings
from ttsweb.leases import Claim
from ttsweb.refusals import SubmitRejectedError
from voices.models import StoredClip, Voice, VoiceVersion
from voices.removal import delete_voice
from voices.submit import NewClip, VoiceNameTakenError, create_voice

Result = TypeVar("Result")
NUM_THREADS = 6


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(
    request: pytest.FixtureRequest,
    settings: Settings,
    tmp_path: Path,
    django_db_blocker: DjangoDbBlocker,
    job_services: None,
) -> Iterator[str]:
    """A database of its own that this test's threads reach by connections of their own."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    data_dir = tmp_path / "data"
    pair = Pair(
        environment={},
        data_dir=data_dir,
        database=database_settings(url, data_dir=data_dir),
        broker=broker_settings(None, data_dir=data_dir),
        lose_messages=lambda: None,
    )
    with django_db_blocker.unblock(), pair.entered(settings):
        yield request.param


def at_once(work: Callable[[int], Result], count: int = NUM_THREADS) -> list[Result]:
    """Call `work` with 0, 1, … from as many threads that start together."""
    barrier = threading.Barrier(count)

    def run(number: int) -> Result:
        barrier.wait()
        try:
            return work(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def claim(worker: int, limit: int, ids: Sequence[int] | None = None) -> list[Claim]:
    found = claim_segments(
        worker=f"w{worker}", limit=limit, codec_fingerprint=CODEC_FINGERPRINT, ids=ids
    )
    return list(found)


def assert_counts_fit(job: RenderJob) -> None:
    """Assert that the job's counters are those of its segments."""
    job.refresh_from_db()
    counts = Counter(job.segments.values_list("status", flat=True))
    counted = (job.segments_done, job.segments_failed, job.segments_cancelled)
    assert counted == (counts["done"], counts["failed"], counts["cancelled"])


def test_every_segment_is_claimed_exactly_once(database: str) -> None:
    job = make_job(segments=60)

    def claim_all(number: int) -> list[int]:
        found: list[int] = []
        while claims := claim(number, 3):
            found += [held.pk for held in claims]
        return found

    won = [pk for found in at_once(claim_all) for pk in found]

    # Where locked rows are skipped, a thread may see none left while others still hold theirs.
    won += [held.pk for held in claim(99, 60)]
    assert sorted(won) == list(job.segments.values_list("pk", flat=True))
    assert set(job.segments.values_list("attempts", flat=True)) == {1}


def test_message_that_comes_many_times_is_one_claim(database: str) -> None:
    job = make_job(segments=8)
    ids = list(job.segments.values_list("pk", flat=True))

    claims = at_once(lambda number: claim(number, 8, ids))

    assert sorted(held.pk for found in claims for held in found) == ids


def test_segments_finished_at_once_are_all_counted_and_order_one_file(database: str) -> None:
    job = make_job(segments=NUM_THREADS * 4)
    claims = claim(0, 100)
    takes = [make_take(audio_seconds=1.0) for _ in claims]

    def finish(number: int) -> list[bool]:
        mine = range(number, len(claims), NUM_THREADS)
        return [finish_segment(claims[place], takes[place]) for place in mine]

    assert all(done for each in at_once(finish) for done in each)

    assert_counts_fit(job)
    assert job.segments_done == job.segments_total
    assert Export.objects.filter(job=job).count() == 1


def test_same_segment_finished_by_many_is_counted_once(database: str) -> None:
    job = make_job(segments=2)
    [held, _] = claim(0, 2)
    take = make_take()

    finished = at_once(lambda _: finish_segment(held, take))

    assert sorted(finished) == [False] * (NUM_THREADS - 1) + [True]
    assert_counts_fit(job)


def test_expired_claim_goes_to_one_and_its_late_worker_changes_nothing(database: str) -> None:
    job = make_job(segments=1)
    [stale] = claim(0, 1)
    take = make_take()
    Segment.objects.update(lease_until=leases.database_now())

    def act(number: int) -> bool:
        if number % 3 == 0:
            return finish_segment(stale, take)
        if number % 3 == 1:
            free_lost_segments(leases.expired(leases.database_now()))
        return any(finish_segment(held, take) for held in claim(number, 1))

    finished = at_once(act)

    finished += [finish_segment(held, take) for held in claim(99, 1)]
    assert sum(finished) == 1
    assert_counts_fit(job)
    assert Export.objects.count() == 1


def test_cancel_among_working_workers_ends_the_job_with_right_counts(database: str) -> None:
    for seed in range(4):
        job = make_job(segments=24)
        take = make_take()

        def work(number: int, job: RenderJob = job, take: Any = take, seed: int = seed) -> None:
            rng = random.Random(100 * seed + number)
            if number == 0:
                cancel_job(job.pk)
                return
            steps: list[Callable[[Claim], bool]] = [
                lambda held: finish_segment(held, take),
                lambda held: fail_segment(held, code="x", message="x"),
                cancel_segment,
                lambda held: leases.hand_back(Segment, held),
            ]
            while claims := claim(number, 2):
                for held in claims:
                    rng.choice(steps)(held)

        at_once(work)
        close_cancelled_jobs()

        assert_counts_fit(job)
        assert job.status in RenderJob.FINAL
        closed = job.segments_done + job.segments_failed + job.segments_cancelled
        assert closed == job.segments_total


def test_voice_deleted_while_its_jobs_are_cancelled_ends_all_of_them(database: str) -> None:
    for _ in range(4):
        voice = make_voice(f"Ada {random.random()}")
        jobs = [make_job(segments=6, voice=voice) for _ in range(NUM_THREADS - 1)]

        def act(number: int, jobs: list[RenderJob] = jobs, voice: Voice = voice) -> None:
            if number == 0:
                delete_voice(voice)
            else:
                cancel_job(jobs[number - 1].pk)

        at_once(act)

        for job in jobs:
            assert_counts_fit(job)
            assert job.status in (RenderJob.Status.CANCELLED, RenderJob.Status.FAILED)


def test_job_cancelled_and_retried_at_once_is_in_one_state(database: str) -> None:
    job = make_job(segments=12)

    def act(number: int) -> None:
        for _ in range(5):
            if number % 2:
                cancel_job(job.pk)
            else:
                retry_job(job.pk)

    at_once(act)
    cancel_job(job.pk)

    assert_counts_fit(job)
    assert (job.status, job.segments_cancelled) == (RenderJob.Status.CANCELLED, 12)


def test_job_deleted_among_working_workers_leaves_no_row(database: str) -> None:
    for _ in range(4):
        job = make_job(segments=12)
        take = make_take()

        def act(number: int, job: RenderJob = job, take: Any = take) -> None:
            if number == 0:
                delete_job(job)
            elif number == 1:
                cancel_job(job.pk)
            while claims := claim(number, 2):
                for held in claims:
                    finish_segment(held, take)

        at_once(act)

        assert not Segment.objects.exists()
        assert not RenderJob.objects.exists()
        assert not Export.objects.exists()


def test_file_finished_and_job_cancelled_at_once_agree(database: str) -> None:
    for _ in range(6):
        job = make_job()
        [held] = claim(0, 1)
        finish_segment(held, make_take())
        made = claim_row(Export, Export.objects.get(job=job).pk, worker="cpu-1")
        assert made is not None

        def act(number: int, job: RenderJob = job, made: Claim = made) -> bool:
            if number:
                return cancel_job(job.pk)
            return finish_export(made, key="k", size_bytes=1, sha256="s", duration_seconds=1.0)

        finished, cancelled = at_once(act, 2)

        job.refresh_from_db()
        assert finished != cancelled
        assert (job.status == RenderJob.Status.SUCCEEDED) == finished
        assert job.exports.exists() == finished


def test_one_key_makes_one_job_however_many_send_it(database: str) -> None:
    owner, voice = make_user(), make_voice()

    made = at_once(
        lambda _: submit_job(
            Order("The same text for all.", voice),
            owner=owner,
            idempotency_key="k",
            body_digest="d",
        )
    )

    assert sum(is_new for _, is_new in made) == 1
    assert len({job.pk for job, _ in made}) == 1
    assert RenderJob.objects.count() == Segment.objects.count() == 1


def test_job_submitted_while_its_voice_is_deleted_is_refused_or_fails(database: str) -> None:
    for _ in range(4):
        voice = make_voice(f"Ada {random.random()}")
        order = Order("The text of this job.", voice)

        def act(number: int, order: Order = order, voice: Voice = voice) -> RenderJob | None:
            if number == 0:
                delete_voice(voice)
                return None
            try:
                return submit_job(order, owner=None)[0]
            except SubmitRejectedError as error:
                assert error.code == "voice_not_found"
                return None

        for job in filter(None, at_once(act)):
            job.refresh_from_db()
            assert (job.status, job.error_code) == ("failed", "voice_deleted")


def test_first_jobs_of_a_voice_wait_for_it_and_are_claimed_once_it_is_ready(database: str) -> None:
    voice = make_voice()
    VoiceVersion.objects.update(status=VoiceVersion.Status.PENDING)
    at_once(lambda _: submit_job(Order("The text of this job.", voice), owner=None))

    assert claim(0, 100) == []
    VoiceVersion.objects.update(status=VoiceVersion.Status.READY)
    assert len(claim(0, 100)) == NUM_THREADS


@pytest.mark.parametrize("is_owned", [True, False])
def test_of_voices_made_at_once_with_one_name_one_is_made(database: str, is_owned: bool) -> None:
    owner = make_user() if is_owned else None

    def make(number: int) -> bool:
        clips = [NewClip("Hello.", content=clip_bytes("wav"))]
        name = "Ada" if number % 2 else "ADA"
        try:
            create_voice(name=name, consent_statement="Yes.", by="ada", owner=owner, clips=clips)
        except VoiceNameTakenError:
            return False
        return True

    assert sorted(at_once(make)) == [False] * (NUM_THREADS - 1) + [True]
    assert Voice.objects.count() == StoredClip.objects.count() == 1


@pytest.mark.postgres
@pytest.mark.parametrize("database", ["postgres"], indirect=True)
def test_claim_waiting_behind_a_cancel_moves_no_segment(database: str) -> None:
    """An UPDATE that waited for a row is judged by the row as it is then, not as it was."""
    job = make_job(segments=3)
    claims = claim(0, 3)

    def give_back(number: int) -> int:
        try:
            return wait_for_takes({claim: "a key" for claim in claims})
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert cancel_job(job.pk)
            waiting = pool.submit(give_back, 0)
            wait_for(_some_wait_for_locks, what="the other step waits for the cancelled rows")
        moved = waiting.result()

    assert moved == 0
    assert set(job.segments.values_list("status", flat=True)) == {"cancelled"}
    assert_counts_fit(job)


def _some_wait_for_locks() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE NOT granted AND datname = current_database()"
        )
        return bool(cursor.fetchone()[0])
