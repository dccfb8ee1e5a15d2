"""Store books, what was read and is made of them, and batches of many books or texts."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from synth.formats import BOOK_FILES
from synth.models.accounts import ApiKey
from synth.models.jobs import RenderJob
from ttsweb.leases import LeasedModel


class BookSource(LeasedModel):
    """One uploaded book: importing, then planned; once started its job says how far it is.

    `edits` are applied to the plan that is made of `book_key`, in their order; each change of them
    counts `plan_number` up, and changes are made against the number that was read. `started` is
    what the proof of completeness needs of the plan as it was started.
    """

    STATE, WAITING, HELD, ENDED_AT = "state", "importing", "importing", "updated_at"

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
    # The job of one chapter that is heard before the rest is rendered; its takes are used again.
    sample_job = models.OneToOneField(
        "synth.RenderJob",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="sampled_book",
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
    # Who speaks what beside the narrator: dialogue, characters, languages; see synth/audiobooks.
    casting = models.JSONField(default=dict, blank=True)
    # How its files are made: preset of mastering, credits, levels of voices.
    production = models.JSONField(default=dict, blank=True)
    metadata = models.JSONField(default=dict, blank=True)  # what people say in place of the file's
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
        verbose_name = "book"
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


def file_kinds() -> list[tuple[str, str]]:
    """Return the kinds of a book's files and their labels: audio formats, and what is none."""
    return [(name, one.label) for name, one in BOOK_FILES.items()] + BookFile.Kind.choices


class BookFile(LeasedModel):
    """One more file of a book, beside its job's: of another kind, or of what is there so far.

    `options` are those that its kind takes, with all defaults filled in, and `options_digest` is
    theirs: asked for again, the same row answers. `content_digest` is of the takes that it was
    made of; where the job has others by now, the file is made once more.
    """

    class Kind(models.TextChoices):
        """The kinds that are no audio format; see `file_kinds`."""

        CHAPTERS = "chapters", "A file for each chapter (ZIP)"
        SHELF = "shelf", "Folders for Audiobookshelf (ZIP)"
        READ_ALONG = "read_along", "Read-along EPUB"  # EPUB 3 with media overlays
        SAMPLE = "sample", "Sample for shops"  # some minutes of MP3
        SRT = "srt", "Subtitles, SRT"
        VTT = "vtt", "Subtitles, WebVTT"
        REPORT = "report", "Report of levels"  # JSON

    class Status(models.TextChoices):
        QUEUED = "queued"
        CLAIMED = "claimed"
        DONE = "done"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey("synth.RenderJob", on_delete=models.CASCADE, related_name="book_files")
    kind = models.CharField(max_length=10)  # of `file_kinds`
    options = models.JSONField(default=dict, blank=True)
    options_digest = models.CharField(max_length=64)
    content_digest = models.CharField(max_length=64, blank=True, default="")
    is_partial = models.BooleanField(default=False)  # made before all chapters were there
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    key = models.CharField(max_length=300, blank=True, default="")
    size_bytes = models.PositiveBigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True, default="")
    duration_seconds = models.FloatField(default=0.0)
    report = models.JSONField(default=dict, blank=True)
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("job", "kind", "options_digest"), name="book_file_unique_per_job"
            ),
        )
        indexes = (models.Index(fields=("status", "not_before"), name="book_file_queue"),)

    def __str__(self) -> str:
        return f"{self.job_id} {self.kind}"


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
