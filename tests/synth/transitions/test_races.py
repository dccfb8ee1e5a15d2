"""Steps taken at once by many threads, on SQLite in a file and on PostgreSQL."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction

from synth.api.batches.entries import entries_of_list
from synth.api.batches.texts import BatchOptions, submit_batch
from synth.batches.turns import delete
from synth.jobs.removal import delete_job
from synth.jobs.submit import Order, Sender, submit_job
from synth.models import Batch, Export, RenderedDay, RenderJob, Segment
from synth.transitions.batches import cancel_batch, retry_batch, settle_stalled_batches
from synth.transitions.claims import wait_for_takes
from synth.transitions.files import claimable_exports
from synth.transitions.jobs import cancel_job, close_cancelled_jobs, retry_job
from synth.transitions.segments import (
    cancel_segment,
    fail_segment,
    finish_segments,
    free_lost_segments,
)
from tests.factories import (
    claim,
    claim_row,
    finish_export,
    finish_segment,
    hold_row,
    make_job,
    make_take,
    make_user,
    make_voice,
    stored,
)
from tests.synth.conftest import NUM_THREADS, at_once
from tests.voices.clips import clip_bytes
from tests.workers.pairs import wait_for
from ttsweb import leases
from ttsweb.leases import Claim
from ttsweb.refusals import SubmitRejectedError
from voices.models import StoredClip, Voice, VoiceVersion
from voices.objects import delete_voice
from voices.submit import NewClip, VoiceNameTakenError, create_voice

pytestmark = pytest.mark.usefixtures("database")
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2, 3))]


def assert_counts_fit(job: RenderJob) -> None:
    """Assert that the job's counters are those of its segments."""
    counted = stored(job, "segments_done", "segments_failed", "segments_cancelled")
    counts = Counter(job.segments.values_list("status", flat=True))
    assert counted == (counts["done"], counts["failed"], counts["cancelled"])


@pytest.mark.parametrize("is_named", [False, True])
def test_every_segment_is_claimed_exactly_once(is_named: bool) -> None:
    job = make_job(segments=60)
    keys = list(job.segments.values_list("pk", flat=True))
    named: dict[str, Any] = {"ids": keys} if is_named else {}  # as a message that comes many times

    def claim_all(_: int) -> list[int]:
        found: list[int] = []
        while claims := claim(3, **named):
            found += [held.pk for held in claims]
        return found

    won = [pk for found in at_once(claim_all) for pk in found]

    # Where locked rows are skipped, a thread may see none left while others still hold theirs.
    won += [held.pk for held in claim(60)]
    assert sorted(won) == keys
    assert set(job.segments.values_list("attempts", flat=True)) == {1}


def test_segments_finished_at_once_are_all_counted_and_order_one_file() -> None:
    job = make_job(segments=NUM_THREADS * 4)
    claims = claim()
    takes = [make_take(audio_seconds=1.5) for _ in claims]

    def finish(number: int) -> int:
        mine = range(number, len(claims), NUM_THREADS)
        reused = claims[:NUM_THREADS]
        return sum(len(finish_segments([(claims[p], takes[p])], reused=reused)) for p in mine)

    assert sum(at_once(finish)) == len(claims) == 24

    assert_counts_fit(job)
    assert (job.segments_done, job.takes_rendered, job.takes_reused) == (24, 18, 6)
    assert Export.objects.filter(job=job).count() == 1
    day = RenderedDay.objects.get()
    assert day.day == leases.database_now().astimezone(dt.UTC).date()
    assert (day.segments, day.reused, day.audio_seconds) == (24, 6, 18 * 1.5)


def test_same_segment_finished_by_many_is_counted_once() -> None:
    job = make_job(segments=2)
    [held, _] = claim(2)
    take = make_take()

    finished = at_once(lambda _: finish_segment(held, take))

    assert sorted(finished) == [False] * (NUM_THREADS - 1) + [True]
    assert_counts_fit(job)


def test_expired_claim_goes_to_one_and_its_late_worker_changes_nothing() -> None:
    job = make_job(segments=1)
    [stale] = claim(1)
    take = make_take()
    Segment.objects.update(lease_until=leases.database_now())

    def act(number: int) -> bool:
        if number % 3 == 0:
            return finish_segment(stale, take)
        if number % 3 == 1:
            free_lost_segments(leases.expired(leases.database_now()))
        return any(finish_segment(held, take) for held in claim(1))

    finished = at_once(act)

    finished += [finish_segment(held, take) for held in claim(1)]
    assert sum(finished) == 1
    assert_counts_fit(job)
    assert Export.objects.count() == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_cancel_among_working_workers_ends_the_job_with_right_counts(seed: int) -> None:
    job, take = make_job(segments=24), make_take()

    def work(number: int) -> None:
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
        while claims := claim(2):
            for held in claims:
                rng.choice(steps)(held)

    at_once(work)
    close_cancelled_jobs()

    assert_counts_fit(job)
    assert job.status in RenderJob.FINAL
    closed = job.segments_done + job.segments_failed + job.segments_cancelled
    assert closed == job.segments_total


def test_voice_deleted_while_its_jobs_are_cancelled_ends_all_of_them() -> None:
    for _ in range(4):
        voice = make_voice()
        jobs = [make_job(segments=6, voice=voice) for _ in range(NUM_THREADS - 1)]
        steps = [lambda voice=voice: delete_voice(voice)]
        steps += [lambda job=job: cancel_job(job.pk) for job in jobs]

        at_once(lambda number, steps=steps: steps[number]())  # type: ignore[misc]

        for job in jobs:
            assert_counts_fit(job)
            assert job.status in (RenderJob.Status.CANCELLED, RenderJob.Status.FAILED)


def test_job_cancelled_and_retried_at_once_is_in_one_state() -> None:
    job = make_job(segments=12)

    def act(number: int) -> None:
        for _ in range(5):
            (cancel_job if number % 2 else retry_job)(job.pk)

    at_once(act)
    cancel_job(job.pk)

    assert_counts_fit(job)
    assert (job.status, job.segments_cancelled) == (RenderJob.Status.CANCELLED, 12)


def test_job_deleted_among_working_workers_leaves_no_row() -> None:
    for _ in range(4):
        job, take = make_job(segments=12), make_take()

        def act(number: int, job: RenderJob = job, take: object = take) -> None:
            if number == 0:
                delete_job(job)
            elif number == 1:
                cancel_job(job.pk)
            while claims := claim(2):
                for held in claims:
                    finish_segment(held, take)  # type: ignore[arg-type]

        at_once(act)

        assert not any(model.objects.exists() for model in (Segment, RenderJob, Export))


def test_file_finished_and_job_cancelled_at_once_agree() -> None:
    for _ in range(6):
        job = make_job()
        finish_segment(claim(1)[0], make_take())
        made = hold_row(Export, Export.objects.get(job=job).pk)

        def act(number: int, job: RenderJob = job, made: Claim = made) -> bool:
            return cancel_job(job.pk) if number else finish_export(made)

        finished, cancelled = at_once(act, 2)

        assert finished != cancelled
        assert (stored(job, "status") == (RenderJob.Status.SUCCEEDED,)) == finished
        assert job.exports.exists() == finished


@pytest.mark.parametrize("is_batch", [False, True])
def test_one_key_makes_one_job_or_batch_however_many_send_it(is_batch: bool) -> None:
    voice = make_voice(shared=True)
    sender = Sender(make_user(), idempotency_key="k", body_digest="d")
    entries = entries_of_list([{"text": "One."}, {"text": "Two."}], max_items=9)
    options = BatchOptions(defaults={"voice": voice.name})

    def submit(_: int) -> tuple[Batch | RenderJob, bool]:
        if is_batch:
            return submit_batch(entries, options, sender)
        return submit_job(Order("The same text for all.", voice), sender)

    made = at_once(submit)

    assert sum(is_new for _, is_new in made) == 1
    assert len({row.pk for row, _ in made}) == 1
    assert Batch.objects.count() == is_batch
    assert RenderJob.objects.count() == Segment.objects.count() == 1 + is_batch


def test_job_submitted_while_its_voice_is_deleted_is_refused_or_fails() -> None:
    for _ in range(4):
        voice = make_voice()

        def act(number: int, voice: Voice = voice) -> RenderJob | None:
            if number == 0:
                delete_voice(voice)
                return None
            try:
                return submit_job(Order("The text of this job.", voice), Sender(None))[0]
            except SubmitRejectedError as error:
                assert error.code == "voice_not_found"
                return None

        for job in filter(None, at_once(act)):
            assert stored(job, "status", "error_code") == ("failed", "voice_deleted")


def test_first_jobs_of_a_voice_wait_for_it_and_are_claimed_once_it_is_ready() -> None:
    voice = make_voice()
    VoiceVersion.objects.update(status=VoiceVersion.Status.PENDING)
    at_once(lambda _: submit_job(Order("The text of this job.", voice), Sender(None)))

    assert claim() == []
    VoiceVersion.objects.update(status=VoiceVersion.Status.READY)
    assert len(claim()) == NUM_THREADS


@pytest.mark.parametrize("is_owned", [True, False])
def test_of_voices_made_at_once_with_one_name_one_is_made(is_owned: bool) -> None:
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
def test_claim_waiting_behind_a_cancel_moves_no_segment() -> None:
    """An UPDATE that waited for a row is judged by the row as it is then, not as it was."""
    job = make_job(segments=3)
    claims = claim()

    def give_back() -> int:
        try:
            return wait_for_takes({claim: "a key" for claim in claims})
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert cancel_job(job.pk)
            waiting = pool.submit(give_back)
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


def make_batches(number: int, *, items: int) -> list[Batch]:
    entries = entries_of_list([{"text": f"Item {index}."} for index in range(items)], max_items=99)
    options = BatchOptions(defaults={"voice": make_voice().name})
    return [submit_batch(entries, options, Sender(None))[0] for _ in range(number)]


def work(number: int) -> None:
    """Do the work of a worker of both kinds until nothing is left; every tenth segment fails."""
    chance = random.Random(number)
    while True:
        held = claim(5)
        bad = [one for one in held if chance.random() < 0.1]
        for one in bad:
            fail_segment(one, code="bad", message="It is bad.")
        take = make_take()
        finish_segments([(one, take) for one in held if one not in bad])
        exports = list(claimable_exports().values_list("pk", flat=True)[:5])
        for pk in exports:
            if (claimed := claim_row(Export, pk)) is not None:
                finish_export(claimed, key=f"k{pk}")
        if not held and not exports:
            return


def assert_consistent(batch: Batch) -> None:
    """Assert that a batch's state is what its items' states make it."""
    status, total, ended = stored(batch, "status", "items_total", "items_ended")
    states = list(batch.items.values_list("status", flat=True))
    assert set(states) <= set(RenderJob.FINAL), states
    assert (total, ended) == (len(states), len(states))
    has_zip = Export.objects.filter(batch=batch, status="done").exists()
    if status == RenderJob.Status.CANCELLED:
        assert not has_zip
    elif set(states) == {"succeeded"}:
        assert (status, has_zip) == ("succeeded", True)
    elif {"succeeded", "partial"} & set(states):
        assert (status, has_zip) == ("partial", True)
    else:
        assert (status, has_zip) == ("failed", False)


def test_batches_that_are_finished_by_many_workers_end_once() -> None:
    batches = make_batches(3, items=24)

    at_once(work)

    for batch in batches:
        assert_consistent(batch)
        assert Export.objects.filter(batch=batch).count() == 1
    assert settle_stalled_batches() == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_cancels_retries_and_ends_at_once_leave_no_batch_behind(seed: int) -> None:
    batches = make_batches(3, items=8)

    def retry_an_item(batch_id: Any) -> None:
        item = RenderJob.objects.filter(batch=batch_id).order_by("?").first()
        if item is not None:
            retry_job(item.pk)

    def disturb(number: int) -> None:
        if number < 3:
            work(number)
            return
        chance = random.Random(seed * 100 + number)
        for _ in range(12):
            batch = chance.choice(batches)
            chance.choice((cancel_batch, retry_batch, retry_an_item))(batch.pk)

    at_once(disturb)
    close_cancelled_jobs()
    settle_stalled_batches()
    work(99)

    for batch in batches:
        assert_consistent(batch)
    assert not Segment.objects.filter(status__in=("queued", "claimed")).exists()


def test_batch_that_is_deleted_while_it_is_rendered_leaves_nothing() -> None:
    batch, other = make_batches(2, items=24)

    at_once(lambda number: work(number) if number else delete(batch))
    work(99)

    assert not RenderJob.objects.filter(batch=batch.pk).exists()
    assert not Batch.objects.filter(pk=batch.pk).exists()
    assert_consistent(other)
