"""A planned book becomes a job: chapters, segments, voices, pauses, and what is the same again."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from synth.accounts.access import create_key
from synth.accounts.limits import KeyLimitError
from synth.audiobooks.plans import load_plan
from synth.audiobooks.start import start_book, start_wanted_books
from synth.models import BookSource, RenderJob, Segment
from synth.text.pauses import DEFAULT_PAUSES
from tests.factories import make_user, make_voice
from tests.synth.books_api.shelf import CHAPTERS, refusal_of, store_book

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def owner(ada: None) -> User:
    return make_user("owner")


def seeds(job: RenderJob) -> dict[str, int]:
    return dict(job.segments.values_list("spoken_text", "seed"))


def test_chapters_are_those_of_the_plan_with_all_their_words_and_pauses_after_them(
    owner: User,
) -> None:
    book = store_book(owner)

    job = start_book(book)

    assert (job.kind, job.priority) == ("book", RenderJob.Priority.BULK)
    chapters = list(job.chapters.all())
    assert [(one.index, one.title) for one in chapters] == [
        (index, title) for index, (title, _) in enumerate(CHAPTERS)
    ]
    rows = [
        list(one.segments.order_by("index").values_list("text", "pause_after_ms"))
        for one in chapters
    ]
    said = [" ".join(text for text, _ in segments) for segments in rows]
    assert said == [f"{title} {text}" for title, text in CHAPTERS]
    assert [segments[0][1] for segments in rows] == [900, 900, 900]
    between = DEFAULT_PAUSES.chapter
    assert [segments[-1][1] for segments in rows] == [between, between, 0]
    assert job.segments_total == job.segments.count()
    book.refresh_from_db()
    assert book.job == job


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
    chapter = [chapter.id for chapter in load_plan(book).included][1]
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

    assert refusal_of(stale).code == "book_started"
    assert RenderJob.objects.count() == 1
    assert Segment.objects.count() == RenderJob.objects.get().segments_total


@pytest.mark.parametrize("wrong", [{"colour": "red"}, {"priority": "later"}])
def test_book_with_options_of_another_release_is_refused_and_waits_for_nothing(
    wrong: dict[str, str], owner: User
) -> None:
    book = store_book(owner, start_wanted=True)
    BookSource.objects.filter(pk=book.pk).update(options={**book.options, **wrong})

    assert refusal_of(BookSource.objects.get(pk=book.pk)).code == "options_invalid"
    assert start_wanted_books() == 0
    assert BookSource.objects.get(pk=book.pk).error_code == "options_invalid"


def test_book_whose_plan_was_changed_meanwhile_or_is_not_there_is_not_started(
    owner: User,
) -> None:
    book = store_book(owner)
    BookSource.objects.filter(pk=book.pk).update(plan_number=7)

    assert refusal_of(book).code == "plan_changed"
    assert refusal_of(store_book(owner, state="importing")).code == "book_not_planned"
    assert refusal_of(store_book(owner, state="failed")).code == "book_failed"
    assert not RenderJob.objects.exists()


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


def test_book_that_was_to_start_by_itself_is_started_by_the_sweep_once_or_says_why_not(
    owner: User,
) -> None:
    books = {
        "unexpected_error": store_book(owner, policies={"notes": "no such rule"}),
        "chapter_unknown": store_book(owner, edits=[{"edit": "include", "chapter": "gone"}]),
        "voice_not_found": store_book(owner, voice="Nobody"),
        "": store_book(owner),
    }
    BookSource.objects.update(start_wanted=True)
    store_book(owner)

    assert [start_wanted_books() for _ in range(2)] == [1, 0]

    for code, book in books.items():
        book.refresh_from_db()
        assert (book.state, book.error_code, book.start_wanted) == ("planned", code, False)
        assert (book.job is not None) == (code == "")
