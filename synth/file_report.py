"""Show what was measured of a job's file."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from synth.models import Export, RenderJob


class FileReportSerializer(serializers.Serializer[Any]):
    """What was measured of a file after it was written, and what was done to make it so."""

    seconds = serializers.FloatField()
    sample_rate = serializers.IntegerField(help_text="Hz.")
    channels = serializers.IntegerField()
    bit_rate = serializers.IntegerField(
        allow_null=True, help_text="Bits per second, the mean over the file."
    )
    loudness_lufs = serializers.FloatField(
        allow_null=True,
        help_text="Integrated, by ITU-R BS.1770-4; null for silence and below 0.4 s.",
    )
    true_peak_dbtp = serializers.FloatField()
    target_lufs = serializers.FloatField(allow_null=True, help_text="What the job asked for.")
    target_reached = serializers.BooleanField(
        allow_null=True, help_text="Whether the file is within 0.5 LU of it."
    )
    gain_db = serializers.FloatField(help_text="One for the whole file.")
    limiter_db = serializers.FloatField(help_text="The most that a single peak was turned down.")
    note = serializers.CharField(help_text="Why the target was not reached; else empty.")


def report_of(job: RenderJob) -> dict[str, Any] | None:
    """Return what was measured of a job's file; None where that was not kept."""
    rows = job.exports.filter(format=job.format, status=Export.Status.DONE)
    report = rows.values_list("report", flat=True).first()
    return dict(report) if report else None
