"""The first page of the admin and its figures over REST: what is open, who works, what failed."""

from __future__ import annotations

import datetime as dt

import pytest
from django.test import Client
from django.utils import timezone
from rest_framework.test import APIClient

from synth.models import RenderedDay, RenderJob, WorkerStatus
from tests.factories import make_book, make_user
from ttsweb.pages.overview import DAYS_SHOWN, overview

pytestmark = pytest.mark.django_db


def make_job(user: object, **columns: object) -> RenderJob:
    """Make the row of a job."""
    values = {"owner": user, "text": "A.", "temperature": 0.8, "top_p": 0.8, "top_k": 30}
    return RenderJob.objects.create(**(values | columns))


def make_worker(name: str, *, seconds_ago: float, **columns: object) -> WorkerStatus:
    """Make the row of a worker that was heard of some seconds ago."""
    seen = timezone.now() - dt.timedelta(seconds=seconds_ago)
    values = {"role": "gpu", "state": "ready", "started_at": seen, "last_seen_at": seen}
    return WorkerStatus.objects.create(name=name, **(values | columns))


def test_open_jobs_are_counted_by_class_and_the_oldest_wait_is_told() -> None:
    user = make_user("ada")
    old = make_job(user)
    RenderJob.objects.filter(pk=old.pk).update(created_at=timezone.now() - dt.timedelta(minutes=5))
    make_job(user, status="running")
    make_job(user, priority=RenderJob.Priority.BULK)
    make_job(user, status="succeeded")

    interactive, bulk = overview(user)["queue"]

    assert (interactive["priority"], interactive["jobs_queued"]) == ("interactive", 1)
    assert interactive["jobs_running"] == 1
    assert 299 < interactive["oldest_wait_seconds"] < 900
    assert (bulk["priority"], bulk["jobs_queued"], bulk["jobs_running"]) == ("bulk", 1, 0)


def test_books_in_work_and_the_hours_that_are_left_are_told() -> None:
    user, other = make_user("ada"), make_user("bob")
    make_book(user)
    make_book(user, state="importing")
    for owner, done, paused_at in ((user, 1, None), (user, 0, timezone.now()), (other, 0, None)):
        job = make_job(
            owner, kind="book", status="running", segments_total=4, paused_at=paused_at,
            segments_done=done,
        )  # fmt: skip
        make_book(owner, job=job, figures={"expected_seconds": 7200.0})

    found = overview(user)["books"]

    assert found == {"importing": 1, "planned": 1, "in_work": 1, "paused": 1, "hours_left": 3.5}


def test_failures_are_grouped_by_reason_and_only_of_the_last_week() -> None:
    user, now = make_user("ada"), timezone.now()
    for days in (0, 1, 30):
        make_job(
            user,
            status="failed",
            error_code="voice_deleted",
            error_message="The voice was deleted.",
            finished_at=now - dt.timedelta(days=days),
        )

    (found,) = overview(user)["failures"]

    assert (found["error_code"], found["count"]) == ("voice_deleted", 2)
    assert found["example"] == "The voice was deleted."


def test_a_user_sees_neither_the_jobs_of_others_nor_the_installation() -> None:
    make_job(make_user("eve"), error_code="x", finished_at=timezone.now(), status="failed")
    ada = make_user("ada")
    api = APIClient()
    api.force_login(ada)

    answer = api.get("/api/v1/overview").json()

    assert set(answer) == {"queue", "books", "failures"}
    assert answer["failures"] == []


def test_a_superuser_sees_workers_days_and_storage() -> None:
    boss = make_user("boss", is_superuser=True)
    make_worker("a", seconds_ago=1, figures={"slots": 16, "slots_in_use": 3})
    make_worker("b", seconds_ago=3600)
    make_worker("c", seconds_ago=1, state="stopped")
    today = timezone.now().date()
    RenderedDay.objects.create(day=today, segments=4, audio_seconds=7200.0)
    api = APIClient()
    api.force_login(boss)

    answer = api.get("/api/v1/overview").json()

    assert [(row["name"], row["state"]) for row in answer["workers"]] == [
        ("a", "ready"),
        ("b", "silent"),
    ]
    assert answer["workers"][0]["slots_in_use"] == 3
    assert len(answer["days"]) == DAYS_SHOWN
    assert answer["days"][-1] == {
        "day": today.isoformat(),
        "audio_hours": 2.0,
        "segments": 4,
        "reused": 0,
    }
    assert answer["storage"]["total"] == 0


def test_the_first_page_shows_the_figures_and_links_to_what_the_user_may_see() -> None:
    client = Client()
    make_worker("worker-one", seconds_ago=1)
    client.force_login(make_user("boss", is_superuser=True))

    page = client.get("/admin/").content.decode()

    assert "worker-one" in page
    assert 'href="/admin/voices/voice/"' in page
    client.force_login(make_user("clerk", is_staff=True))
    plain = client.get("/admin/").content.decode()
    assert "worker-one" not in plain
    assert 'href="/admin/voices/voice/"' not in plain


def test_overview_needs_a_user_and_takes_no_field() -> None:
    assert APIClient().get("/api/v1/overview").status_code == 401
    api = APIClient()
    api.force_login(make_user("ada"))
    assert api.get("/api/v1/overview?days=3").status_code == 400
