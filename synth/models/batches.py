"""Store batches: many texts or many books that were asked for at once."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from synth.models.books import BookSource
from synth.models.jobs import RenderJob
from synth.models.keys import ApiKey


class Batch(models.Model):
    """Many texts or many books that are made together.

    The items of a batch of texts are jobs (`items`); it has a status, and ends with a zip of their
    files. Of a batch of books the entries say which files belong to it (`entries`); it ends when
    no more entries come (`closed_at`) and each of its books has ended, and `report` is the summary
    that was made then.
    """

    class Kind(models.TextChoices):
        TEXTS = "texts"
        BOOKS = "books"

    class Sample(models.TextChoices):
        NONE = "none"  # all of each book at once
        FIRST = "first"  # one chapter of every book, then the rest by itself
        HOLD = "hold"  # one chapter of every book, then the rest once somebody approved

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=10, choices=Kind)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="batches",
    )
    api_key = models.ForeignKey(
        ApiKey, null=True, blank=True, on_delete=models.SET_NULL, related_name="batches"
    )
    priority = models.PositiveSmallIntegerField(
        choices=RenderJob.Priority, default=RenderJob.Priority.BULK
    )
    webhook_url = models.CharField(max_length=2000, blank=True, default="")
    idempotency_key = models.CharField(max_length=255, blank=True, default="")
    body_digest = models.CharField(max_length=64, blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    cancelled_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)
    # Of texts.
    status = models.CharField(
        max_length=10, choices=RenderJob.Status, default=RenderJob.Status.QUEUED
    )
    items_total = models.PositiveIntegerField(default=0)
    items_ended = models.PositiveIntegerField(default=0)
    deadline_at = models.DateTimeField(null=True, blank=True)
    retention_seconds = models.PositiveIntegerField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)  # set when it ends; None keeps it
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    started_at = models.DateTimeField(null=True, blank=True)
    # Of books; what entries get that do not say otherwise: options as a request has them.
    name = models.CharField(max_length=200, blank=True, default="")
    defaults = models.JSONField(default=dict, blank=True)
    sample = models.CharField(max_length=10, choices=Sample, default=Sample.NONE)
    approved_at = models.DateTimeField(null=True, blank=True)  # the samples, by a person
    paused_at = models.DateTimeField(null=True, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)
    report = models.JSONField(default=dict, blank=True)

    class Meta:
        verbose_name_plural = "batches"
        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "kind", "idempotency_key"),
                condition=~Q(idempotency_key=""),
                name="batch_idempotency_key_unique_per_owner",
            ),
        )
        indexes = (
            models.Index(fields=("kind", "ended_at", "created_at"), name="batch_open"),
            models.Index(fields=("expires_at",), name="batch_expiry"),
        )

    def __str__(self) -> str:
        word = "batch" if self.kind == self.Kind.TEXTS else "book batch"
        return self.name or f"{word} {str(self.pk)[:8]}"

    @property
    def cancel_requested(self) -> bool:
        """Whether nothing more of it is to be begun."""
        return self.cancelled_at is not None


class TextBatch(Batch):
    """A batch of texts; a name of its own gives it pages of its own in the admin."""

    class Meta:
        proxy = True
        verbose_name = "batch"
        verbose_name_plural = "batches"


class BookBatch(Batch):
    """A batch of books; as `TextBatch`."""

    class Meta:
        proxy = True
        verbose_name_plural = "book batches"


class BatchEntry(models.Model):
    """One line of the manifest of a batch of books; `book` is there once its file was uploaded."""

    batch = models.ForeignKey(Batch, on_delete=models.CASCADE, related_name="entries")
    index = models.PositiveIntegerField()
    filename = models.CharField(max_length=255)
    options = models.JSONField(default=dict, blank=True)  # voice, format, preset and the like
    metadata = models.JSONField(default=dict, blank=True)
    book = models.OneToOneField(
        BookSource, null=True, blank=True, on_delete=models.SET_NULL, related_name="batch_entry"
    )
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")

    class Meta:
        verbose_name_plural = "batch entries"
        ordering = ("batch", "index")
        constraints = (
            models.UniqueConstraint(fields=("batch", "index"), name="batch_entry_index"),
            models.UniqueConstraint(fields=("batch", "filename"), name="batch_entry_filename"),
        )

    def __str__(self) -> str:
        return self.filename
