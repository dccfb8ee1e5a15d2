"""Store books: the uploaded file, what was read of it, and what is to be made of it."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from synth.key_models import ApiKey
from ttsweb.leases import LeasedModel


class BookSource(LeasedModel):
    """One uploaded book: importing, then planned; once started its job says how far it is.

    `edits` are applied to the plan that is made of `book_key`, in their order; each change of them
    counts `plan_number` up, and changes are made against the number that was read. `started` is
    what the proof of completeness needs of the plan as it was started.
    """

    class State(models.TextChoices):
        IMPORTING = "importing"
        PLANNED = "planned"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="books",
    )
    api_key = models.ForeignKey(
        ApiKey, null=True, blank=True, on_delete=models.SET_NULL, related_name="books"
    )
    # A job that is deleted leaves its book planned: it can be started again.
    job = models.OneToOneField(
        "synth.RenderJob", null=True, blank=True, on_delete=models.SET_NULL, related_name="book"
    )
    state = models.CharField(max_length=10, choices=State, default=State.IMPORTING)
    filename = models.CharField(max_length=255)
    object_key = models.CharField(max_length=300)
    size_bytes = models.PositiveBigIntegerField()
    sha256 = models.CharField(max_length=64)
    title = models.CharField(max_length=500, blank=True, default="")
    authors = models.JSONField(default=list, blank=True)
    language = models.CharField(max_length=35, blank=True, default="")
    book_key = models.CharField(max_length=300, blank=True, default="")  # JSON: its blocks
    cover_key = models.CharField(max_length=300, blank=True, default="")
    cover_type = models.CharField(max_length=100, blank=True, default="")
    options = models.JSONField(default=dict, blank=True)  # of the job, as a request has them
    policies = models.JSONField(default=dict, blank=True)  # notes, tables, alt_texts
    edits = models.JSONField(default=list, blank=True)
    plan_number = models.PositiveIntegerField(default=1)
    figures = models.JSONField(default=dict, blank=True)  # counts of the plan
    started = models.JSONField(default=dict, blank=True)
    start_wanted = models.BooleanField(default=False)  # as soon as it is planned
    idempotency_key = models.CharField(max_length=255, blank=True, default="")
    body_digest = models.CharField(max_length=64, blank=True, default="")
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "idempotency_key"),
                condition=~Q(idempotency_key=""),
                name="book_idempotency_key_unique_per_owner",
            ),
        )
        indexes = (models.Index(fields=("state", "not_before"), name="book_import_queue"),)

    def __str__(self) -> str:
        return self.title or self.filename
