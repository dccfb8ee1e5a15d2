"""The counters that show whether an encoder ran again."""

from __future__ import annotations

import pytest
from django.utils import timezone
from rest_framework.test import APIClient

from synth.models import WorkerStatus
from tests.factories import make_export, make_job, make_take, make_user, make_voice
from voices.models import StoredClip
from voices.transitions import count

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> APIClient:
    """Return a client of a user."""
    client = APIClient()
    client.force_authenticate(make_user())
    return client


def test_an_idle_service_shows_zeros_for_every_status(client: APIClient) -> None:
    shown = client.get("/api/v1/stats").json()

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

    shown = client.get("/api/v1/stats").json()

    assert shown["codes"] == {"memory_hit": 3, "storage_hit": 0, "encoder_run": 1}
    assert shown["queue"]["segments"]["queued"] == 2
    assert shown["queue"]["jobs"]["queued"] == 1
    assert (shown["queue"]["voice_versions"]["pending"]) == 1
    worker = shown["workers"][0]
    assert (worker["state"], worker["resampler"]) == ("ready", "builtin")
    assert worker["figures"] == {"codes_cache_bytes": 640}


def test_a_parameter_is_refused(client: APIClient) -> None:
    assert client.get("/api/v1/stats?all=1").json()["code"] == "unknown_field"


def test_a_key_is_needed() -> None:
    assert APIClient().get("/api/v1/stats").status_code == 401


def test_stored_bytes_are_counted_by_kind(client: APIClient) -> None:
    assert client.get("/api/v1/stats").json()["storage"]["total"] == 0
    make_export(size_bytes=1_000)
    make_take(size_bytes=200)
    clips = sum(StoredClip.objects.values_list("size_bytes", flat=True))

    shown = client.get("/api/v1/stats").json()["storage"]

    assert clips > 0
    assert shown == {"exports": 1_000, "takes": 200, "clips": clips, "total": 1_200 + clips}
