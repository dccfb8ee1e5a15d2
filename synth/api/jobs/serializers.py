"""Write what answers show of jobs and segments, and read which jobs a list is to show."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from django.db.models import Q
from django.urls import reverse
from rest_framework import serializers

from synth.api.fields import boolean, identifier, integer, moment, number, string, strings
from synth.api.jobs.requests import EntrySerializer
from synth.api.option_fields import BookPausesField, RetentionField
from synth.formats import BOOK_FORMATS
from synth.jobs.eta import etas, real_time_factor
from synth.jobs.options import OPTIONS, Value
from synth.jobs.queue import QueueState, queue_positions
from synth.models import PRIORITIES, Export, JobVoice, RenderJob, Segment
from synth.transitions.jobs import UNFINISHED
from ttsweb.http.api import ApiProblem
from ttsweb.http.fields import LookUpMixin, PageSerializer, SharedFieldsMixin, ShownField
from ttsweb.http.nouns import without_file
from ttsweb.http.query_filters import id_filter, ids_filter, moment_filter, names_filter
from ttsweb.http.ranged import StoredObject
from ttsweb.refusals import POLL_SECONDS

MAX_IDS = 200
KINDS = ("speech", "batch", "book")  # messages tell of a batch of texts as of a job
STATUSES = "One or more statuses, separated by commas."


class JobFilterSerializer(serializers.Serializer[Any]):
    """The filters of the job list, as a condition on jobs."""

    status = names_filter(RenderJob.Status.values, STATUSES)
    voice = serializers.CharField(required=False, help_text="Id or name of a voice.")
    ids = ids_filter("jobs", MAX_IDS)
    kind = names_filter(KINDS, "One or more kinds, separated by commas.")
    batch = id_filter(
        "batch", help_text="Id of a batch; if left out, items of batches are not listed."
    )
    created_after = moment_filter("created_at__gt")
    created_before = moment_filter("created_at__lt")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs.keys().isdisjoint(("batch", "ids")):
            attrs["batch"] = Q(batch__isnull=True)
        return attrs

    def validate_voice(self, value: str) -> Q:
        # Not as an id that is known: the voice may be deleted by now.
        try:
            return Q(voices__version__voice=uuid.UUID(value))
        except ValueError:
            return Q(voices__version__voice__name__iexact=value)


class CheckSerializer(serializers.Serializer[Any]):
    """One value that was measured in a take, and its limit."""

    name = string("The code of the flag that it sets.")
    value = number()
    limit = number()


class QualitySerializer(serializers.Serializer[Any]):
    """The result of a take's quality check."""

    score = number("1 is the best, 0 the worst; null if the quality check was off.", null=True)
    flags = strings("Codes of the problems that were found; empty if none.")
    measures = CheckSerializer(many=True)


class CandidateSerializer(QualitySerializer):
    """One of several takes of a segment, and the result of its quality check."""

    take = identifier()
    seed = integer()
    seconds = number()


def quality_of(segment: Segment) -> dict[str, Any] | None:
    """Return what was found of the take that a segment keeps; None where it has none.

    What showed only beside the job's other takes stands with the candidate.
    """
    if segment.take is None:
        return None
    for candidate in segment.candidates:
        if candidate["take"] == str(segment.take_id):
            return {name: candidate[name] for name in ("score", "flags", "measures")}
    take = segment.take
    return {
        "score": take.quality_score,
        "flags": take.quality_flags,
        "measures": take.measures.get("screen", []),
    }


class FileReportSerializer(serializers.Serializer[Any]):
    """The values measured in a finished file, and how its loudness was changed."""

    seconds = number()
    sample_rate = integer("Sample rate in Hz.")
    channels = integer()
    bit_rate = integer("Bits per second, averaged over the file.", null=True)
    loudness_lufs = number(
        "Integrated loudness in LUFS by ITU-R BS.1770-4; null for silence and for files "
        "shorter than 0.4 s.",
        null=True,
    )
    true_peak_dbtp = number()
    target_lufs = number("The loudness in LUFS that the job asked for.", null=True)
    target_reached = boolean("Whether the file is within 0.5 LU of the target.", null=True)
    gain_db = number("The gain in dB, one for the whole file.")
    limiter_db = number("The largest reduction of a single peak, in dB.")
    note = string("Why the target was not reached; empty if it was.")


def has_audio(job: RenderJob) -> bool:
    return job.status in (RenderJob.Status.SUCCEEDED, RenderJob.Status.PARTIAL)


def export_of(job: RenderJob) -> Export | None:
    """Return the file of a job that was asked for, once it is made."""
    return job.exports.filter(format=job.format, status=Export.Status.DONE).first()


def made_export(
    job: RenderJob,
    noun: str = "job",
    open_code: str = "job_not_finished",
    missing_code: str = "job_without_audio",
    advice: str = "",
) -> Export:
    """Return the file of a job, of a book or of its sample.

    Raises:
        ApiProblem: 409 with `open_code` while the job goes on, 404 where it has ended without.
    """
    if job.status in UNFINISHED:
        sentence = f"The {noun} is not finished yet; ask again after `Retry-After` seconds{advice}."
        raise ApiProblem(409, open_code, sentence, retry_after=POLL_SECONDS)
    export = export_of(job) if has_audio(job) else None
    if export is None:
        raise without_file(job, noun, missing_code)
    return export


def file_name_of(job: RenderJob, name: str = "") -> str:
    return f"{name or f'speech-{str(job.pk)[:8]}'}.{BOOK_FORMATS[job.format].extension}"


def stored_export(export: Export, filename: str) -> StoredObject:
    content_type = BOOK_FORMATS[export.format].content_type
    return StoredObject(export.key, content_type, filename, etag=export.sha256, is_finished=True)


def progress_of(job: RenderJob) -> float:
    """Return how far a job is, 0 to 1; the last hundredth is the joining of its file.

    Of a job that failed or was cancelled it is the share that was spoken.
    """
    if has_audio(job):
        return 1.0
    closed = job.segments_done
    if job.status not in RenderJob.FINAL:
        closed += job.segments_failed
    return round(min(0.99, closed / max(1, job.segments_total)), 3)


def priority_field() -> ShownField:
    names = {value: name for name, value in PRIORITIES.items()}
    return ShownField(
        lambda row: names[RenderJob.Priority(row.priority)],
        serializers.ChoiceField(choices=list(PRIORITIES)),
    )


class JobVoiceSerializer(SharedFieldsMixin, serializers.ModelSerializer[JobVoice]):
    """A voice of the job; id and name are null for a clip that came with the job."""

    speaker = integer()
    role = string(
        "In a book: narrator, dialogue, chapter, a character or a language; otherwise empty."
    )
    id = identifier(null=True, source="version.voice.id", default=None)
    name = string(null=True, source="version.voice.name", default=None)
    version = integer(source="version.number")

    class Meta:
        model = JobVoice
        fields = ("speaker", "role", "id", "name", "version")
        read_only_fields = fields


class JobListSerializer(SharedFieldsMixin, LookUpMixin, serializers.ModelSerializer[RenderJob]):
    """A job and its progress."""

    kind = serializers.ChoiceField(choices=KINDS, read_only=True)
    text_start = string("The first 200 characters.")
    voices = JobVoiceSerializer(many=True)
    priority = priority_field()
    progress = ShownField(progress_of, serializers.FloatField(min_value=0, max_value=1))
    queue_position = ShownField(lambda job: job.queue_position, int | None)
    audio_url = ShownField(
        lambda job: reverse("job-audio", args=[job.pk]) if has_audio(job) else None, str | None
    )
    pauses = BookPausesField(help_text="The pauses that were requested, in ms.")
    lexicons = strings()
    deadline = moment(null=True, source="deadline_at")
    retention = RetentionField(source="retention_seconds", allow_null=True)
    webhook = string("Empty if there is none.", source="webhook_url")
    live = ShownField(
        lambda job: job.live_requested_at is not None,
        serializers.BooleanField(
            help_text="Return whether the job's audio can be heard while it is rendered."
        ),
    )
    real_time_factor = ShownField(real_time_factor, float | None)
    eta_seconds = ShownField(lambda job: job.eta_seconds, int | None)

    class Meta:
        model = RenderJob
        list_serializer_class = PageSerializer
        fields: tuple[str, ...] = (
            "id", "kind", "batch", "custom_id", "status", "progress", "queue_position",
            "eta_seconds", "real_time_factor", "segments_total", "segments_done",
            "segments_failed", "segments_cancelled", "takes_rendered", "takes_reused", "audio_url",
            "audio_seconds", "error_code", "error_message", "cancel_requested", "text_start",
            "voices", *(name for name, one in OPTIONS.items() if one.value != Value.ENTRIES),
            "created_at", "started_at", "finished_at", "expires_at", "updated_at",
        )  # fmt: skip
        read_only_fields = fields

    def look_up(self, rows: Sequence[Any]) -> None:
        """Find out where jobs stand in the queue, with a few queries for all of them."""
        queue = QueueState(rows)
        places, left = queue_positions(rows, queue), etas(rows, queue)
        for job in rows:
            job.queue_position, job.eta_seconds = places.get(job.pk), left.get(job.pk)


def describe_job(row: RenderJob) -> dict[str, Any]:
    """Return what a message says of a job: what lists show, but for what is said in it."""
    row.text_start = ""  # type: ignore[attr-defined]  # what the API's queries add
    shown = JobListSerializer(row).data.items()
    return {name: value for name, value in shown if name not in ("text", "text_start")}


def _report_of(job: RenderJob) -> dict[str, Any] | None:
    export = export_of(job) if has_audio(job) else None
    return export.report or None if export else None


class JobSerializer(JobListSerializer):
    """A job with its progress, its text and its own lexicon entries."""

    lexicon = EntrySerializer(many=True)
    file = ShownField(_report_of, FileReportSerializer(allow_null=True))

    class Meta(JobListSerializer.Meta):
        fields = (*JobListSerializer.Meta.fields, "file", "text", "lexicon")
        read_only_fields = fields


class SegmentSerializer(serializers.ModelSerializer[Segment]):
    """One segment of a job, and its result."""

    chapter = integer(source="chapter.index")
    frames = integer(null=True, source="take.frames", default=None)
    audio_seconds = number(null=True, source="take.audio_seconds", default=None)
    finish_reason = string(null=True, source="take.finish_reason", default=None)
    quality = ShownField(quality_of, QualitySerializer(allow_null=True))
    candidates = CandidateSerializer(many=True)
    history = integer(
        "How many earlier segments this one was rendered after; null before that, and in jobs "
        "without history.",
        null=True,
        source="history_used",
    )
    history_expected = ShownField(
        lambda segment: min(segment.job.history, segment.chain_place or 0),
        serializers.IntegerField(
            help_text="How many that would be if all of them were rendered and fitted."
        ),
    )
    followers = ShownField(
        lambda segment: segment.chain_left or 0,
        serializers.IntegerField(
            help_text="How many later segments, at most, are rendered again with this one."
        ),
    )

    class Meta:
        model = Segment
        fields = (
            "id", "index", "chapter", "text", "spoken_text", "speaker", "status", "seed",
            "attempts", "retakes", "quality", "candidates", "error_code", "error_message",
            "frames", "audio_seconds", "finish_reason", "pause_after_ms", "history",
            "history_expected", "followers", "finished_at",
        )  # fmt: skip
        read_only_fields = fields
