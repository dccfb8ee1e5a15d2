"""Books in the admin: a list that costs the same for many, actions, pages, other people's books."""

from __future__ import annotations

import re
from collections.abc import Callable
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
from tests.synth.books_api.shelf import CHAPTERS, speak_all, store_book

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

LIST = reverse("admin:synth_booksource_changelist")
ADD = reverse("admin:synth_booksource_add")


@pytest.fixture
def operator(job_services: None) -> User:
    user = make_user("operator", is_superuser=True)
    make_voice("Ada", owner=user)
    return user


@pytest.fixture
def browser(operator: User) -> Client:
    return logged_in(operator)


def pages_of(book: BookSource) -> dict[str, str]:
    return {
        "page": reverse("admin:synth_booksource_change", args=[book.pk]),
        "plan": reverse("admin:synth_booksource_plan", args=[book.pk]),
        "proof": reverse("admin:synth_booksource_proof", args=[book.pk]),
        "chapter": reverse("admin:synth_booksource_chapter", args=[book.pk, 0]),
        "delete": reverse("admin:synth_booksource_delete", args=[book.pk]),
    }


def act(browser: Client, action: str, *books: BookSource) -> str:
    """Choose books in the list and do an action; return the page that follows."""
    data = {"action": action, "_selected_action": [str(book.pk) for book in books]}
    return browser.post(LIST, data, follow=True).content.decode()


def test_list_says_how_far_each_book_is(browser: Client, operator: User) -> None:
    store_book(operator, title="Waiting", figures={"chapters": 5, "included": 3})
    started = store_book(operator, title="At Work")
    start_book(started)
    page = browser.get(LIST).content.decode()
    assert "Waiting" in page and "3 of 5 chapters" in page
    assert "At Work" in page and "0 of 3 chapters" in page
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


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("q=Gruen", {"Gruen"}),
        ("q=Müller", {"Gruen"}),
        ("q=A Small", set()),
        ("status=queued", {"Blau"}),
        ("status=planned", {"Gruen"}),
        ("status=odd", set()),
        ("batch=none", {"Gruen", "Blau"}),
        ("batch=x", set()),
    ],
)
def test_list_is_searched_and_filtered(
    browser: Client, operator: User, query: str, shown: set[str]
) -> None:
    store_book(operator, title="Gruen", authors=["Käthe Müller"])
    start_book(store_book(operator, title="Blau"))
    page = browser.get(f"{LIST}?{query}").content.decode()
    assert set(re.findall(r"<span data-title>(\w+)</span>", page)) == shown


def test_chosen_books_are_started_paused_resumed_cancelled_retried_and_deleted(
    browser: Client, operator: User, sent_tasks: Callable[[str], list[str]]
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
    chosen = {"action": "delete_selected", "_selected_action": [str(one.pk) for one in books]}
    browser.post(LIST, chosen | {"post": "yes"})
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

    page = browser.get(pages_of(book)["page"]).content.decode()
    upload = browser.get(ADD).content.decode()

    assert "Told by People" in page
    assert 'data-action="start"' in page and reverse("book-start", args=[book.pk]) in page
    assert pages_of(book)["plan"] in page and pages_of(book)["proof"] not in page
    assert 'data-action="pause"' not in page
    assert "the book was not started" in browser.get(pages_of(book)["proof"]).content.decode()
    assert ">Ada</option>" in upload and reverse("books") in upload


def test_page_of_a_book_at_work_has_its_chapters_and_what_can_be_done(
    browser: Client, operator: User
) -> None:
    book = store_book(operator)
    job = start_book(book)
    segments = speak_all(job)
    Segment.objects.filter(pk=segments[-1].pk).update(status="failed", take=None)

    page = browser.get(pages_of(book)["page"]).content.decode()

    assert all(title in page for title, _ in CHAPTERS)
    assert 'data-action="pause"' in page and 'data-action="cancel"' in page
    assert 'data-action="start"' not in page
    assert "1 failed" in page
    assert reverse("book-files", args=[book.pk]) in page


def test_segments_of_a_chapter_are_listed_with_players(browser: Client, operator: User) -> None:
    book = store_book(operator, [("One", "<b>First</b> sentence of it.")])
    first = speak_all(start_book(book))[-1]
    part = browser.get(pages_of(book)["chapter"]).content.decode()
    assert "&lt;b&gt;First&lt;/b&gt;" in part and "<b>" not in part
    assert reverse("job-segment-audio", args=[first.job_id, first.pk]) in part


def test_proof_has_every_chapter_sums_and_the_segments_to_look_at(
    browser: Client, operator: User
) -> None:
    book = store_book(operator)
    segments = speak_all(start_book(book))
    bad = segments[-1]
    Segment.objects.filter(pk=bad.pk).update(
        status="failed", take=None, error_message="It stayed silent."
    )

    page = browser.get(pages_of(book)["proof"]).content.decode()

    assert all(title in page for title, _ in CHAPTERS)
    assert "Every character of the book is accounted for." in page and "not complete" in page
    assert "It stayed silent." in page
    assert reverse("admin:synth_renderjob_change", args=[bad.job_id]) + "?segments-page=1" in page
    assert "title page" in page and reverse("book-proof", args=[book.pk]) in page


def test_plan_can_be_edited_until_the_start(browser: Client, operator: User) -> None:
    book = store_book(operator)
    before = browser.get(pages_of(book)["plan"]).content.decode()
    start_book(book)
    after = browser.get(pages_of(book)["plan"]).content.decode()
    assert 'data-editable="1"' in before and "data-start-book" in before
    assert 'data-editable="1"' not in after and "cannot be changed" in after


def test_staff_see_their_own_books_alone(operator: User) -> None:
    user = make_staff(about="booksource")
    own, theirs = store_book(user, title="Own"), store_book(operator, title="Theirs")
    client = logged_in(user)

    page = client.get(LIST).content.decode()

    assert "Own" in page and "Theirs" not in page
    assert client.get(pages_of(own)["page"]).status_code == 200
    for name, url in pages_of(theirs).items():
        assert client.get(url).status_code in (302, 404), name
    act(client, "start_chosen", theirs)
    assert BookSource.objects.get(pk=theirs.pk).job_id is None


def test_staff_without_permissions_see_no_books(operator: User) -> None:
    user = make_staff()
    book = store_book(user)
    start_book_of = store_book(operator)
    client = logged_in(user)
    for url in (LIST, ADD, *pages_of(book).values(), *pages_of(start_book_of).values()):
        assert client.get(url).status_code in (302, 403, 404), url
    assert LIST not in client.get(reverse("admin:index")).content.decode()


def test_staff_who_may_only_look_change_nothing() -> None:
    user = make_staff("view_booksource")
    make_voice("Ada", owner=user)
    book = store_book(user)
    client = logged_in(user)

    page = client.get(pages_of(book)["page"]).content.decode()
    plan = client.get(pages_of(book)["plan"]).content.decode()

    assert "data-action=" not in page and "data-book-metadata" not in page
    assert 'data-editable="1"' not in plan
    act(client, "start_chosen", book)
    assert BookSource.objects.get(pk=book.pk).job_id is None


def make_batch(owner: User, **fields: Any) -> tuple[Batch, list[BookSource]]:
    """Return a batch with a planned, a failed and a missing book."""
    batch = Batch.objects.create(kind="books", owner=owner, name="Shelf", **fields)
    planned = store_book(owner, title="Fine")
    failed = store_book(owner, title="Broken", state="failed", error_message="No text in it.")
    for index, book in enumerate((planned, failed)):
        BatchEntry.objects.create(batch=batch, index=index, filename=f"{index}.md", book=book)
    BatchEntry.objects.create(batch=batch, index=2, filename="later.epub")
    return batch, [planned, failed]


def test_batch_shows_its_books_worst_first(browser: Client, operator: User) -> None:
    batch, _ = make_batch(operator)
    page = browser.get(reverse("admin:synth_bookbatch_change", args=[batch.pk])).content.decode()
    assert page.index("No text in it.") < page.index("later.epub") < page.index(">Fine</a>")
    assert 'data-action="pause"' in page and 'data-action="close"' in page
    assert 'data-live="book-batch" data-open' in page


def test_batches_are_listed_paused_and_deleted(browser: Client, operator: User) -> None:
    batch, _ = make_batch(operator)
    url = reverse("admin:synth_bookbatch_changelist")

    assert "Shelf" in browser.get(url).content.decode()
    browser.post(url, {"action": "pause_chosen", "_selected_action": [str(batch.pk)]})
    batch.refresh_from_db()
    assert batch.paused_at is not None
    browser.post(
        url, {"action": "delete_selected", "_selected_action": [str(batch.pk)], "post": "yes"}
    )
    assert not Batch.objects.exists() and not BookSource.objects.exists()


def test_batches_of_others_are_not_found(operator: User) -> None:
    batch, _ = make_batch(operator)
    user = make_staff(about="bookbatch")
    client = logged_in(user)
    assert "Shelf" not in client.get(reverse("admin:synth_bookbatch_changelist")).content.decode()
    page = client.get(reverse("admin:synth_bookbatch_change", args=[batch.pk]))
    assert page.status_code in (302, 404)


def test_book_that_waits_or_failed_says_so_and_what_to_do(browser: Client, operator: User) -> None:
    failed = store_book(
        operator, state="failed", error_code="book_drm", error_message="It is protected."
    )
    page = browser.get(pages_of(failed)["page"]).content.decode()
    assert "It is protected." in page and "Get a copy of the book without DRM" in page
    assert words_of(store_book(make_user(), state="importing")) == ["waiting to be read"]
