"""Figures over REST: a user's own, and the whole installation's for those who run it."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.utils import timezone
from rest_framework.test import APIClient

from synth.models import BookFile, JobVoice, WorkerStatus
from tests.factories import (
    make_book,
    make_export,
    make_job,
    make_stored_clip,
    make_take,
    make_user,
    make_version,
    make_voice,
)
from tests.synth.test_key_views import client_with
from voices.models import StoredClip
from voices.transitions import count

pytestmark = pytest.mark.django_db

URL = "/api/v1/stats"


def client_of(user: User) -> APIClient:
    """Return a client of a user's session."""
    client = APIClient()
    client.force_authenticate(user)
    return client


@pytest.fixture
def client() -> APIClient:
    """A client of a superuser."""
    return client_of(make_user("boss", is_superuser=True))


@pytest.fixture
def clerk() -> User:
    """One of the staff, who may view workers."""
    user = make_user("clerk", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_workerstatus"))
    return User.objects.get(pk=user.pk)


def add_book_file(job: Any, size_bytes: int) -> None:
    """Make the row of a book's file."""
    digest = f"{job.pk}".replace("-", "")
    BookFile.objects.create(job=job, kind="m4b", options_digest=digest, size_bytes=size_bytes)


def test_an_idle_service_shows_zeros_for_every_status(client: APIClient) -> None:
    shown = client.get(URL).json()

    assert shown["whole"] is True
    assert shown["codes"] == {"memory_hit": 0, "storage_hit": 0, "encoder_run": 0}
    assert shown["workers"] == []
    assert shown["queue"]["jobs"]["queued"] == 0
    assert set(shown["queue"]["voice_versions"]) == {"pending", "encoding", "ready", "failed"}


def test_counters_queues_and_workers_are_those_of_the_rows(client: APIClient) -> None:
    count("encoder_run", 1)
    count("memory_hit", 3)
    make_voice(ready=False)
    make_job(segments=2)
    WorkerStatus.objects.create(
        name="gpu-1",
        role="gpu",
        state="ready",
        resampler="builtin",
        figures={"codes_cache_bytes": 640},
        started_at=timezone.now(),
        last_seen_at=timezone.now(),
    )

    shown = client.get(URL).json()

    assert shown["codes"] == {"memory_hit": 3, "storage_hit": 0, "encoder_run": 1}
    assert shown["queue"]["segments"]["queued"] == 2
    assert shown["queue"]["jobs"]["queued"] == 1
    assert (shown["queue"]["voice_versions"]["pending"]) == 1
    worker = shown["workers"][0]
    assert (worker["state"], worker["resampler"]) == ("ready", "builtin")
    assert worker["figures"] == {"codes_cache_bytes": 640}


def test_a_parameter_is_refused(client: APIClient) -> None:
    assert client.get(f"{URL}?all=1").json()["code"] == "unknown_field"


def test_a_key_is_needed() -> None:
    assert APIClient().get(URL).status_code == 401


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
    plain = make_user("plain", is_staff=True)
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

    with django_assert_max_num_queries(8):
        client_of(ada).get(URL)
