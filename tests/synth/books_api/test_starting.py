"""A planned book becomes a job: chapters, segments, voices, pauses, and what is the same again."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from synth.accounts.keys import create_key
from synth.accounts.limits import KeyLimitError
from synth.audiobooks.start import start_book, start_wanted_books
from synth.models import BookSource, RenderJob, Segment
from synth.text.pauses import DEFAULT_PAUSES
from tests.factories import make_user, make_voice
from tests.synth.books_api.shelf import CHAPTERS, store_book
from ttsweb.refusals import SubmitRejectedError

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner(job_services: None) -> User:
    """A user with a voice that reads books."""
    make_voice("Ada", shared=True)
    return make_user("owner")


def seeds(job: RenderJob) -> dict[str, int]:
    return dict(job.segments.values_list("spoken_text", "seed"))


def test_chapters_are_those_of_the_plan_and_their_segments_hold_all_their_words(
    owner: User,
) -> None:
    book = store_book(owner)

    job = start_book(book)

    assert (job.kind, job.priority) == ("book", RenderJob.Priority.BULK)
    assert [chapter.title for chapter in job.chapters.all()] == [title for title, _ in CHAPTERS]
    assert list(job.chapters.values_list("index", flat=True)) == [0, 1, 2]
    for chapter, (title, text) in zip(job.chapters.all(), CHAPTERS, strict=True):
        said = " ".join(chapter.segments.order_by("index").values_list("text", flat=True))
        assert said == f"{title} {text}"
    assert job.segments_total == job.segments.count()
    book.refresh_from_db()
    assert book.job == job


def test_pauses_follow_titles_and_chapters_and_none_follows_the_last_words(owner: User) -> None:
    job = start_book(store_book(owner))

    pauses = [
        list(chapter.segments.order_by("index").values_list("pause_after_ms", flat=True))
        for chapter in job.chapters.all()
    ]
    assert [one[0] for one in pauses] == [900, 900, 900]
    assert [one[-1] for one in pauses] == [DEFAULT_PAUSES.chapter, DEFAULT_PAUSES.chapter, 0]


def test_sentence_put_in_elsewhere_leaves_all_other_seeds(owner: User) -> None:
    first = seeds(start_book(store_book(owner)))
    edited = [*CHAPTERS]
    edited[1] = (edited[1][0], "A new sentence stands at the beginning here. " + edited[1][1])

    second = seeds(start_book(store_book(owner, edited)))

    assert {text: second[text] for text in first} == first
    assert len(second) == len(first) + 1


def test_voice_of_a_chapter_speaks_it_alone(owner: User) -> None:
    bob = make_voice("Bob", shared=True)
    plain = seeds(start_book(store_book(owner)))
    book = store_book(owner)
    chapter = _ids(book)[1]
    book.edits = [{"edit": "voice", "chapter": chapter, "voice": "Bob"}]
    book.save()

    job = start_book(book)

    voices = {one.speaker: one.version.voice_id for one in job.voices.select_related("version")}
    spoken = [set(c.segments.values_list("speaker", flat=True)) for c in job.chapters.all()]
    assert spoken == [{0}, {1}, {0}]
    assert voices[1] == bob.pk
    assert seeds(job) == plain


def test_book_is_started_once(owner: User) -> None:
    book = store_book(owner)
    start_book(book)

    stale = BookSource.objects.get(pk=book.pk)
    stale.job = None  # as another request has read it a moment before
    with pytest.raises(SubmitRejectedError) as refused:
        start_book(stale)

    assert refused.value.code == "book_started"
    assert RenderJob.objects.count() == 1
    assert Segment.objects.count() == RenderJob.objects.get().segments_total


@pytest.mark.parametrize("wrong", [{"colour": "red"}, {"priority": "later"}])
def test_book_with_options_of_another_release_is_refused_and_waits_for_nothing(
    wrong: dict[str, str], owner: User
) -> None:
    book = store_book(owner)
    BookSource.objects.filter(pk=book.pk).update(
        options={**book.options, **wrong}, start_wanted=True
    )

    with pytest.raises(SubmitRejectedError) as refused:
        start_book(BookSource.objects.get(pk=book.pk))

    assert refused.value.code == "options_invalid"
    assert start_wanted_books() == 0
    assert BookSource.objects.get(pk=book.pk).error_code == "options_invalid"


def test_plan_that_was_changed_meanwhile_is_not_started(owner: User) -> None:
    book = store_book(owner)
    BookSource.objects.filter(pk=book.pk).update(plan_number=7)

    with pytest.raises(SubmitRejectedError) as refused:
        start_book(book)

    assert refused.value.code == "plan_changed"
    assert not RenderJob.objects.exists()


@pytest.mark.parametrize(
    ("state", "code"), [("importing", "book_not_planned"), ("failed", "book_failed")]
)
def test_book_without_a_plan_is_not_started(owner: User, state: str, code: str) -> None:
    with pytest.raises(SubmitRejectedError) as refused:
        start_book(store_book(owner, state=state))

    assert refused.value.code == code


def test_key_that_may_queue_less_starts_nothing(owner: User) -> None:
    key, _ = create_key(owner, "small")
    key.max_queued_chars = 50
    key.save()
    book = store_book(owner)

    with pytest.raises(KeyLimitError):
        start_book(book, api_key=key)

    book.refresh_from_db()
    assert book.job is None
    assert not RenderJob.objects.exists()


def test_book_that_was_to_start_by_itself_is_started_by_the_sweep_once(owner: User) -> None:
    book = store_book(owner, start_wanted=True)
    store_book(owner)

    assert start_wanted_books() == 1
    assert start_wanted_books() == 0

    book.refresh_from_db()
    assert book.job is not None
    assert not book.start_wanted


def test_book_that_cannot_start_by_itself_says_why_and_stays_planned(owner: User) -> None:
    book = store_book(owner, voice="Nobody", start_wanted=True)

    assert start_wanted_books() == 0

    book.refresh_from_db()
    assert (book.state, book.error_code, book.start_wanted) == ("planned", "voice_not_found", False)


def test_book_whose_start_breaks_does_not_keep_the_others_from_starting(owner: User) -> None:
    broken = store_book(owner, start_wanted=True, policies={"notes": "no such rule"})
    unfit = store_book(owner, start_wanted=True, edits=[{"edit": "include", "chapter": "gone"}])
    good = store_book(owner, start_wanted=True)

    assert start_wanted_books() == 1

    for book in (broken, unfit, good):
        book.refresh_from_db()
    assert (broken.error_code, broken.start_wanted) == ("unexpected_error", False)
    assert (unfit.error_code, unfit.start_wanted) == ("chapter_unknown", False)
    assert good.job is not None


def _ids(book: BookSource) -> list[str]:
    from synth.audiobooks.plans import load_plan

    return [chapter.id for chapter in load_plan(book).included]
