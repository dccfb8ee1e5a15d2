"""Tell users' own servers what happened.

Endpoints are made, changed and deleted; their URLs checked, secrets kept, messages signed. What
waits for an endpoint that is off is not sent any more. Messages are signed as Standard Webhooks 1.0
has it, so that receivers can use any of its libraries. What happened is written as messages to be
delivered, in the transaction in which it happens. An e-mail notice is such a message as well, to a
`mailto:` URL, which no user can name as a webhook.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import json
import secrets
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.core.serializers.json import DjangoJSONEncoder
from django.db import transaction
from django.dispatch import receiver
from django.utils.module_loading import import_string

from synth.models import (
    Batch,
    NoticeWish,
    RenderJob,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookSecret,
)
from synth.models.accounts import MAIL
from synth.signals import batch_ended, job_approved, jobs_ended
from synth.transitions.webhooks import fail_deliveries_to, give_up_at
from ttsweb import leases
from ttsweb.encryption import SecretUnreadableError, encrypt, reencrypt
from ttsweb.http.guarded_fetch import FetchError, check_url
from ttsweb.refusals import RefusedError, SubmitRejectedError
from ttsweb.work import Kind, enqueue
from voices.models import VoiceVersion
from voices.signals import version_ended

MOST_ENDPOINTS = 20
# What says of a job or a batch what the API shows of it. These modules load Django REST framework,
# which a worker has no other use for: they are loaded with the first row that ends.
_DESCRIPTIONS: dict[type, str] = {
    RenderJob: "synth.api.jobs.serializers.describe_job",
    Batch: "synth.api.batches.serializers.describe_batch",
}


class TooManyEndpointsError(RefusedError):
    """A user has as many endpoints as a user may have."""


def create_endpoint(owner: AbstractBaseUser, values: Mapping[str, Any]) -> WebhookEndpoint:
    """Make an endpoint of checked values.

    Raises:
        TooManyEndpointsError: there are MOST_ENDPOINTS.
    """
    if WebhookEndpoint.objects.filter(owner_id=owner.pk).count() >= MOST_ENDPOINTS:
        raise TooManyEndpointsError(
            "too_many_endpoints",
            f"There are {MOST_ENDPOINTS} endpoints already, which is the limit for each "
            "user; delete one.",
        )
    return WebhookEndpoint.objects.create(owner_id=owner.pk, **values)


def change_endpoint(endpoint: WebhookEndpoint, values: Mapping[str, Any]) -> None:
    """Set checked values; what waits for the old URL, or for one that is now off, fails."""
    before = WebhookEndpoint(owner_id=endpoint.owner_id, url=endpoint.url)
    with transaction.atomic():
        for name, value in values.items():
            setattr(endpoint, name, value)
        if values:
            endpoint.save(update_fields=list(values))
        if not endpoint.enabled or endpoint.url != before.url:
            fail_deliveries_to(before)


def delete_endpoint(endpoint: WebhookEndpoint) -> None:
    """Delete an endpoint; what waits for it fails and stays in the list of deliveries."""
    with transaction.atomic():
        fail_deliveries_to(endpoint)
        endpoint.delete()


KEPT_FOR = dt.timedelta(days=30)


def forget_webhooks() -> int:
    """Delete deliveries that ended KEPT_FOR ago, and previous secrets; return how many of both."""
    now = leases.database_now()
    ended = WebhookDelivery.objects.filter(finished_at__lt=now - KEPT_FOR)
    deleted, _ = ended.delete()
    rotated = WebhookSecret.objects.filter(rotated_at__lt=now - PREVIOUS_SIGNS_FOR)
    return deleted + rotated.exclude(encrypted_previous="").update(encrypted_previous="")


def check_webhook_url(url: str) -> None:
    """Return if messages may be sent to a URL as it is written.

    No name server is asked here: a name may lead elsewhere tomorrow, so its addresses are checked
    at each delivery.

    Raises:
        SubmitRejectedError: url_invalid, url_scheme, or url_private_address in whatever spelling.
    """
    try:
        check_url(url, allow_private=settings.ALLOW_PRIVATE_URLS)
    except FetchError as error:
        raise SubmitRejectedError(error.code, str(error), attr="webhook") from error


SECRET_START = "whsec_"
SECRET_BYTES = 32
PREVIOUS_SIGNS_FOR = dt.timedelta(hours=24)


def secret_of(user: AbstractBaseUser) -> WebhookSecret:
    """Return a user's secret; it is made when it is first asked for."""
    made = {"encrypted_secret": encrypt(new_secret())}
    row, _ = WebhookSecret.objects.get_or_create(user_id=user.pk, defaults=made)
    return row


def rotate_secret(user: AbstractBaseUser) -> WebhookSecret:
    """Give a user another secret; the one before it signs too for PREVIOUS_SIGNS_FOR."""
    with transaction.atomic():
        secret_of(user)
        row = WebhookSecret.objects.select_for_update(of=("self",)).get(user_id=user.pk)
        try:
            row.encrypted_previous = reencrypt(row.encrypted_secret, what="The webhook secret")
        except SecretUnreadableError:  # of no use, as no key reads it any more
            row.encrypted_previous = ""
        row.secret = new_secret()
        row.rotated_at = leases.database_now()
        row.save(update_fields=["encrypted_previous", "encrypted_secret", "rotated_at"])
    return row


@transaction.atomic
def reencrypt_secrets() -> int:
    """Encrypt all users' secrets with the current key; return how many users these are.

    Raises:
        SecretUnreadableError: a secret was kept with a key that is not known; nothing has changed.
    """
    rows = list(WebhookSecret.objects.select_for_update(of=("self",)).order_by("pk"))
    for row in rows:
        try:
            row.encrypted_secret = reencrypt(row.encrypted_secret, what="A webhook secret")
            row.encrypted_previous = reencrypt(row.encrypted_previous, what="A previous secret")
        except SecretUnreadableError as error:
            raise SecretUnreadableError(error.code, f"{error} (user {row.user_id})") from error
        row.save(update_fields=["encrypted_secret", "encrypted_previous"])
    return len(rows)


def new_secret() -> str:
    """Return a secret nobody had before: `whsec_` and base64 of 32 random bytes."""
    return SECRET_START + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def previous_until(row: WebhookSecret) -> dt.datetime | None:
    """Return until when the secret before this one signs too; None when it does not any more."""
    end = row.rotated_at + PREVIOUS_SIGNS_FOR
    return end if row.encrypted_previous and leases.database_now() < end else None


def signing_secrets(row: WebhookSecret) -> list[str]:
    """Return the secrets that sign a message sent now, the newest first.

    Raises:
        SecretUnreadableError: this process has another key than the one that they were kept with.
    """
    return [row.secret, row.previous] if previous_until(row) else [row.secret]


def signed_headers(
    message_id: str, *, timestamp: int, body: bytes, signers: Sequence[str]
) -> dict[str, str]:
    """Return the headers by which a receiver knows a message, its age and its sender.

    Args:
        timestamp: of this attempt, in seconds since 1970.
        signers: secrets, of each of which the signature is added.
    """
    content = f"{message_id}.{timestamp}.".encode() + body
    keys = [base64.b64decode(secret.removeprefix(SECRET_START)) for secret in signers]
    digests = [base64.b64encode(hmac.digest(key, content, hashlib.sha256)) for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{digest.decode()}" for digest in digests),
    }


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
    describe: Callable[[Any], dict[str, Any]] = import_string(_DESCRIPTIONS[type(row)])
    return describe(row)


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
