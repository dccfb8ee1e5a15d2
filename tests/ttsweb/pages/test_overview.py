"""Figures of the first page and over REST: what is open and stored, who works, what failed."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from rest_framework.test import APIClient

from synth.models import BookFile, JobVoice, RenderedDay, RenderJob
from tests.factories import (
    logged_in,
    make_book,
    make_export,
    make_job,
    make_staff,
    make_stored_clip,
    make_take,
    make_user,
    make_version,
    make_voice,
    make_worker,
)
from tests.synth.test_key_views import client_with
from ttsweb.pages.overview import DAYS_SHOWN, overview
from voices.models import StoredClip
from voices.transitions import count

pytestmark = pytest.mark.django_db

URL = "/api/v1/stats"


def client_of(user: User) -> APIClient:
    client = APIClient()
    client.force_authenticate(user)
    return client


@pytest.fixture
def client() -> APIClient:
    return client_of(make_user("boss", is_superuser=True))


@pytest.fixture
def clerk() -> User:
    return make_staff("view_workerstatus", username="clerk")


def add_book_file(job: Any, size_bytes: int) -> None:
    digest = f"{job.pk}".replace("-", "")
    BookFile.objects.create(job=job, kind="m4b", options_digest=digest, size_bytes=size_bytes)


def test_open_jobs_are_counted_by_class_and_the_oldest_wait_is_told() -> None:
    user = make_user("ada")
    old = make_job(owner=user, segments=0)
    RenderJob.objects.filter(pk=old.pk).update(created_at=timezone.now() - dt.timedelta(minutes=5))
    make_job(owner=user, segments=0, status="running")
    make_job(owner=user, segments=0, priority=RenderJob.Priority.BULK)
    make_job(owner=user, segments=0, status="succeeded")

    queue = overview(user)["queue"]

    counts = [(one["priority"], one["jobs_queued"], one["jobs_running"]) for one in queue]
    assert counts == [("interactive", 1, 1), ("bulk", 1, 0)]
    assert 299 < queue[0]["oldest_wait_seconds"] < 900


def test_books_in_work_and_the_hours_that_are_left_are_told() -> None:
    user, other = make_user("ada"), make_user("bob")
    make_book(user)
    make_book(user, state="importing")
    for owner, done, paused_at in ((user, 1, None), (user, 0, timezone.now()), (other, 0, None)):
        job = make_job(
            owner=owner, segments=0, kind="book", status="running", segments_total=4,
            paused_at=paused_at, segments_done=done,
        )  # fmt: skip
        make_book(owner, job=job, figures={"expected_seconds": 7200.0})

    found = overview(user)["books"]

    assert found == {"importing": 1, "planned": 1, "in_work": 1, "paused": 1, "hours_left": 3.5}


def fail_job(owner: User, days_ago: int = 0) -> None:
    finished_at = timezone.now() - dt.timedelta(days=days_ago)
    make_job(
        owner=owner, segments=0, status="failed", finished_at=finished_at,
        error_code="voice_deleted", error_message="The voice was deleted.",
    )  # fmt: skip


def test_failures_are_grouped_by_reason_and_only_of_the_last_week() -> None:
    user = make_user("ada")
    for days in (0, 1, 30):
        fail_job(user, days)
    (found,) = overview(user)["failures"]
    reported = (found["error_code"], found["count"], found["example"])
    assert reported == ("voice_deleted", 2, "The voice was deleted.")


def test_a_user_sees_neither_the_jobs_of_others_nor_the_installation() -> None:
    fail_job(make_user("eve"))
    answer = client_of(make_user("ada")).get("/api/v1/overview").json()
    assert set(answer) == {"queue", "books", "failures"}
    assert answer["failures"] == []


def test_a_superuser_sees_workers_days_and_storage(client: APIClient) -> None:
    make_worker("a", seconds_ago=1, figures={"slots": 16, "slots_in_use": 3})
    make_worker("b", seconds_ago=3600)
    make_worker("c", seconds_ago=1, state="stopped")
    today = timezone.now().date()
    RenderedDay.objects.create(day=today, segments=4, audio_seconds=7200.0)

    answer = client.get("/api/v1/overview").json()

    workers = [(row["name"], row["state"], row["slots_in_use"]) for row in answer["workers"]]
    assert workers == [("a", "ready", 3), ("b", "silent", None)]
    assert len(answer["days"]) == DAYS_SHOWN
    day = {"day": today.isoformat(), "audio_hours": 2.0, "segments": 4, "reused": 0}
    assert answer["days"][-1] == day
    assert answer["storage"]["total"] == 0


def test_the_first_page_shows_the_figures_and_links_to_what_the_user_may_see() -> None:
    make_worker("worker-one", seconds_ago=1)
    page = logged_in().get("/admin/").content.decode()
    assert "worker-one" in page
    assert 'href="/admin/voices/voice/"' in page
    plain = logged_in(make_staff()).get("/admin/").content.decode()
    assert "worker-one" not in plain
    assert 'href="/admin/voices/voice/"' not in plain


def test_counters_queues_and_workers_are_those_of_the_rows(client: APIClient) -> None:
    idle = client.get(URL).json()
    assert idle["whole"] is True
    assert idle["codes"] == {"memory_hit": 0, "storage_hit": 0, "encoder_run": 0}
    assert idle["workers"] == []
    assert idle["queue"]["jobs"]["queued"] == 0
    assert set(idle["queue"]["voice_versions"]) == {"pending", "encoding", "ready", "failed"}
    count("encoder_run", 1)
    count("memory_hit", 3)
    make_voice(ready=False)
    make_job(segments=2)
    make_worker(resampler="builtin", figures={"codes_cache_bytes": 640})

    shown = client.get(URL).json()

    assert shown["codes"] == {"memory_hit": 3, "storage_hit": 0, "encoder_run": 1}
    assert shown["queue"]["segments"]["queued"] == 2
    assert shown["queue"]["jobs"]["queued"] == 1
    assert (shown["queue"]["voice_versions"]["pending"]) == 1
    worker = shown["workers"][0]
    assert (worker["state"], worker["resampler"]) == ("ready", "builtin")
    assert worker["figures"] == {"codes_cache_bytes": 640}


def test_stored_bytes_are_counted_by_kind(client: APIClient) -> None:
    assert client.get(URL).json()["storage"]["total"] == 0
    make_export(size_bytes=1_000)
    add_book_file(make_job(), 70)
    make_take(size_bytes=200)
    make_book(size_bytes=30)
    clips = sum(StoredClip.objects.values_list("size_bytes", flat=True))

    shown = client.get(URL).json()["storage"]

    assert clips > 0
    assert shown == {
        "exports": 1_000, "book_files": 70, "books": 30, "takes": 200, "clips": clips,
        "total": 1_300 + clips,
    }  # fmt: skip


def test_a_user_sees_the_own_rows_and_bytes_and_nothing_of_others() -> None:
    ada, eve = make_user("ada"), make_user("eve")
    for owner, size in ((ada, 10), (eve, 1_000)):
        voice = make_voice(owner=owner, ready=owner is eve)
        job = make_job(owner=owner, voice=voice, segments=size // 10)
        make_export(job, size_bytes=size)
        add_book_file(job, 2 * size)
        make_book(owner, size_bytes=3 * size)
        reference = make_version(None, clips=0)
        reference.clips.create(stored=make_stored_clip(b"x" * (4 * size)), transcript="Words.")
        JobVoice.objects.create(job=job, speaker=1, version=reference)
    (clip,) = StoredClip.objects.filter(uses__version__voice__owner=ada)

    shown = client_of(ada).get(URL).json()

    assert set(shown) == {"whole", "queue", "storage"}
    assert shown["whole"] is False
    assert shown["queue"]["jobs"]["queued"] == 1
    assert shown["queue"]["segments"]["queued"] == 1
    assert shown["queue"]["exports"]["done"] == 1
    assert shown["queue"]["voice_versions"] == {
        "pending": 1, "encoding": 0, "ready": 1, "failed": 0,
    }  # fmt: skip
    assert shown["storage"] == {
        "exports": 10, "book_files": 20, "books": 30, "clips": 40 + clip.size_bytes,
        "total": 100 + clip.size_bytes,
    }  # fmt: skip


def test_a_clip_that_is_used_often_counts_once_and_one_of_a_deleted_voice_not_at_all() -> None:
    ada = make_user("ada")
    stored = make_stored_clip(b"x" * 50)
    for _ in range(2):
        version = make_version(make_voice(owner=ada, versions=0), clips=0)
        version.clips.create(stored=stored, transcript="Words.")
        reference = make_version(None, clips=0)
        reference.clips.create(stored=stored, transcript="Words.")
        JobVoice.objects.create(job=make_job(owner=ada), speaker=1, version=reference)
    make_voice(owner=ada, deleted_at=timezone.now())

    assert client_of(ada).get(URL).json()["storage"]["clips"] == 50


@pytest.mark.parametrize("path", [URL, "/api/v1/overview"])
def test_whole_installation_is_for_staff_who_may_view_workers(path: str, clerk: User) -> None:
    plain = make_staff()
    permitted = make_user("permitted")
    permitted.user_permissions.set(clerk.user_permissions.all())
    assert "workers" in client_of(clerk).get(path).json()
    assert "workers" not in client_of(plain).get(path).json()
    assert "workers" not in client_of(User.objects.get(pk=permitted.pk)).get(path).json()


@pytest.mark.parametrize("path", [URL, "/api/v1/overview"])
def test_a_key_shows_the_whole_installation_with_the_scope_admin_alone(
    path: str, clerk: User
) -> None:
    boss = make_user("boss", is_superuser=True)
    for user in (boss, clerk):
        assert "workers" not in client_with(user, "read").get(path).json()
        assert "workers" in client_with(user, "read", "admin").get(path).json()
    assert "workers" not in client_with(make_user("eve"), "read", "admin").get(path).json()


def test_figures_cost_the_same_however_much_there_is(django_assert_max_num_queries: Any) -> None:
    ada = make_user("ada")
    for _ in range(5):
        make_export(make_job(owner=ada), size_bytes=5)
    with django_assert_max_num_queries(9):
        client_of(ada).get(URL)


@pytest.mark.parametrize("path", [URL, "/api/v1/overview"])
def test_figures_need_a_user_and_take_no_field(client: APIClient, path: str) -> None:
    assert APIClient().get(path).status_code == 401
    refused = client.get(f"{path}?days=3")
    assert (refused.status_code, refused.json()["code"]) == (400, "unknown_field")
