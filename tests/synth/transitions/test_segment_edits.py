"""One segment is changed at a person's wish; the job is opened again and nothing else moves."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from synth.models import Export, RenderJob, Segment, Take
from synth.transitions.claims import claim_segments
from synth.transitions.jobs import cancel_job
from synth.transitions.segment_edits import choose_take, render_again, say_otherwise
from synth.transitions.takes import retake_seed
from tests.factories import CODEC_FINGERPRINT, finish_segment, make_export, make_job, make_take
from tests.synth.transitions.test_races import at_once
from tests.synth.transitions.test_races import database as database  # a fixture

pytestmark = pytest.mark.django_db(transaction=True)
Status = RenderJob.Status


def spoken_job(*, segments: int = 3, failed: int = 0, **fields: Any) -> RenderJob:
    """Return an ended job whose first `failed` segments have no take, with its file."""
    status = Status.PARTIAL if failed else Status.SUCCEEDED
    job = make_job(segments=segments, **({"status": status} | fields))
    for place, segment in enumerate(job.segments.order_by("pk")):
        is_failed = place < failed
        if not is_failed:
            make_take([segment], audio_seconds=2.0)
        Segment.objects.filter(pk=segment.pk).update(
            status="failed" if is_failed else "done", error_code="x" if is_failed else ""
        )
    RenderJob.objects.filter(pk=job.pk).update(
        segments_done=segments - failed, segments_failed=failed, audio_seconds=99.0
    )
    make_export(job)
    job.refresh_from_db()
    return job


def first(job: RenderJob) -> Segment:
    return job.segments.order_by("pk")[0]


def finish(job: RenderJob, take: Take) -> None:
    (claim,) = claim_segments(worker="w", limit=9, codec_fingerprint=CODEC_FINGERPRINT)
    assert finish_segment(claim, take)
    job.refresh_from_db()


def assert_counts_fit(job: RenderJob) -> None:
    job.refresh_from_db()
    counts = Counter(job.segments.values_list("status", flat=True))
    assert (job.segments_done, job.segments_failed) == (counts["done"], counts["failed"])


@pytest.mark.usefixtures("job_services")
def test_segment_is_queued_with_the_next_seed_and_its_take_stays_to_be_heard() -> None:
    job = spoken_job()
    before = first(job)

    assert render_again(before.pk)

    segment = first(job)
    assert (segment.status, segment.take, segment.is_hand_picked) == ("queued", None, True)
    assert segment.seed == retake_seed(before.seed, 1)
    assert [one["take"] for one in segment.candidates] == [str(before.take_id)]
    assert list(segment.candidate_takes.all()) == [before.take]
    assert_counts_fit(job)
    assert (job.status, job.finished_at, job.exports.count()) == (Status.RUNNING, None, 0)
    assert job.audio_seconds == pytest.approx(2 * (2.0 + 0.3))
    assert set(job.segments.exclude(pk=segment.pk).values_list("status", flat=True)) == {"done"}


@pytest.mark.usefixtures("job_services")
def test_take_that_a_person_asked_for_is_kept_though_it_is_worse() -> None:
    job = spoken_job()
    render_again(first(job).pk, seed=77)
    bad = make_take(quality_score=0.01, quality_flags=["noise"])

    finish(job, bad)

    segment = first(job)
    assert (segment.status, segment.take, segment.seed) == ("done", bad, 77)
    assert len(segment.candidates) == 2
    assert job.exports.get().status == Export.Status.QUEUED
    render_again(segment.pk)
    assert first(job).seed == retake_seed(segment.candidates[0]["seed"], 1)


@pytest.mark.usefixtures("job_services")
def test_failed_segment_is_rendered_again_as_well() -> None:
    job = spoken_job(failed=1)

    assert render_again(first(job).pk)

    assert (first(job).status, first(job).error_code, first(job).candidates) == ("queued", "", [])
    assert_counts_fit(job)


@pytest.mark.usefixtures("job_services")
def test_other_words_start_anew_and_the_old_takes_go() -> None:
    job = spoken_job()
    segment, others = first(job), Take.objects.exclude(segments=first(job))
    assert segment.take is not None
    default_storage.save(segment.take.audio_key, ContentFile(b"flac"))

    assert say_otherwise(segment.pk, spoken_text="Other words.", seed=9, is_hand_picked=False)

    changed = first(job)
    assert (changed.spoken_text, changed.text) == ("Other words.", segment.text)
    assert (changed.seed, changed.candidates, changed.is_hand_picked) == (9, [], False)
    assert set(Take.objects.all()) == set(others)
    assert not default_storage.exists(segment.take.audio_key)
    assert_counts_fit(job)


@pytest.mark.usefixtures("job_services")
def test_take_that_another_job_has_stays_when_the_words_change() -> None:
    job, other = spoken_job(), spoken_job()
    shared = first(job).take
    Segment.objects.filter(pk=first(other).pk).update(take=shared)

    say_otherwise(first(job).pk, spoken_text="Other words.", seed=9, is_hand_picked=False)

    assert first(other).take == shared


@pytest.mark.usefixtures("job_services")
@pytest.mark.parametrize("state", ["queued", "claimed", "cancelled"])
def test_segment_that_is_at_work_or_cancelled_is_not_touched(state: str) -> None:
    job = spoken_job()
    Segment.objects.filter(pk=first(job).pk).update(status=state)
    before = list(Segment.objects.order_by("pk").values())

    assert not render_again(first(job).pk)
    assert not say_otherwise(first(job).pk, spoken_text="x", seed=1, is_hand_picked=True)
    assert not choose_take(first(job).pk, uuid.uuid4())

    assert list(Segment.objects.order_by("pk").values()) == before
    assert job.exports.count() == 1


@pytest.mark.usefixtures("job_services")
def test_segment_of_a_cancelled_job_is_not_touched() -> None:
    job = spoken_job()
    RenderJob.objects.update(status=Status.RUNNING)
    cancel_job(job.pk)

    assert not render_again(first(job).pk)


@pytest.mark.usefixtures("job_services")
def test_other_take_is_kept_and_the_file_made_again_without_rendering() -> None:
    job = spoken_job()
    old = first(job).take
    render_again(first(job).pk, seed=77)
    finish(job, make_take(audio_seconds=5.0))
    assert old is not None

    assert choose_take(first(job).pk, old.pk)

    segment = first(job)
    assert (segment.status, segment.take, segment.is_hand_picked) == ("done", old, True)
    assert segment.seed == segment.candidates[0]["seed"]
    assert len(segment.candidates) == segment.candidate_takes.count() == 2
    job.refresh_from_db()
    assert (job.status, job.exports.get().status) == (Status.RUNNING, Export.Status.QUEUED)
    assert job.audio_seconds == pytest.approx(3 * 2.3)
    assert_counts_fit(job)


@pytest.mark.usefixtures("job_services")
def test_failed_rerendering_can_be_answered_by_the_take_before() -> None:
    job = spoken_job()
    old = first(job).take
    assert old is not None
    render_again(first(job).pk)
    Segment.objects.filter(pk=first(job).pk).update(status="failed", error_code="x")
    RenderJob.objects.update(segments_failed=1, status=Status.PARTIAL)

    assert choose_take(first(job).pk, old.pk)

    assert (first(job).status, first(job).error_code, first(job).take) == ("done", "", old)
    assert_counts_fit(job)


@pytest.mark.usefixtures("job_services")
def test_take_of_another_segment_cannot_be_chosen() -> None:
    job = spoken_job()
    other = job.segments.order_by("pk")[1].take
    assert other is not None

    assert not choose_take(first(job).pk, other.pk)
    assert job.exports.count() == 1


def test_many_who_ask_at_once_have_it_rendered_once(database: str) -> None:
    job = spoken_job()
    pk = first(job).pk

    moved = at_once(lambda _: render_again(pk))

    assert Counter(moved)[True] == 1
    assert len(first(job).candidates) == 1
    assert_counts_fit(job)


def test_asking_and_choosing_at_once_leave_the_counters_right(database: str) -> None:
    job = spoken_job()
    old = first(job).take
    assert old is not None
    render_again(first(job).pk)
    finish(job, make_take())
    segment = first(job)
    steps: list[Callable[[], bool]] = [
        lambda: choose_take(segment.pk, old.pk),
        lambda: render_again(segment.pk),
    ]

    at_once(lambda number: steps[number % 2]())

    assert_counts_fit(job)
    assert job.exports.count() == int(first(job).status == "done")
