"""Show what was measured of a job's file."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from synth.models import Export, RenderJob


class FileReportSerializer(serializers.Serializer[Any]):
    """The values measured in a finished file, and how its loudness was changed."""

    seconds = serializers.FloatField()
    sample_rate = serializers.IntegerField(help_text="Sample rate in Hz.")
    channels = serializers.IntegerField()
    bit_rate = serializers.IntegerField(
        allow_null=True, help_text="Bits per second, averaged over the file."
    )
    loudness_lufs = serializers.FloatField(
        allow_null=True,
        help_text=(
            "Integrated loudness in LUFS by ITU-R BS.1770-4; null for silence and for files "
            "shorter than 0.4 s."
        ),
    )
    true_peak_dbtp = serializers.FloatField()
    target_lufs = serializers.FloatField(
        allow_null=True, help_text="The loudness in LUFS that the job asked for."
    )
    target_reached = serializers.BooleanField(
        allow_null=True, help_text="Whether the file is within 0.5 LU of the target."
    )
    gain_db = serializers.FloatField(help_text="The gain in dB, one for the whole file.")
    limiter_db = serializers.FloatField(help_text="The largest reduction of a single peak, in dB.")
    note = serializers.CharField(help_text="Why the target was not reached; empty if it was.")


def report_of(job: RenderJob) -> dict[str, Any] | None:
    """Return what was measured of a job's file; None where that was not kept."""
    rows = job.exports.filter(format=job.format, status=Export.Status.DONE)
    report = rows.values_list("report", flat=True).first()
    return dict(report) if report else None
