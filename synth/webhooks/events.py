"""Write what happened as messages to be delivered, in the transaction in which it happens."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection, Iterable
from typing import Any

from django.db import transaction
from django.dispatch import receiver
from rest_framework.utils.encoders import JSONEncoder

from synth.api.batches.serializers import BatchSerializer, webhook_data, with_figures
from synth.api.jobs.serializers import JobListSerializer
from synth.models import Batch, RenderJob, WebhookDelivery, WebhookEndpoint
from synth.signals import batch_ended, job_approved, jobs_ended
from synth.transitions.webhooks import give_up_at
from ttsweb import leases
from ttsweb.work import Kind, enqueue
from voices.models import VoiceVersion
from voices.signals import version_ended

Event = WebhookDelivery.Event
TEXT_FIELDS = ("text", "text_start")  # what is said is told to nobody


@receiver(jobs_ended)
def tell_of_jobs(jobs: Collection[RenderJob], **_: Any) -> None:
    """Queue the messages about jobs that have just ended, where somebody wants to be told."""
    owners = {job.owner_id for job in jobs if job.owner_id is not None}
    rows = WebhookEndpoint.objects.filter(owner_id__in=owners, enabled=True)
    listening = set(rows.values_list("owner_id", flat=True))
    for job in jobs:
        if job.webhook_url or job.owner_id in listening:
            queue_job_messages(job.pk)


@receiver(job_approved)
def tell_of_approved_job(job: RenderJob, **_: Any) -> None:
    """Queue the messages about a book that is whole after all."""
    queue_job_messages(job.pk)


def queue_job_messages(job_id: uuid.UUID) -> int:
    """Queue the messages about a job that has just ended; return how many.

    They go to its own URL and to its owner's endpoints. An item of a batch has only the former:
    the batch tells for all of them. Call inside the transaction that ended it.
    """
    job = RenderJob.objects.defer("text").get(pk=job_id)
    if job.owner_id is None:
        return 0
    event = Event(f"job.{job.status}")
    urls = _urls(job.owner_id if job.batch_id is None else None, event, job.webhook_url)
    if not urls:
        return 0
    job.text_start = ""  # type: ignore[attr-defined]  # what the API's queries add
    shown = JobListSerializer(job).data.items()
    data = {name: value for name, value in shown if name not in TEXT_FIELDS}
    return _queue(urls, job.owner_id, event, data, job=job)


@receiver(batch_ended)
def tell_of_batch(batch_id: uuid.UUID, **_: Any) -> int:
    """Queue the messages about a batch that has just ended; return how many.

    They go to its own URL and to its owner's endpoints; those about a batch of texts are named as
    those about a job. Call inside the transaction that ended it.
    """
    batch = Batch.objects.get(pk=batch_id)
    if batch.owner_id is None:
        return 0
    is_text = batch.kind == Batch.Kind.TEXTS
    event = Event(f"job.{batch.status}") if is_text else Event.BOOK_BATCH_ENDED
    urls = _urls(batch.owner_id, event, batch.webhook_url)
    if not urls:
        return 0
    if is_text:
        data = {"kind": "batch", **BatchSerializer(with_figures([batch])[0]).data}
    else:
        data = webhook_data(batch)
    return _queue(urls, batch.owner_id, event, data, batch=batch)


@receiver(version_ended)
def tell_of_version(version_id: uuid.UUID, **_: Any) -> int:
    """Queue the messages about a voice version that is ready or has failed; return how many.

    They go to the endpoints of the voice's owner. Call inside the transaction that moved it.
    """
    version = VoiceVersion.objects.select_related("voice").get(pk=version_id)
    voice = version.voice
    if voice is None or voice.owner_id is None or voice.deleted_at is not None:
        return 0
    event = Event(f"voice.{version.status}")
    urls = _urls(voice.owner_id, event)
    if not urls:
        return 0
    data = {
        "id": voice.pk,
        "name": voice.name,
        "language": voice.language,
        "status": version.status,
        "version": version.number,
        "frames": version.frames,
        "error_code": version.error_code,
        "error_message": version.error_message,
    }
    return _queue(urls, voice.owner_id, event, data)


def tell_test(endpoint: WebhookEndpoint) -> WebhookDelivery:
    """Queue a message that says nothing, to see whether it arrives; return it."""
    message = "This is a test of the webhook."
    with transaction.atomic():
        _queue([endpoint.url], endpoint.owner_id, Event.TEST, {"message": message})
        found = WebhookDelivery.objects.filter(owner_id=endpoint.owner_id, event=Event.TEST)
        return found.order_by("-created_at", "-pk")[0]


def _urls(owner_id: int | None, event: Event, own_url: str = "") -> list[str]:
    """Return an own URL, if any, and those of a user's endpoints that are on and want the event."""
    urls = [own_url] if own_url else []
    if owner_id is None:
        return urls
    rows = WebhookEndpoint.objects.filter(owner_id=owner_id, enabled=True)
    return urls + [url for url, events in rows.values_list("url", "events") if event in events]


def _queue(
    urls: Iterable[str],
    owner_id: int,
    event: Event,
    data: dict[str, Any],
    *,
    job: RenderJob | None = None,
    batch: Batch | None = None,
) -> int:
    """Write one delivery for each of the URLs, and wake workers for them after the commit."""
    now = leases.database_now()
    message = {"type": event.value, "timestamp": now, "data": data}
    body = json.dumps(message, cls=JSONEncoder)  # ASCII, so that every database takes it
    columns: dict[str, Any] = {"owner_id": owner_id, "job": job, "batch": batch, "event": event}
    columns |= {"body": body, "not_before": now, "give_up_at": give_up_at()}
    rows = WebhookDelivery.objects.bulk_create(
        WebhookDelivery(url=url, **columns) for url in dict.fromkeys(urls)
    )
    enqueue(Kind.DELIVERY, [row.pk for row in rows])
    return len(rows)
