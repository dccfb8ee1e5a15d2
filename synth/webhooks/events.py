"""Write what happened as messages to be delivered, in the transaction in which it happens.

An e-mail notice is such a message as well, to a `mailto:` URL, which no user can name as a webhook.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.dispatch import receiver

from synth.models import Batch, NoticeWish, RenderJob, WebhookDelivery, WebhookEndpoint
from synth.models.webhooks import MAIL
from synth.signals import batch_ended, description_asked, job_approved, jobs_ended
from synth.transitions.webhooks import give_up_at
from ttsweb import leases
from ttsweb.work import Kind, enqueue
from voices.models import VoiceVersion
from voices.signals import version_ended

Event = WebhookDelivery.Event


@receiver(jobs_ended)
def tell_of_jobs(jobs: Collection[RenderJob], **_: Any) -> None:
    """Queue the messages about jobs that have just ended, where somebody wants to be told."""
    owners = {job.owner_id for job in jobs if job.owner_id is not None}
    rows = WebhookEndpoint.objects.filter(owner_id__in=owners, enabled=True)
    listening = set(rows.values_list("owner_id", flat=True))
    if settings.SMTP is not None:
        wishes = NoticeWish.objects.filter(user_id__in=owners)
        listening |= set(wishes.values_list("user_id", flat=True))
    for job in jobs:
        if job.webhook_url or job.owner_id in listening:
            queue_job_messages(job.pk)


@receiver(job_approved)
def tell_of_approved_job(job: RenderJob, **_: Any) -> None:
    """Queue the messages about a book that is whole after all."""
    queue_job_messages(job.pk)


def queue_job_messages(job_id: uuid.UUID) -> None:
    """Queue the messages about a job that has just ended.

    They go to its own URL and to its owner's endpoints. An item of a batch has only the former:
    the batch tells for all of them. Call inside the transaction that ended it.
    """
    job = RenderJob.objects.defer("text").get(pk=job_id)
    event = Event(f"job.{job.status}")
    urls = _urls(job.owner_id if job.batch_id is None else None, event, job.webhook_url)
    if job.batch_id is None:
        is_book = job.kind == RenderJob.Kind.BOOK
        about = NoticeWish.About.BOOKS if is_book else NoticeWish.About.JOBS
        urls += _mail_urls(job.owner_id, about, job.status)
    if urls and job.owner_id is not None:
        _queue(urls, job.owner_id, event, _describe(job), job=job)


@receiver(batch_ended)
def tell_of_batch(batch_id: uuid.UUID, **_: Any) -> None:
    """Queue the messages about a batch that has just ended.

    They go to its own URL and to its owner's endpoints; those about a batch of texts are named as
    those about a job. Sent inside the transaction that ended it.
    """
    batch = Batch.objects.get(pk=batch_id)
    is_text = batch.kind == Batch.Kind.TEXTS
    event = Event(f"job.{batch.status}") if is_text else Event.BOOK_BATCH_ENDED
    urls = _urls(batch.owner_id, event, batch.webhook_url)
    urls += _mail_urls(batch.owner_id, NoticeWish.About.BATCHES, batch.status)
    if urls and batch.owner_id is not None:
        _queue(urls, batch.owner_id, event, _describe(batch), batch=batch)


@receiver(version_ended)
def tell_of_version(version_id: uuid.UUID, **_: Any) -> None:
    """Queue the messages about a voice version that is ready or has failed.

    They go to the endpoints of the voice's owner. Sent inside the transaction that moved it.
    """
    version = VoiceVersion.objects.select_related("voice").get(pk=version_id)
    voice = version.voice
    if voice is None or voice.owner_id is None or voice.deleted_at is not None:
        return
    event = Event(f"voice.{version.status}")
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
    _queue(_urls(voice.owner_id, event), voice.owner_id, event, data)


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


_FAILURES = (RenderJob.Status.FAILED, RenderJob.Status.PARTIAL)


def _mail_urls(owner_id: int | None, about: NoticeWish.About, status: str) -> list[str]:
    """Return the user's address as a URL, where the user wants e-mail of such an end."""
    if settings.SMTP is None or owner_id is None:
        return []
    wish = NoticeWish.objects.select_related("user").filter(user_id=owner_id).first()
    if wish is None or about not in wish.about or not wish.user.email or not wish.user.is_active:
        return []
    if wish.failures_only and status not in _FAILURES:
        return []
    return [f"{MAIL}{wish.user.email}"]


def _describe(row: RenderJob | Batch) -> dict[str, Any]:
    """Return what the API shows of a row, but for what is said in it: that is told to nobody."""
    answers: Any = description_asked.send(type(row), row=row)
    [(_, data)] = answers  # the API alone listens, once for each kind of rows
    return dict(data)


def _queue(
    urls: Collection[str],
    owner_id: int,
    event: Event,
    data: dict[str, Any],
    *,
    job: RenderJob | None = None,
    batch: Batch | None = None,
) -> None:
    """Write one delivery for each of the URLs, and wake workers for them after the commit."""
    if not urls:
        return
    now = leases.database_now()
    message = {"type": event.value, "timestamp": now.isoformat().replace("+00:00", "Z")}
    # ASCII, so that every database takes it.
    body = json.dumps(message | {"data": data}, cls=DjangoJSONEncoder)
    columns: dict[str, Any] = {"owner_id": owner_id, "job": job, "batch": batch, "event": event}
    columns |= {"body": body, "not_before": now, "give_up_at": give_up_at()}
    rows = WebhookDelivery.objects.bulk_create(
        WebhookDelivery(url=url, **columns) for url in dict.fromkeys(urls)
    )
    enqueue(Kind.DELIVERY, [row.pk for row in rows])
