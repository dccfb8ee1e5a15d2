"""What happens is written as messages, together with the change itself."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from synth.jobs.removal import delete_job
from synth.models import RenderJob, WebhookDelivery
from synth.transitions.batches import finish_batch
from synth.transitions.jobs import cancel_job, end_job
from synth.webhooks import forget_webhooks, tell_test
from tests.factories import (
    claim_row,
    hold_row,
    make_batch,
    make_delivery,
    make_endpoint,
    make_job,
    make_user,
    make_version,
    make_voice,
)
from ttsweb.leases import LOSSES_BESIDE_OTHERS
from voices import transitions as voice_transitions
from voices.models import ClipCodes, VoiceVersion
from workers.sweep import free_lost

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("job_services")]

JobStatus = RenderJob.Status
URL = "https://hooks.example/of-the-job"


@pytest.fixture
def owner(job_services: None) -> User:
    """A user."""
    return make_user()


def answer() -> list[tuple[str, str]]:
    """Return event and URL of all messages."""
    return sorted(WebhookDelivery.objects.values_list("event", "url"))


def body() -> Any:
    """Return the only message."""
    return json.loads(WebhookDelivery.objects.get().body)


def end_a_job(owner: User | None, status: Any = JobStatus.SUCCEEDED, **fields: Any) -> RenderJob:
    job = make_job(owner=owner, **fields)
    end_job(job.pk, status)
    return job


@pytest.mark.parametrize("status", RenderJob.FINAL)
def test_end_of_a_job_is_told_to_its_url_and_to_endpoints_without_its_text(
    status: JobStatus, owner: User
) -> None:
    endpoint = make_endpoint(owner)
    make_endpoint()
    job = make_job(owner=owner, webhook_url=URL, text="A secret sentence.")

    end_job(job.pk, status, error_message="Why it is so.")

    assert answer() == sorted([(f"job.{status}", URL), (f"job.{status}", endpoint.url)])
    for row in WebhookDelivery.objects.all():
        assert (row.owner, row.job) == (owner, job)
        assert "secret" not in row.body
        message = json.loads(row.body)
        assert message["type"] == f"job.{status}"
        data = message["data"]
        assert {"text", "text_start"}.isdisjoint(data), row.url
        assert (data["id"], data["status"]) == (str(job.pk), status), row.url
        assert data["error_message"] == "Why it is so.", row.url
        left = row.give_up_at - timezone.now()
        assert dt.timedelta(hours=23.9) < left <= dt.timedelta(hours=24)


def test_endpoint_gets_what_it_wants_and_only_while_it_is_on(owner: User) -> None:
    make_endpoint(owner, events=["job.failed", "voice.ready"])
    make_endpoint(owner, enabled=False)

    end_a_job(owner)
    assert answer() == []
    end_a_job(owner, JobStatus.FAILED)
    assert [event for event, _ in answer()] == ["job.failed"]


def test_job_whose_url_is_an_endpoints_too_is_told_once(owner: User) -> None:
    make_endpoint(owner, url=URL)
    end_a_job(owner, webhook_url=URL)
    assert answer() == [("job.succeeded", URL)]


def test_item_of_a_batch_is_told_only_to_its_own_url(owner: User) -> None:
    endpoint = make_endpoint(owner)
    batch = make_batch(owner, items=0)
    item = make_job(owner=owner, batch=batch, item_index=0)
    asked = make_job(owner=owner, batch=batch, item_index=1, webhook_url=URL)

    end_job(item.pk, JobStatus.SUCCEEDED)
    assert answer() == []
    end_job(asked.pk, JobStatus.SUCCEEDED)
    assert answer() == [("job.succeeded", URL)]

    WebhookDelivery.objects.all().delete()
    finish_batch(batch)
    assert answer() == [("job.succeeded", endpoint.url)]
    row = WebhookDelivery.objects.get()
    assert (row.batch, row.about, row.job) == (batch, batch.pk, None)
    assert body()["data"]["kind"] == "batch"
    assert body()["data"]["counts"]["succeeded"] == 2


def test_job_without_owner_tells_nobody_and_a_cancelled_one_is_told_once(owner: User) -> None:
    end_a_job(None, webhook_url=URL)
    assert answer() == []

    job = make_job(owner=owner, webhook_url=URL)
    assert [cancel_job(job.pk), cancel_job(job.pk)] == [True, False]
    assert answer() == [("job.cancelled", URL)]


def test_message_is_gone_when_the_change_is_undone(
    owner: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    job = make_job(owner=owner, webhook_url=URL)

    with pytest.raises(ZeroDivisionError), transaction.atomic():
        end_job(job.pk, JobStatus.SUCCEEDED)
        assert WebhookDelivery.objects.count() == 1
        raise ZeroDivisionError

    job.refresh_from_db()
    assert (job.status, answer()) == ("queued", [])
    assert sent_tasks("deliver") == []


def test_worker_is_rung_for_each_message_and_a_delivery_outlives_its_job(
    owner: User, sent_tasks: Callable[[str], list[str]]
) -> None:
    make_endpoint(owner)

    job = end_a_job(owner, webhook_url=URL)

    assert len(sent_tasks("deliver")) == 2
    assert not WebhookDelivery.objects.filter(sent_at=None).exists()
    delete_job(job)
    assert list(WebhookDelivery.objects.values_list("job", flat=True)) == [None, None]


def test_voice_that_is_ready_or_failed_is_told_to_its_owner(owner: User) -> None:
    endpoint = make_endpoint(owner)
    for name, status in (("Ada", "ready"), ("Grace", "failed")):
        voice = make_voice(name, ready=False, owner=owner)
        version = voice.versions.get()
        claim = hold_row(VoiceVersion, version.pk, worker="w")
        if status == "ready":
            voice_transitions.finish_version(
                claim, codec_fingerprint="c" * 64, frames=9, warnings=[]
            )
        else:
            voice_transitions.fail_version(claim, code="clip_silent", message="It is silent.")

        assert answer() == [(f"voice.{status}", endpoint.url)]
        data = body()["data"]
        assert (data["id"], data["name"], data["status"]) == (str(voice.pk), name, status)
        WebhookDelivery.objects.all().delete()


def test_voice_whose_workers_were_lost_is_told_as_failed(owner: User) -> None:
    make_endpoint(owner)
    version = make_voice(ready=False, owner=owner).versions.get()
    VoiceVersion.objects.update(losses=LOSSES_BESIDE_OTHERS + 2)
    assert claim_row(VoiceVersion, version.pk, worker="w")

    assert free_lost(Q(claimed_by="w")) == 1

    assert [event for event, _ in answer()] == ["voice.failed"]
    assert body()["data"]["error_code"] == "worker_lost"


def test_voice_whose_codes_are_there_already_is_told_as_ready(owner: User) -> None:
    make_endpoint(owner)
    version = make_version(make_voice(owner=owner, versions=0), status="pending")
    ClipCodes.objects.create(
        clip=version.clips.get().stored,
        codec_fingerprint="c" * 64,
        key="codes",
        frames=5,
        encoded_at=timezone.now(),
    )

    with transaction.atomic():
        assert voice_transitions.ready_version(version, "c" * 64)

    assert [event for event, _ in answer()] == ["voice.ready"]


def test_clip_that_came_with_a_job_tells_nobody(owner: User) -> None:
    make_endpoint(owner)
    version = make_version(status="pending")
    claim = hold_row(VoiceVersion, version.pk, worker="w")

    voice_transitions.fail_version(claim, code="clip_silent", message="It is silent.")

    assert answer() == []


def test_test_goes_to_one_endpoint_whatever_it_wants(owner: User) -> None:
    endpoint = make_endpoint(owner, events=["job.failed"], enabled=False)
    make_endpoint(owner)

    row = tell_test(endpoint)
    assert answer() == [("test", endpoint.url)]
    assert json.loads(row.body)["type"] == "test"


def test_old_deliveries_are_forgotten_and_what_waits_is_not(owner: User) -> None:
    now = timezone.now()
    make_delivery(owner, finished_at=now - dt.timedelta(days=31), status="delivered")
    young = make_delivery(owner, finished_at=now - dt.timedelta(days=29), status="failed")
    waiting = make_delivery(owner)
    WebhookDelivery.objects.update(created_at=now - dt.timedelta(days=40))

    forget_webhooks()

    assert set(WebhookDelivery.objects.all()) == {young, waiting}
