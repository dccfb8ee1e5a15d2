"""Books in the admin: a list that costs the same for many, actions, pages, other people's books."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from synth.admin.book_cells import words_of
from synth.audiobooks.start import start_book
from synth.models import Batch, BatchEntry, BookSource, RenderJob, Segment
from tests.factories import logged_in, make_staff, make_user, make_voice
from tests.synth.admin.pages import act, delete, page_of, read
from tests.synth.books_api.shelf import CHAPTERS, speak_all, store_book

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

LIST = reverse("admin:synth_booksource_changelist")
ADD = reverse("admin:synth_booksource_add")
BATCHES = reverse("admin:synth_bookbatch_changelist")


@pytest.fixture(autouse=True)
def ada(operator: User) -> None:
    make_voice("Ada", owner=operator)


def pages_of(book: BookSource) -> dict[str, str]:
    return {
        name: page_of(book, name, *more)
        for name, *more in (("change",), ("plan",), ("proof",), ("chapter", 0), ("delete",))
    }


def fail(segment: Segment) -> None:
    Segment.objects.filter(pk=segment.pk).update(
        status="failed", take=None, error_message="It stayed silent."
    )


def test_list_says_how_far_each_book_is(browser: Client, operator: User) -> None:
    store_book(operator, title="Waiting", figures={"chapters": 5, "included": 3})
    started = store_book(operator, title="At Work")
    start_book(started)
    page = read(browser, LIST)
    for shown in ("Waiting", "3 of 5 chapters", "At Work", "0 of 3 chapters"):
        assert shown in page
    assert f'data-live="book-{started.pk}-state" data-book="{started.pk}" data-open' in page


def test_list_costs_as_many_queries_for_many_books_as_for_few(
    browser: Client, operator: User
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            assert browser.get(LIST).status_code == 200
        return len(found)

    for _ in range(2):
        start_book(store_book(operator))
    few = queries()
    for _ in range(6):
        start_book(store_book(operator))
        store_book(operator)

    assert queries() <= few + 1


def test_list_is_searched_and_filtered(browser: Client, operator: User) -> None:
    store_book(operator, title="Gruen", authors=["Käthe Müller"])
    start_book(store_book(operator, title="Blau"))
    expected: dict[str, set[str]] = {
        "q=Gruen": {"Gruen"},
        "q=Müller": {"Gruen"},
        "q=A Small": set(),
        "status=queued": {"Blau"},
        "status=planned": {"Gruen"},
        "status=odd": set(),
        "batch=none": {"Gruen", "Blau"},
        "batch=x": set(),
    }
    assert expected == {
        query: set(re.findall(r"<span data-title>(\w+)</span>", read(browser, f"{LIST}?{query}")))
        for query in expected
    }


def test_chosen_books_are_started_paused_resumed_cancelled_retried_and_deleted(
    browser: Client, operator: User
) -> None:
    books = [store_book(operator), store_book(operator)]
    jobs = RenderJob.objects.filter(kind="book")

    for action, done, changed in (
        ("start_chosen", "started", jobs.filter(priority=RenderJob.Priority.BULK)),
        ("pause_chosen", "paused", jobs.filter(paused_at__isnull=False)),
        ("resume_chosen", "resumed", jobs.filter(paused_at=None)),
        (
            "make_interactive", "moved to interactive priority",
            jobs.filter(priority=RenderJob.Priority.INTERACTIVE),
        ),
        ("cancel_chosen", "cancelled", jobs.filter(status="cancelled")),
        ("retry_chosen", "queued again", jobs.filter(status="queued")),
    ):  # fmt: skip
        assert f"2 books: {done}." in act(browser, action, *books)
        assert changed.count() == 2, action
    delete(browser, *books)
    assert not BookSource.objects.exists() and not RenderJob.objects.exists()


def test_books_that_cannot_be_started_say_why(browser: Client, operator: User) -> None:
    fine, nobody = store_book(operator), store_book(operator, voice="Nobody", title="Mute")
    page = act(browser, "start_chosen", fine, nobody)
    assert "1 book: started." in page
    assert "Mute: " in page and "no voice with this id or name" in page
    assert "it was not started yet; start it first" in act(browser, "pause_chosen", nobody)


def test_page_of_a_planned_book_offers_its_start_and_its_plan(
    browser: Client, operator: User
) -> None:
    book = store_book(operator, metadata={"title": "Told by People"})
    make_voice("Someone else's", owner=make_user())

    page = read(browser, page_of(book))
    upload = read(browser, ADD)

    assert "Told by People" in page
    assert 'data-action="start"' in page and reverse("book-start", args=[book.pk]) in page
    assert page_of(book, "plan") in page and page_of(book, "proof") not in page
    assert 'data-action="pause"' not in page
    assert "the book was not started" in read(browser, page_of(book, "proof"))
    assert ">Ada</option>" in upload and reverse("books") in upload


def test_page_and_proof_of_a_book_at_work_have_its_chapters_and_what_failed(
    browser: Client, operator: User
) -> None:
    book = store_book(operator)
    job = start_book(book)
    fail(speak_all(job)[-1])

    page, proof = read(browser, page_of(book)), read(browser, page_of(book, "proof"))

    assert all(title in page and title in proof for title, _ in CHAPTERS)
    assert 'data-action="pause"' in page and 'data-action="cancel"' in page
    assert 'data-action="start"' not in page
    assert "1 failed" in page
    assert reverse("book-files", args=[book.pk]) in page
    assert "Every character of the book is accounted for." in proof and "not complete" in proof
    assert "It stayed silent." in proof
    assert page_of(job) + "?segments-page=1" in proof
    assert "title page" in proof and reverse("book-proof", args=[book.pk]) in proof


def test_segments_of_a_chapter_are_listed_with_players(browser: Client, operator: User) -> None:
    book = store_book(operator, [("One", "<b>First</b> sentence of it.")])
    first = speak_all(start_book(book))[-1]
    part = read(browser, page_of(book, "chapter", 0))
    assert "&lt;b&gt;First&lt;/b&gt;" in part and "<b>" not in part
    assert reverse("job-segment-audio", args=[first.job_id, first.pk]) in part


def test_plan_can_be_edited_until_the_start(browser: Client, operator: User) -> None:
    book = store_book(operator)
    before = read(browser, page_of(book, "plan"))
    start_book(book)
    after = read(browser, page_of(book, "plan"))
    assert 'data-editable="1"' in before and "data-start-book" in before
    assert 'data-editable="1"' not in after and "cannot be changed" in after


def test_staff_see_their_own_books_alone(operator: User) -> None:
    user = make_staff(about="booksource")
    own, theirs = store_book(user, title="Own"), store_book(operator, title="Theirs")
    client = logged_in(user)

    page = read(client, LIST)

    assert "Own" in page and "Theirs" not in page
    assert client.get(page_of(own)).status_code == 200
    for name, url in pages_of(theirs).items():
        assert client.get(url).status_code in (302, 404), name
    act(client, "start_chosen", theirs)
    assert BookSource.objects.get(pk=theirs.pk).job_id is None


def test_staff_without_permissions_see_no_books(operator: User) -> None:
    user = make_staff()
    own, other = store_book(user), store_book(operator)
    start_book(other)
    client = logged_in(user)
    for url in (LIST, ADD, *pages_of(own).values(), *pages_of(other).values()):
        assert client.get(url).status_code in (302, 403, 404), url
    assert LIST not in read(client, reverse("admin:index"))


def test_staff_who_may_only_look_change_nothing() -> None:
    user = make_staff("view_booksource")
    book = store_book(user)
    client = logged_in(user)

    page, plan = read(client, page_of(book)), read(client, page_of(book, "plan"))

    assert "data-action=" not in page and "data-book-metadata" not in page
    assert 'data-editable="1"' not in plan
    act(client, "start_chosen", book)
    assert BookSource.objects.get(pk=book.pk).job_id is None


@pytest.fixture
def batch(operator: User) -> Batch:
    """A batch of a planned book, one that could not be read, and one still to be uploaded."""
    made = Batch.objects.create(kind="books", owner=operator, name="Shelf")
    planned = store_book(operator, title="Fine")
    failed = store_book(operator, title="Broken", state="failed", error_message="No text in it.")
    for index, book in enumerate((planned, failed)):
        BatchEntry.objects.create(batch=made, index=index, filename=f"{index}.md", book=book)
    BatchEntry.objects.create(batch=made, index=2, filename="later.epub")
    return made


def test_batch_shows_its_books_worst_first(browser: Client, batch: Batch) -> None:
    page = read(browser, page_of(batch, model="bookbatch"))
    assert page.index("No text in it.") < page.index("later.epub") < page.index(">Fine</a>")
    assert 'data-action="pause"' in page and 'data-action="close"' in page
    assert 'data-live="book-batch" data-open' in page


def test_batches_are_listed_paused_and_deleted(browser: Client, batch: Batch) -> None:
    assert "Shelf" in read(browser, BATCHES)
    act(browser, "pause_chosen", batch, model="bookbatch")
    batch.refresh_from_db()
    assert batch.paused_at is not None
    delete(browser, batch, model="bookbatch")
    assert not Batch.objects.exists() and not BookSource.objects.exists()


def test_action_on_a_batch_that_is_as_wanted_says_that_nothing_changed(
    browser: Client, batch: Batch
) -> None:
    warning = f"{batch}: did not need a change."
    for name in ("pause_chosen", "resume_chosen"):
        first = act(browser, name, batch, model="bookbatch")
        again = act(browser, name, batch, model="bookbatch")
        assert (warning in first, warning in again) == (False, True), name


def test_batches_of_others_are_not_found(batch: Batch) -> None:
    client = logged_in(make_staff(about="bookbatch"))
    assert "Shelf" not in read(client, BATCHES)
    assert client.get(page_of(batch, model="bookbatch")).status_code in (302, 404)


def test_book_that_waits_or_failed_says_so_and_what_to_do(browser: Client, operator: User) -> None:
    drm: dict[str, Any] = {"error_code": "book_drm", "error_message": "It is protected."}
    page = read(browser, page_of(store_book(operator, state="failed", **drm)))
    assert "It is protected." in page and "Get a copy of the book without DRM" in page
    assert words_of(store_book(make_user(), state="importing")) == ["waiting to be read"]
