"""Store what is rendered: jobs, chapters, segments, takes, exports, and whose turn it is."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from synth.models.accounts import ApiKey
from ttsweb.leases import LeasedModel
from voices.models import VoiceVersion


class RenderJob(models.Model):
    """The speech of one text or of one book. Counters are columns, so that a poll costs one row."""

    class Kind(models.TextChoices):
        SPEECH = "speech"
        BOOK = "book"

    class Status(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        SUCCEEDED = "succeeded"
        PARTIAL = "partial"
        FAILED = "failed"
        CANCELLED = "cancelled"

    class Priority(models.IntegerChoices):
        INTERACTIVE = 0
        BULK = 10

    FINAL = (Status.SUCCEEDED, Status.PARTIAL, Status.FAILED, Status.CANCELLED)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=10, choices=Kind, default=Kind.SPEECH)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="jobs",
    )
    api_key = models.ForeignKey(
        ApiKey, null=True, blank=True, on_delete=models.SET_NULL, related_name="jobs"
    )
    # Whose share of the workers it takes: its key's, else its owner's; see segment_claims.
    lane = models.CharField(max_length=40, blank=True, default="")
    # The batch of texts that it is an item of, with its place and its name there.
    batch = models.ForeignKey(
        "synth.Batch", null=True, blank=True, on_delete=models.CASCADE, related_name="items"
    )
    item_index = models.PositiveIntegerField(null=True, blank=True)
    custom_id = models.CharField(max_length=200, blank=True, default="")
    text = models.TextField(blank=True)
    language = models.CharField(max_length=35, blank=True, default="")
    priority = models.PositiveSmallIntegerField(choices=Priority, default=Priority.INTERACTIVE)
    format = models.CharField(max_length=10, default="wav")
    speed = models.FloatField(default=1.0)  # of the file alone: takes keep their own pace
    sample_rate = models.PositiveIntegerField(null=True, blank=True)  # Hz; None is the takes' own
    bit_rate = models.PositiveIntegerField(null=True, blank=True)  # bits per second
    loudness = models.FloatField(null=True, blank=True)  # target of the file in LUFS
    pauses = models.JSONField(default=dict, blank=True)  # milliseconds by the pause's name
    lexicons = models.JSONField(default=list, blank=True)  # ids or names, as they were asked for
    lexicon = models.JSONField(default=list, blank=True)  # entries that this job alone has
    normalise = models.BooleanField(default=False)  # numbers and the like are spelled out
    max_retakes = models.PositiveSmallIntegerField(null=True, blank=True)
    deadline_at = models.DateTimeField(null=True, blank=True)
    retention_seconds = models.PositiveIntegerField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)  # set when it ends; None keeps it
    webhook_url = models.CharField(max_length=2000, blank=True, default="")
    live_requested_at = models.DateTimeField(null=True, blank=True)
    seed = models.BigIntegerField(default=0)
    # How many earlier segments of its speaker a segment is rendered after.
    history = models.PositiveSmallIntegerField(default=0, db_default=0)
    temperature = models.FloatField()
    top_p = models.FloatField()
    top_k = models.PositiveIntegerField()
    cancel_requested = models.BooleanField(default=False)
    # Nothing of it is started meanwhile; what is being rendered at that moment is kept.
    paused_at = models.DateTimeField(null=True, blank=True)
    idempotency_key = models.CharField(max_length=255, blank=True, default="")
    body_digest = models.CharField(max_length=64, blank=True, default="")
    segments_total = models.PositiveIntegerField(default=0)
    segments_done = models.PositiveIntegerField(default=0)
    segments_failed = models.PositiveIntegerField(default=0)
    segments_cancelled = models.PositiveIntegerField(default=0)
    takes_rendered = models.PositiveIntegerField(default=0)  # further takes of a segment as well
    takes_reused = models.PositiveIntegerField(default=0)  # that were there already
    takes_compared = models.BooleanField(default=False)  # with one another, once all were there
    audio_seconds = models.FloatField(default=0.0)
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        verbose_name = "job"
        ordering = ("-created_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "idempotency_key"),
                condition=~Q(idempotency_key=""),
                name="render_job_idempotency_key_unique_per_owner",
            ),
            models.UniqueConstraint(
                fields=("batch", "item_index"), name="render_job_item_index_unique_per_batch"
            ),
        )
        indexes = (
            models.Index(fields=("status", "priority", "created_at"), name="render_job_queue"),
            models.Index(
                fields=("status", "priority", "lane", "created_at"), name="render_job_lane"
            ),
            models.Index(fields=("expires_at",), name="render_job_expiry"),
            models.Index(
                fields=("live_requested_at",),
                condition=Q(live_requested_at__isnull=False),
                name="render_job_live",
            ),
        )

    def __str__(self) -> str:
        word = "job" if self.kind == self.Kind.SPEECH else self.kind
        return f"{word} {str(self.id)[:8]}"


# What requests and answers call a priority.
PRIORITIES = {one.name.lower(): one for one in RenderJob.Priority}


class JobVoice(models.Model):
    """Pin one voice version to a job; speaker N is `<|speaker:N|>` in its text."""

    job = models.ForeignKey(RenderJob, on_delete=models.CASCADE, related_name="voices")
    speaker = models.PositiveSmallIntegerField(default=0)
    version = models.ForeignKey(VoiceVersion, on_delete=models.PROTECT, related_name="pinned_by")
    role = models.CharField(max_length=100, blank=True, default="")  # of books, such as "dialogue"

    class Meta:
        ordering = ("speaker",)
        constraints = (
            models.UniqueConstraint(fields=("job", "speaker"), name="job_voice_speaker_unique"),
        )

    def __str__(self) -> str:
        return f"{self.job_id} speaker {self.speaker}"


class Chapter(models.Model):
    """One output file's worth of a job; a speech job has one."""

    job = models.ForeignKey(RenderJob, on_delete=models.CASCADE, related_name="chapters")
    index = models.PositiveIntegerField(default=0)
    title = models.CharField(max_length=300, blank=True, default="")

    class Meta:
        ordering = ("index",)
        constraints = (
            models.UniqueConstraint(fields=("job", "index"), name="chapter_index_unique"),
        )

    def __str__(self) -> str:
        return self.title or f"chapter {self.index}"


class Take(models.Model):
    """One rendering of a text by a voice, model, seed and sampling: same key, same audio.

    `codes_key` holds safetensors `codes` int16 [K, T]; `audio_key` a mono FLAC made from them.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    content_key = models.CharField(max_length=64, unique=True)
    codes_key = models.CharField(max_length=300)
    audio_key = models.CharField(max_length=300)
    frames = models.PositiveIntegerField()
    sample_rate = models.PositiveIntegerField()
    audio_seconds = models.FloatField()
    finish_reason = models.CharField(max_length=20)
    size_bytes = models.PositiveBigIntegerField(default=0)  # of both objects
    measures = models.JSONField(default=dict, blank=True)
    # 1 is beyond suspicion, 0 the worst; None where nothing was screened.
    quality_score = models.FloatField(null=True, blank=True)
    quality_flags = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.content_key[:12]


class Segment(LeasedModel):
    """One engine call's worth of a chapter."""

    class Status(models.TextChoices):
        QUEUED = "queued"
        CLAIMED = "claimed"
        DONE = "done"
        FAILED = "failed"
        CANCELLED = "cancelled"

    id = models.BigAutoField(primary_key=True)
    job = models.ForeignKey(RenderJob, on_delete=models.CASCADE, related_name="segments")
    chapter = models.ForeignKey(Chapter, on_delete=models.CASCADE, related_name="segments")
    index = models.PositiveIntegerField()
    text = models.TextField()
    spoken_text = models.TextField()
    speaker = models.PositiveSmallIntegerField(default=0)
    seed = models.BigIntegerField()
    pause_after_ms = models.PositiveIntegerField(default=0)
    # With history: the first segment of its chain, its own place there, and how many come after.
    chain = models.PositiveIntegerField(null=True, blank=True)
    chain_place = models.PositiveSmallIntegerField(null=True, blank=True)
    chain_left = models.PositiveSmallIntegerField(null=True, blank=True)
    # How many earlier segments its take was rendered after, or is to be; None until it is begun.
    history_used = models.PositiveSmallIntegerField(null=True, blank=True)
    # Takes with other seeds that followed a suspicious one, and what was found of each.
    retakes = models.PositiveSmallIntegerField(default=0)
    candidates = models.JSONField(default=list, blank=True)
    candidate_takes = models.ManyToManyField(Take, blank=True, related_name="candidate_of")
    # A person asked for this seed or chose this take: it is kept, whatever the screen finds.
    is_hand_picked = models.BooleanField(default=False)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    # Of the take that is rendered under its claim; while queued, of the one that it waits for.
    content_key = models.CharField(max_length=64, blank=True, default="", editable=False)
    take = models.ForeignKey(
        Take, null=True, blank=True, on_delete=models.SET_NULL, related_name="segments"
    )
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("chapter__index", "index")
        constraints = (
            models.UniqueConstraint(fields=("chapter", "index"), name="segment_index_unique"),
            models.UniqueConstraint(
                fields=("content_key",),
                condition=Q(status="claimed") & ~Q(content_key=""),
                name="segment_content_key_rendered_once",
            ),
        )
        indexes = (
            models.Index(fields=("status", "not_before"), name="segment_queue"),
            models.Index(fields=("status", "attempts"), name="segment_attempts"),
            models.Index(
                fields=("losses",), condition=Q(status="queued", losses__gt=0), name="segment_lost"
            ),
            models.Index(fields=("job", "status"), name="segment_of_job"),
            models.Index(
                fields=("chapter", "chain", "index"),
                condition=Q(chain__isnull=False),
                name="segment_chain",
            ),
            models.Index(fields=("finished_at",), name="segment_finished"),
        )

    def __str__(self) -> str:
        return f"{self.job_id} #{self.index}"


class Export(LeasedModel):
    """One finished file: the join of a job's takes, or the zip of a batch of texts."""

    class Status(models.TextChoices):
        QUEUED = "queued"
        CLAIMED = "claimed"
        DONE = "done"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    job = models.ForeignKey(
        RenderJob, null=True, blank=True, on_delete=models.CASCADE, related_name="exports"
    )
    batch = models.OneToOneField(
        "synth.Batch", null=True, blank=True, on_delete=models.CASCADE, related_name="export"
    )
    format = models.CharField(max_length=10)
    status = models.CharField(max_length=10, choices=Status, default=Status.QUEUED)
    key = models.CharField(max_length=300, blank=True, default="")
    size_bytes = models.PositiveBigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True, default="")
    duration_seconds = models.FloatField(default=0.0)
    report = models.JSONField(default=dict, blank=True)  # what was measured of the file
    peaks = models.JSONField(default=list, blank=True)  # at most 1,000 of 0 to 255, for a waveform
    error_code = models.CharField(max_length=60, blank=True, default="")
    error_message = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("job", "format"), name="export_format_unique_per_job"),
            models.CheckConstraint(
                condition=Q(job__isnull=False, batch__isnull=True)
                | Q(job__isnull=True, batch__isnull=False),
                name="export_of_a_job_or_a_batch",
            ),
        )
        indexes = (
            models.Index(fields=("status", "not_before"), name="export_queue"),
            models.Index(
                fields=("losses",), condition=Q(status="queued", losses__gt=0), name="export_lost"
            ),
        )

    def __str__(self) -> str:
        return f"{self.job_id or self.batch_id}.{self.format}"


class ExportCues(models.Model):
    """Say where each segment lies in a file; apart from its row, since those of a book are many.

    `cues` holds lists of segment id, first sample and the sample after its last one, without the
    pause that follows, in order and counted at `sample_rate`, which the file was made at.
    """

    export = models.OneToOneField(
        Export, primary_key=True, on_delete=models.CASCADE, related_name="cues"
    )
    sample_rate = models.PositiveIntegerField()
    cues = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"cues of {self.export_id}"


class LiveChunk(models.Model):
    """About half a second of a segment's audio, to be heard before the segment is done.

    `key` names an object of s16le samples, mono; it is empty where there are none. The chunks of
    one rendering have the id of the take that came, or is to come, of it; by `index` they are its
    audio so far.
    """

    segment = models.ForeignKey(Segment, on_delete=models.CASCADE, related_name="live_chunks")
    attempt = models.UUIDField()
    index = models.PositiveIntegerField()
    key = models.CharField(max_length=300)
    num_samples = models.PositiveIntegerField()
    sample_rate = models.PositiveIntegerField()
    is_last = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("segment", "pk")
        constraints = (
            models.UniqueConstraint(
                fields=("segment", "attempt", "index"), name="live_chunk_index_unique"
            ),
        )

    def __str__(self) -> str:
        return f"{self.segment_id} chunk {self.index}"


class RenderedDay(models.Model):
    """Count what was rendered on one day (UTC), which stays when jobs are deleted."""

    day = models.DateField(primary_key=True)
    segments = models.PositiveBigIntegerField(default=0)
    reused = models.PositiveBigIntegerField(default=0)  # takes that were there already
    audio_seconds = models.FloatField(default=0.0)  # of new takes

    class Meta:
        ordering = ("-day",)

    def __str__(self) -> str:
        return str(self.day)


class WorkerStatus(models.Model):
    """What a worker last said of itself: for pages and probes, and for who wants its name."""

    class State(models.TextChoices):
        STARTING = "starting"
        WARMING = "warming"
        READY = "ready"
        UNLOADED = "unloaded"  # the model, after a while without work; the next work loads it
        DRAINING = "draining"
        STOPPED = "stopped"
        FAILED = "failed"

    SERVING = (State.READY, State.UNLOADED)  # what is sent now is done

    name = models.CharField(max_length=120, primary_key=True)
    role = models.CharField(max_length=10)
    state = models.CharField(max_length=10, choices=State, default=State.STARTING)
    detail = models.TextField(blank=True, default="")
    device = models.CharField(max_length=100, blank=True, default="")
    checkpoint = models.CharField(max_length=200, blank=True, default="")
    model_fingerprint = models.CharField(max_length=64, blank=True, default="")
    codec_fingerprint = models.CharField(max_length=64, blank=True, default="")
    resampler = models.CharField(max_length=20, blank=True, default="")
    engine_class = models.JSONField(default=dict, blank=True)  # the fields of contract.EngineClass
    # slots, slots_in_use, frames_per_second, load_seconds, codes_cache_bytes and others
    figures = models.JSONField(default=dict, blank=True)
    # Tells the processes of a name apart: of two that live, one must not free what the other holds.
    run = models.CharField(max_length=32, blank=True, default="", db_default="")
    started_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta:
        verbose_name = "worker"
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def is_elsewhere(self) -> bool:
        """Say whether it works over HTTPS: its name then begins with that of its key."""
        return "/" in self.name


class SweepTurn(models.Model):
    """One row per kind of periodic work: whoever moves `next_at` forward does that round of it.

    Nobody waits for the turn of `BACKUP`: its `next_at` is when the newest backup was made.
    """

    BACKUP = "backup"

    name = models.CharField(max_length=40, primary_key=True)
    next_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name


class LaneTurn(models.Model):
    """When a worker last took segments of a lane in a class of priority; orders equal lanes."""

    priority = models.PositiveSmallIntegerField()
    lane = models.CharField(max_length=40, blank=True)
    turn_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("priority", "lane"), name="lane_turn_unique"),
        )

    def __str__(self) -> str:
        return f"{self.lane} in {self.priority}"
