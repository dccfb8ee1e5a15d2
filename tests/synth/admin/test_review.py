"""The review page by job: one job without audio floods it not, and a whole job is acted on."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from rest_framework.test import APIClient

from synth.models import RenderJob, Segment
from synth.review import MOST_AT_ONCE
from synth.transitions.jobs import DEADLINE_PASSED
from tests.factories import logged_in, make_book, make_staff
from tests.synth.admin.pages import page_of, read
from tests.synth.review.rows import make_spoken_job
from voices.models import Voice

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]
PAGE = "/admin/synth/segment/"
OVERDUE = 400


def make_overdue_job(operator: User, segments: int = OVERDUE) -> RenderJob:
    """Return a job whose deadline passed before anything of it was rendered."""
    job = make_spoken_job(operator, status=RenderJob.Status.FAILED, error_code=DEADLINE_PASSED)
    chapter = job.chapters.get()
    ended = {"status": Segment.Status.FAILED, "error_code": DEADLINE_PASSED}
    texts = [f"Item {index} of the list." for index in range(segments)]
    Segment.objects.bulk_create(
        Segment(job=job, chapter=chapter, index=i, text=t, spoken_text=t, seed=i, **ended)
        for i, t in enumerate(texts)
    )
    RenderJob.objects.filter(pk=job.pk).update(segments_total=segments, segments_failed=segments)
    job.refresh_from_db()
    return job


def rows_of(browser: Client) -> dict[str, str]:
    """Return the rows of the page's table, by job, in their order."""
    answer = browser.get(PAGE)
    assert answer.status_code == 200
    page = answer.content.decode()
    return dict(re.findall(r'data-group="([^"]+)"(.*?)</tr>', page, re.DOTALL))


def counts(row: str) -> tuple[str, ...]:
    """Return what a row says can be heard, and what cannot."""
    return tuple(re.findall(r'<td data-label="(?:With audio|Without audio)">([\d,]+)</td>', row))


def button(row: str, action: str) -> dict[str, str]:
    """Return what a button of a row has for the page's script; nothing where there is none."""
    found = re.search(rf'<button[^>]*data-action="{action}"[^>]*>[^<]*', row)
    if found is None:
        return {}
    shown = {name: unescape(value) for name, value in re.findall(r'([\w-]+)="([^"]*)"', found[0])}
    return shown | {"text": found[0].rpartition(">")[2]}


def press(browser: Client, row: str, action: str) -> dict[str, Any]:
    """Send what the page's script sends for a button."""
    shown = button(row, action)
    body = shown.get("data-body", "{}")
    answer = browser.post(shown["data-url"], body, content_type="application/json")
    assert answer.status_code in (200, 202), answer.content
    found: dict[str, Any] = answer.json()
    return found


def test_job_without_audio_is_one_row_below_what_can_be_heard(
    browser: Client, api: APIClient, operator: User
) -> None:
    overdue = make_overdue_job(operator)
    suspicious = make_spoken_job(operator, 0.2, 1.0, 0.4, None)

    with CaptureQueriesContext(connection) as queries:
        rows = rows_of(browser)

    assert list(rows) == [str(suspicious.pk), str(overdue.pk)]
    assert [counts(row) for row in rows.values()] == [("2", "1"), ("0", str(OVERDUE))]
    assert "Item 7 of the list." not in "".join(rows.values())
    assert "Review these" not in rows[str(overdue.pk)]
    assert button(rows[str(overdue.pk)], "approve") == {}
    assert len("".join(rows.values())) < 10_000
    assert len(queries) <= 20
    heard = api.get("/api/v1/review", {"heard": "true"}).json()
    assert [one["score"] for one in heard["results"]] == [0.2, 0.4]
    assert heard["left"] == 2
    unheard = api.get("/api/v1/review", {"heard": "false", "limit": "5"}).json()
    assert (len(unheard["results"]), unheard["left"]) == (5, OVERDUE + 1)
    assert api.get("/api/v1/review", {"heard": "perhaps"}).status_code == 400


def test_number_of_queries_does_not_grow_with_jobs_or_segments(
    browser: Client, operator: User
) -> None:
    make_book(operator, job=make_spoken_job(operator, 0.1), title="Cattle")
    make_overdue_job(operator, 2)

    def count() -> int:
        with CaptureQueriesContext(connection) as found:
            rows_of(browser)
        return len(found)

    count()
    few = count()
    for _ in range(6):
        make_book(operator, job=make_spoken_job(operator, 0.1, 0.2, 0.3))
        make_overdue_job(operator, 30)

    assert len(rows_of(browser)) == 14
    assert count() == few


def test_all_takes_of_one_job_are_approved_and_no_others(browser: Client, operator: User) -> None:
    job = make_spoken_job(operator, 0.2, 0.3, 1.0, None)
    other = make_spoken_job(operator, 0.4)
    row = rows_of(browser)[str(job.pk)]
    assert button(row, "approve")["text"] == "Approve 2"
    assert button(row, "approve")["data-confirm"].startswith("Approve 2 takes of this job")
    shown = press(browser, row, "approve")
    approved = job.segments.filter(index__in=(0, 1)).values_list("pk", flat=True)
    assert (sorted(shown["approved"]), shown["refused"]) == (sorted(approved), [])
    after = rows_of(browser)
    assert counts(after[str(job.pk)]) == ("0", "1")
    assert button(after[str(job.pk)], "approve") == {}
    assert counts(after[str(other.pk)]) == ("1", "0")
    assert "Approve 1 take of" in button(after[str(other.pk)], "approve")["data-confirm"]


def test_more_takes_than_one_request_approves_are_approved_in_turns(
    browser: Client, operator: User
) -> None:
    job = make_spoken_job(operator, *[0.5] * (MOST_AT_ONCE + 3))
    small = make_spoken_job(operator, 0.5)
    row = rows_of(browser)[str(job.pk)]
    assert button(row, "approve")["text"] == f"Approve the first {MOST_AT_ONCE}"
    assert button(row, "approve")["aria-label"].startswith(f"Approve the first {MOST_AT_ONCE} ")
    assert len(json.loads(button(row, "approve")["data-body"])["takes"]) == MOST_AT_ONCE

    press(browser, row, "approve")
    rows = rows_of(browser)
    assert button(rows[str(job.pk)], "approve")["text"] == "Approve 3"
    press(browser, rows[str(job.pk)], "approve")
    assert list(rows_of(browser)) == [str(small.pk)]


def test_retry_renders_all_of_a_job_without_audio_and_is_offered_where_it_is_taken(
    browser: Client, operator: User
) -> None:
    job, gone = make_overdue_job(operator, 30), make_overdue_job(operator, 3)
    Voice.objects.filter(versions__pinned_by__job=gone).update(deleted_at=timezone.now())
    rows = rows_of(browser)
    row = rows[str(job.pk)]
    assert button(row, "retry")["text"] == "Retry 30"
    press(browser, row, "retry")
    job.refresh_from_db()
    assert job.status == RenderJob.Status.QUEUED
    assert job.segments.filter(status=Segment.Status.QUEUED).count() == 30
    assert list(rows_of(browser)) == [str(gone.pk)]
    assert (counts(rows[str(gone.pk)]), button(rows[str(gone.pk)], "retry")) == (("0", "3"), {})
    for one, is_offered in ((make_overdue_job(operator, 3), True), (gone, False)):
        page = read(browser, page_of(one))
        assert (f"/jobs/{one.pk}/segments/" in page, "Render segment 1 again" in page) == (
            is_offered, is_offered,
        )  # fmt: skip


def test_page_is_called_as_in_the_menu_and_says_how_many_jobs_there_are(
    browser: Client, operator: User
) -> None:
    for _ in range(3):
        make_overdue_job(operator, 2)
    page = read(browser, PAGE)
    assert ">3 jobs</h2>" in page
    assert not re.search(r">\s*Segments\s*<", page)


def test_table_has_ones_own_jobs_and_what_one_may_do(operator: User) -> None:
    narrator = make_staff("view_renderjob", username="narrator")
    mine = make_spoken_job(narrator, 0.3, None)
    make_spoken_job(operator, 0.2)
    rows = rows_of(logged_in(narrator))
    assert list(rows) == [str(mine.pk)]
    assert button(rows[str(mine.pk)], "approve") == button(rows[str(mine.pk)], "retry") == {}
