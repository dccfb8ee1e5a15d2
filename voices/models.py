"""Store who speaks: voices, immutable versions, reference clips, and the codes made of them."""

from __future__ import annotations

import re
import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower

from ttsweb.leases import LeasedModel

LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*")  # of a voice; may be empty as well
MAX_LANGUAGE_CHARS = 35


class Voice(models.Model):
    """A named speaker. What it sounds like is in its versions; the newest one speaks."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True, default="", max_length=2000)
    language = models.CharField(max_length=MAX_LANGUAGE_CHARS, blank=True, default="")
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="voices",
    )
    shared = models.BooleanField(default=False)  # every user may speak with it, none but its owner
    # (or a superuser) may change it
    consent_statement = models.TextField(max_length=2000)
    consent_by = models.CharField(max_length=200)
    consent_at = models.DateTimeField()
    consent_withdrawn_at = models.DateTimeField(null=True, blank=True)  # it says nothing since then
    # Off: its codes are read from storage for every segment and never stay in a worker's memory.
    cache_codes = models.BooleanField(default=True)
    archived = models.BooleanField(default=False)
    deleted_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(
                Lower("name"),
                "owner",
                condition=Q(deleted_at__isnull=True, owner__isnull=False),
                name="voice_name_unique_per_owner",
            ),
            models.UniqueConstraint(
                Lower("name"),
                condition=Q(deleted_at__isnull=True, owner__isnull=True),
                name="voice_name_unique_without_owner",
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def current_version(self) -> VoiceVersion | None:
        """Return the newest version, or None for a voice that never got a clip."""
        return self.versions.first()  # in the order of Meta, so that prefetched versions are used


class StoredClip(models.Model):
    """The bytes of one uploaded clip, shared by all versions of one tenant; keyed by sha256.

    `original_key` is the upload as it came; `used_key` is the mono FLAC that the encoder was given.
    Both are empty once only ended jobs use the clip, which brought it along: its codes are left.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    fingerprint = models.CharField(max_length=64)
    tenant = models.CharField(max_length=40, blank=True, default="")  # see objects.tenant_of
    original_key = models.CharField(max_length=300, blank=True)
    used_key = models.CharField(max_length=300, blank=True, default="")
    container = models.CharField(max_length=20)
    size_bytes = models.PositiveBigIntegerField()
    # Measured while decoding: duration_seconds, sample_rate, channels, peak_dbfs, rms_dbfs,
    # silence_share, clipped_share, codec, peaks (at most 400 of 0 to 255), warnings.
    measures = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("fingerprint", "tenant"), name="stored_clip_unique_per_tenant"
            ),
        )

    def __str__(self) -> str:
        return self.fingerprint[:12]


class VoiceVersion(LeasedModel):
    """One immutable set of clips and transcripts, and how far its encoding is.

    A version without a voice belongs to a job that brought its own reference. `encoded_at` stays
    set while a version that once was ready is encoded again, so that jobs wait for it.
    """

    WAITING, HELD, ENDED_AT = "pending", "encoding", ""

    class Status(models.TextChoices):
        PENDING = "pending"
        ENCODING = "encoding"
        READY = "ready"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    voice = models.ForeignKey(
        Voice, null=True, blank=True, on_delete=models.CASCADE, related_name="versions"
    )
    number = models.PositiveIntegerField(default=1)
    status = models.CharField(max_length=10, choices=Status, default=Status.PENDING)
    codec_fingerprint = models.CharField(max_length=64, blank=True, default="")
    frames = models.PositiveIntegerField(default=0)
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    warnings = models.JSONField(default=list, blank=True)
    encoded_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-number",)
        constraints = (
            models.UniqueConstraint(fields=("voice", "number"), name="voice_version_number_unique"),
        )
        indexes = (models.Index(fields=("status", "not_before"), name="voice_version_queue"),)

    def __str__(self) -> str:
        return f"{self.voice.name if self.voice else 'inline reference'} v{self.number}"


class ReferenceClip(models.Model):
    """One clip of a version and what is said in it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    version = models.ForeignKey(VoiceVersion, on_delete=models.CASCADE, related_name="clips")
    index = models.PositiveSmallIntegerField(default=0)
    stored = models.ForeignKey(StoredClip, on_delete=models.PROTECT, related_name="uses")
    filename = models.CharField(max_length=200, blank=True, default="")
    transcript = models.TextField(max_length=5000)

    class Meta:
        ordering = ("index",)
        constraints = (
            models.UniqueConstraint(
                fields=("version", "index"), name="reference_clip_index_unique"
            ),
        )

    def __str__(self) -> str:
        return self.filename or str(self.stored)


class ClipCodes(LeasedModel):
    """The codes of one clip in one codec: the single place where an encoder run is claimed.

    The row exists before the codes do: whoever holds its claim runs the encoder, the others wait.
    `key` names a safetensors object with `codes` int16 [K, T].
    """

    STATE = ""  # whoever holds the claim runs the encoder

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    clip = models.ForeignKey(StoredClip, on_delete=models.CASCADE, related_name="codes")
    codec_fingerprint = models.CharField(max_length=64)
    key = models.CharField(max_length=300, blank=True, default="")
    frames = models.PositiveIntegerField(default=0)
    resampler = models.CharField(max_length=20, blank=True, default="")
    encoded_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name_plural = "clip codes"
        constraints = (
            models.UniqueConstraint(
                fields=("clip", "codec_fingerprint"), name="clip_codes_unique_per_codec"
            ),
        )

    def __str__(self) -> str:
        return f"{self.clip} in {self.codec_fingerprint[:12]}"


class Transcript(LeasedModel):
    """A clip whose words a transcriber proposes, for a person to correct.

    No voice knows of it: the corrected words are sent with the clip. The clip's bytes go when the
    proposal is there, and the row soon after it.
    """

    HELD = "transcribing"

    class Status(models.TextChoices):
        QUEUED = "queued"
        TRANSCRIBING = "transcribing"
        DONE = "done"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="transcripts"
    )
    status = models.CharField(max_length=12, choices=Status, default=Status.QUEUED)
    language = models.CharField(max_length=MAX_LANGUAGE_CHARS, blank=True, default="")
    original_key = models.CharField(max_length=300, blank=True, default="")
    container = models.CharField(max_length=20)
    text = models.TextField(blank=True, default="")
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        indexes = (models.Index(fields=("status", "not_before"), name="transcript_queue"),)

    def __str__(self) -> str:
        return str(self.pk)


class CacheEviction(models.Model):
    """Tell every worker to drop a clip's codes from memory; each reads the rows it has not seen."""

    clip_fingerprint = models.CharField(max_length=64)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    def __str__(self) -> str:
        return f"{self.pk}: {self.clip_fingerprint[:12]}"


class CodesCounter(models.Model):
    """Count how codes were found, over all workers: memory_hit, storage_hit, encoder_run."""

    name = models.CharField(max_length=40, primary_key=True)
    value = models.PositiveBigIntegerField(default=0)

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


class VoiceAlias(models.Model):
    """Another name of a voice in the calls of other services' clients, such as `alloy`."""

    name = models.CharField(max_length=100, primary_key=True)  # in lower case
    voice = models.ForeignKey(Voice, on_delete=models.CASCADE, related_name="aliases")

    class Meta:
        ordering = ("name",)
        verbose_name = "voice name"

    def __str__(self) -> str:
        return f"{self.name} = {self.voice}"
