"""The proof of a book, and that one with a gap never counts as whole."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import start_book
from synth.models import BookSource, Export, RenderJob, Segment
from tests.factories import claim_row, finish_export, make_user, make_voice
from tests.synth.books_api.shelf import speak_all, store_book

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def job(job_services: None) -> RenderJob:
    """The job of a book that was just started."""
    make_voice("Ada", shared=True)
    owner: User = make_user("owner")
    return start_book(store_book(owner))


def proof(job: RenderJob) -> dict[str, Any]:
    return proof_of(BookSource.objects.get(job=job))


def end(job: RenderJob) -> RenderJob:
    """Finish a job's file as a worker does, once all of its segments have ended."""
    done = job.segments.filter(status="done").count()
    failed = job.segments.filter(status="failed").count()
    RenderJob.objects.filter(pk=job.pk).update(
        status="running", segments_done=done, segments_failed=failed
    )
    export = Export.objects.create(job=job, format=job.format)
    claim = claim_row(Export, export.pk, worker="w")
    assert claim is not None
    finish_export(claim, key="k", size_bytes=1, sha256="0", duration_seconds=1.0)
    job.refresh_from_db()
    return job


def sums(answer: dict[str, Any]) -> int:
    names = ("spoken_chars", "skipped_chars", "failed_chars", "open_chars")
    return sum(answer[name] for name in names)


def test_all_characters_are_accounted_for_at_every_moment(job: RenderJob) -> None:
    begun = proof(job)
    speak_all(job)
    spoken = proof(job)
    segment = job.segments.first()
    assert segment is not None
    Segment.objects.filter(pk=segment.pk).update(status="failed", take=None)
    failed = proof(job)

    assert begun["open_chars"] > 0 == begun["spoken_chars"]
    assert spoken["spoken_chars"] == begun["open_chars"]
    assert failed["failed_chars"] > 0
    assert all(sums(one) == one["spine_chars"] for one in (begun, spoken, failed))
    assert all(one["is_balanced"] for one in (begun, spoken, failed))
    assert [one["is_complete"] for one in (begun, spoken, failed)] == [False, True, False]
    assert set(spoken["skipped"]) == {"title_page", "licence"}


def test_marks_that_only_the_source_has_are_spoken_with_the_rest_and_not_before(
    job_services: None,
) -> None:
    make_voice("Ada", shared=True)
    text = "The old gate\N{WORD JOINER}\N{EM DASH}it was green\N{EM DASH}stood open again."
    job = start_book(store_book(make_user("owner"), [("The Garden", text)]))

    begun = proof(job)
    speak_all(job)
    spoken = proof(job)

    assert begun["chapters"][0]["source_chars"] > begun["chapters"][0]["text_chars"]
    assert (begun["spoken_chars"], spoken["open_chars"]) == (0, 0)
    assert sums(begun) == sums(spoken) == begun["spine_chars"]
    assert spoken["is_complete"]


def test_whole_book_succeeds(job: RenderJob) -> None:
    speak_all(job)

    assert end(job).status == "succeeded"


def test_book_with_a_take_that_is_too_short_does_not_succeed(job: RenderJob) -> None:
    segments = speak_all(job)
    take = segments[2].take or Segment.objects.get(pk=segments[2].pk).take
    assert take is not None
    take.audio_seconds = 0.2
    take.save()

    ended = end(job)

    assert (ended.status, ended.error_code) == ("partial", "book_segments_short")
    assert str(segments[2].pk) in ended.error_message
    assert proof(job)["short_segments"] == [segments[2].pk]


def test_take_that_a_person_chose_is_taken_as_good(job: RenderJob) -> None:
    segments = speak_all(job, seconds=0.2)
    Segment.objects.filter(pk__in=[one.pk for one in segments]).update(is_hand_picked=True)

    assert end(job).status == "succeeded"


def test_take_that_the_screen_found_too_short_counts_as_such(job: RenderJob) -> None:
    segments = speak_all(job)
    take = Segment.objects.get(pk=segments[0].pk).take
    assert take is not None
    take.quality_flags = ["too_short"]
    take.save()

    assert end(job).error_code == "book_segments_short"


def test_book_that_lost_a_segment_does_not_succeed(job: RenderJob) -> None:
    segments = speak_all(job)
    Segment.objects.filter(pk=segments[1].pk).delete()

    ended = end(job)

    assert (ended.status, ended.error_code) == ("partial", "book_unbalanced")
    assert not proof(job)["is_balanced"]


def test_book_with_a_failed_segment_is_partial(job: RenderJob) -> None:
    segments = speak_all(job)
    Segment.objects.filter(pk=segments[1].pk).update(status="failed", take=None)

    assert (end(job).status, job.error_code) == ("partial", "segments_failed")
