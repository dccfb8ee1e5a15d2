"""The proof of a book, and that one with a gap never counts as whole."""

from __future__ import annotations

from typing import Any

import pytest

from synth.audiobooks.proof import proof_of
from synth.audiobooks.start import start_book
from synth.models import BookSource, RenderJob, Segment, Take
from tests.factories import make_user
from tests.synth.books_api.shelf import end, speak_all, store_book

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def job(ada: None) -> RenderJob:
    """The job of a book that was just started."""
    return start_book(store_book(make_user("owner")))


def proof(job: RenderJob) -> dict[str, Any]:
    return proof_of(BookSource.objects.get(job=job))


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
    ada: None,
) -> None:
    text = "The old gate\N{WORD JOINER}\N{EM DASH}it was green\N{EM DASH}stood open again."
    job = start_book(store_book(make_user("owner"), [("The Garden", text)]))

    begun = proof(job)
    speak_all(job)
    spoken = proof(job)

    assert begun["chapters"][0]["source_chars"] > begun["chapters"][0]["text_chars"]
    assert (begun["spoken_chars"], spoken["open_chars"]) == (0, 0)
    assert sums(begun) == sums(spoken) == begun["spine_chars"]
    assert spoken["is_complete"]


@pytest.mark.parametrize("change", [{"audio_seconds": 0.2}, {"quality_flags": ["too_short"]}])
def test_book_with_a_take_that_is_too_short_does_not_succeed(
    job: RenderJob, change: dict[str, Any]
) -> None:
    short = speak_all(job)[2].pk
    Take.objects.filter(segments=short).update(**change)

    ended = end(job)

    assert (ended.status, ended.error_code) == ("partial", "book_segments_short")
    assert str(short) in ended.error_message
    assert proof(job)["short_segments"] == [short]


def test_take_that_a_person_chose_is_taken_as_good(job: RenderJob) -> None:
    speak_all(job, seconds=0.2)
    job.segments.update(is_hand_picked=True)
    assert end(job).status == "succeeded"


def test_whole_book_succeeds_and_one_that_lost_a_segment_does_not(job: RenderJob) -> None:
    segments = speak_all(job)
    assert end(job).status == "succeeded"
    job.exports.all().delete()
    Segment.objects.filter(pk=segments[1].pk).delete()

    ended = end(job)

    assert (ended.status, ended.error_code) == ("partial", "book_unbalanced")
    assert not proof(job)["is_balanced"]


def test_book_with_a_failed_segment_is_partial(job: RenderJob) -> None:
    segments = speak_all(job)
    Segment.objects.filter(pk=segments[1].pk).update(status="failed", take=None)

    assert (end(job).status, job.error_code) == ("partial", "segments_failed")
