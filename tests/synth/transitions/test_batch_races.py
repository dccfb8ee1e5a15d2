"""Items of batches that end, are cancelled, retried and deleted by many threads at once."""

from __future__ import annotations

import random
import uuid

import pytest

from synth.batches.actions import delete
from synth.batches.entries import entries_of_list
from synth.batches.texts import BatchOptions, submit_batch
from synth.models import Batch, Export, RenderJob, Segment
from synth.transitions.batches import cancel_batch, retry_batch, settle_stalled_batches
from synth.transitions.files import claimable_exports
from synth.transitions.jobs import close_cancelled_jobs, retry_job
from synth.transitions.segments import fail_segment, finish_segments
from tests.factories import claim_row, finish_export, make_take, make_user, make_voice
from tests.synth.transitions.test_races import at_once, claim, database

__all__ = ["database"]  # a fixture is found by its name
NUM_ITEMS = 24


def make(voice: str, *, items: int = NUM_ITEMS) -> Batch:
    entries = entries_of_list([{"text": f"Item {index}."} for index in range(items)], max_items=99)
    options = BatchOptions(defaults={"voice": voice})
    return submit_batch(entries, options, owner=None)[0]


def work(number: int) -> None:
    """Do the work of a worker of both kinds until nothing is left; every tenth segment fails."""
    chance = random.Random(number)
    while True:
        held = claim(number, 5)
        bad = [one for one in held if chance.random() < 0.1]
        for one in bad:
            fail_segment(one, code="bad", message="It is bad.")
        take = make_take()
        finish_segments([(one, take) for one in held if one not in bad])
        exports = list(claimable_exports().values_list("pk", flat=True)[:5])
        for pk in exports:
            if (claimed := claim_row(Export, pk, worker=f"w{number}")) is not None:
                finish_export(
                    claimed, key=f"k{pk}", size_bytes=1, sha256="d" * 64, duration_seconds=1.0
                )
        if not held and not exports:
            return


def assert_consistent(batch: Batch) -> None:
    """Assert that a batch's state is what its items' states make it."""
    batch.refresh_from_db()
    states = list(batch.items.values_list("status", flat=True))
    assert set(states) <= set(RenderJob.FINAL), states
    assert (batch.items_total, batch.items_ended) == (len(states), len(states))
    has_zip = Export.objects.filter(batch=batch, status="done").exists()
    if batch.status == RenderJob.Status.CANCELLED:
        assert not has_zip
    elif set(states) == {"succeeded"}:
        assert (batch.status, has_zip) == ("succeeded", True)
    elif {"succeeded", "partial"} & set(states):
        assert (batch.status, has_zip) == ("partial", True)
    else:
        assert (batch.status, has_zip) == ("failed", False)


def test_batches_that_are_finished_by_many_workers_end_once(database: str) -> None:
    voice = make_voice().name
    batches = [make(voice) for _ in range(3)]

    at_once(work)

    for batch in batches:
        assert_consistent(batch)
        assert Export.objects.filter(batch=batch).count() == 1
    assert settle_stalled_batches() == 0


@pytest.mark.parametrize("seed", range(3))
def test_cancels_retries_and_ends_at_once_leave_no_batch_behind(database: str, seed: int) -> None:
    voice = make_voice().name
    batches = [make(voice, items=8) for _ in range(3)]

    def disturb(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        if number < 3:
            work(number)
            return
        for _ in range(12):
            batch = chance.choice(batches)
            step = chance.choice((cancel_batch, retry_batch, _retry_an_item))
            step(batch.pk)

    at_once(disturb)
    close_cancelled_jobs()
    settle_stalled_batches()
    work(99)

    for batch in batches:
        assert_consistent(batch)
    assert not Segment.objects.filter(status__in=("queued", "claimed")).exists()


def test_batch_that_is_deleted_while_it_is_rendered_leaves_nothing(database: str) -> None:
    voice = make_voice().name
    batch, other = make(voice), make(voice)

    def disturb(number: int) -> None:
        if number == 0:
            delete(batch)
        else:
            work(number)

    at_once(disturb)
    work(99)

    assert not RenderJob.objects.filter(batch=batch.pk).exists()
    assert not Batch.objects.filter(pk=batch.pk).exists()
    assert_consistent(other)


def test_same_idempotency_key_at_once_makes_one_batch(database: str) -> None:
    user, voice = make_user(), make_voice(shared=True)
    entries = entries_of_list([{"text": "One."}, {"text": "Two."}], max_items=9)
    options = BatchOptions(defaults={"voice": voice.name})

    made = at_once(
        lambda _: (
            submit_batch(entries, options, owner=user, idempotency_key="k", body_digest="d")[0].pk
        )
    )

    assert len(set(made)) == 1
    assert (Batch.objects.count(), RenderJob.objects.count()) == (1, 2)


def _retry_an_item(batch_id: uuid.UUID) -> None:
    item = RenderJob.objects.filter(batch=batch_id).order_by("?").first()
    if item is not None:
        retry_job(item.pk)
