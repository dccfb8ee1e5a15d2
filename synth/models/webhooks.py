"""Store webhooks: where a user wants to be told of what happens, and what was sent there."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models

from ttsweb.encryption import decrypt, encrypt
from ttsweb.leases import LeasedModel

MAIL = "mailto:"  # how the URL of an e-mail notice begins


def all_events() -> list[str]:
    """Return the events that an endpoint gets unless something else is said."""
    return [event.value for event in WebhookDelivery.Event]


class WebhookSecret(models.Model):
    """The key that signs what is sent to a user's URLs; the one before it signs too for a while."""

    user = models.OneToOneField(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="webhook_secret"
    )
    encrypted_secret = models.TextField()
    encrypted_previous = models.TextField(blank=True, default="")
    rotated_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"webhook secret of {self.user}"

    @property
    def secret(self) -> str:
        """The secret in clear; raises SecretUnreadableError where the key is another one."""
        return decrypt(self.encrypted_secret, what="The webhook secret")

    @secret.setter
    def secret(self, clear: str) -> None:
        self.encrypted_secret = encrypt(clear)

    @property
    def previous(self) -> str:
        """The secret before it, or nothing; errors as for `secret`."""
        return decrypt(self.encrypted_previous, what="The previous webhook secret")


class WebhookEndpoint(models.Model):
    """A URL that gets the events of all jobs of a user."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="webhook_endpoints"
    )
    url = models.CharField(max_length=2000)
    events = models.JSONField(default=all_events)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("created_at",)

    def __str__(self) -> str:
        return self.url


class WebhookDelivery(LeasedModel):
    """One message to one URL, and how far it is; its body stays the same, however often it goes."""

    class Status(models.TextChoices):
        QUEUED = "queued"
        CLAIMED = "claimed"
        DELIVERED = "delivered"
        FAILED = "failed"

    class Event(models.TextChoices):
        JOB_SUCCEEDED = "job.succeeded"
        JOB_PARTIAL = "job.partial"
        JOB_FAILED = "job.failed"
        JOB_CANCELLED = "job.cancelled"
        VOICE_READY = "voice.ready"
        VOICE_FAILED = "voice.failed"
        BOOK_BATCH_ENDED = "book_batch.ended"
        TEST = "test"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="webhook_deliveries"
    )
    job = models.ForeignKey(
        "synth.RenderJob",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="webhook_deliveries",
    )
    batch = models.ForeignKey(
        "synth.Batch",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="webhook_deliveries",
    )
    event = models.CharField(max_length=30, choices=Event)
    url = models.CharField(max_length=2000)
    body = models.TextField()
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    response_status = models.PositiveSmallIntegerField(null=True, blank=True)
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    give_up_at = models.DateTimeField()
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"
        ordering = ("-created_at", "-id")
        indexes = (models.Index(fields=("status", "not_before"), name="webhook_delivery_queue"),)

    def __str__(self) -> str:
        return f"{self.event} to {self.url}"

    @property
    def about(self) -> uuid.UUID | None:
        return self.batch_id if self.event.startswith("job.") and self.batch_id else self.job_id
