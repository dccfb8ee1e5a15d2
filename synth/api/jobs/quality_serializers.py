"""Write what the quality screen found of a segment's takes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from synth.models import Segment


class CheckSerializer(serializers.Serializer[Any]):
    """One value that was measured in a take, and its limit."""

    name = serializers.CharField(help_text="The code of the flag that it sets.")
    value = serializers.FloatField()
    limit = serializers.FloatField()


class QualitySerializer(serializers.Serializer[Any]):
    """The result of a take's quality check."""

    score = serializers.FloatField(
        allow_null=True,
        help_text="1 is the best, 0 the worst; null if the quality check was off.",
    )
    flags = serializers.ListField(
        child=serializers.CharField(),
        help_text="Codes of the problems that were found; empty if none.",
    )
    measures = CheckSerializer(many=True)


class CandidateSerializer(QualitySerializer):
    """One of several takes of a segment, and the result of its quality check."""

    take = serializers.UUIDField()
    seed = serializers.IntegerField()
    seconds = serializers.FloatField()


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
