"""Store books: the uploaded file, what was read of it, and what is made of it."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from synth.formats import BOOK_FILES
from synth.models.keys import ApiKey
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
