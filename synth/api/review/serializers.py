"""Write what is shown of a segment that is reviewed: its words, takes and neighbours."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q
from django.urls import reverse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from synth.api.jobs.serializers import CandidateSerializer
from synth.models import Segment
from synth.review.listing import FAILED, FLAGGED, REASONS, SHORT, books_of, sentence_of
from synth.transitions.takes import candidate_of

NEIGHBOURS = 2  # on each side, within the chapter
_SHORT_FLAG = {"name": "too_short", "sentence": "The take is too short for its text."}


class FlagSerializer(serializers.Serializer[Any]):
    """One flag of a take, and its meaning."""

    name = serializers.CharField()
    sentence = serializers.CharField()


class NeighbourSerializer(serializers.Serializer[Any]):
    """A segment before or after the reviewed one."""

    id = serializers.IntegerField()
    index = serializers.IntegerField()
    text = serializers.CharField()
    audio_url = serializers.CharField(allow_null=True, help_text="Null until it is rendered.")


class ReviewChapterSerializer(serializers.Serializer[Any]):
    """The chapter of a segment."""

    index = serializers.IntegerField()
    title = serializers.CharField()


class ReviewTakeSerializer(CandidateSerializer):
    """One take of a segment that can be chosen."""

    is_kept = serializers.BooleanField()
    heard = serializers.CharField(
        allow_null=True, help_text="The words that a transcriber heard; null if none is set up."
    )
    audio_url = serializers.CharField()


class ReviewPageSerializer(serializers.ListSerializer[Any]):
    """Segments of one page, whose books and neighbours are looked up together."""

    def to_representation(self, data: Any) -> list[Any]:
        """Return what is shown of each segment."""
        segments = list(data)
        page: Any = self.child
        page.look_up(segments)
        return super().to_representation(segments)


class ReviewItemSerializer(serializers.Serializer[Any]):
    """A segment with everything that a person needs to judge it."""

    id = serializers.IntegerField()
    job = serializers.UUIDField(source="job_id")
    book = serializers.SerializerMethodField()
    title = serializers.SerializerMethodField()
    chapter = ReviewChapterSerializer()
    index = serializers.IntegerField()
    text = serializers.CharField()
    spoken_text = serializers.CharField()
    speaker = serializers.IntegerField()
    status = serializers.ChoiceField(choices=Segment.Status.choices)
    reason = serializers.SerializerMethodField()
    score = serializers.SerializerMethodField()
    flags = serializers.SerializerMethodField()
    approved = serializers.BooleanField()
    error_code = serializers.CharField()
    error_message = serializers.CharField()
    take = serializers.UUIDField(source="take_id", allow_null=True)
    takes = serializers.SerializerMethodField()
    before = serializers.SerializerMethodField()
    after = serializers.SerializerMethodField()

    class Meta:
        list_serializer_class = ReviewPageSerializer

    def look_up(self, segments: Sequence[Segment]) -> None:
        """Find books and neighbours, with a query each for all of them."""
        self._books = books_of({segment.job_id for segment in segments})
        self._neighbours = _neighbours_of(segments)

    def to_representation(self, instance: Segment) -> dict[str, Any]:
        """Return what is shown of a segment; one that is shown alone is looked up here."""
        if self.parent is None:
            self.look_up([instance])
        return super().to_representation(instance)

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_book(self, segment: Segment) -> str | None:
        """Return the id of the book, null for a job that is none."""
        found = self._books.get(segment.job_id)
        return str(found[0]) if found else None

    @extend_schema_field(
        serializers.CharField(
            help_text="Title of the book, or else the first 80 characters of the job's text."
        )
    )
    def get_title(self, segment: Any) -> str:
        """Return what a person knows the job by."""
        found = self._books.get(segment.job_id)
        return found[1] if found else str(segment.job_title)

    @extend_schema_field(
        serializers.ChoiceField(
            choices=REASONS,
            allow_null=True,
            help_text="Why the segment is listed for review; null if it is not.",
        )
    )
    def get_reason(self, segment: Any) -> str | None:
        """Return why a segment needs somebody's ears."""
        return reason_of(segment)

    @extend_schema_field(
        serializers.FloatField(
            allow_null=True, help_text="0 for a failed segment; null if it was not checked."
        )
    )
    def get_score(self, segment: Any) -> float | None:
        """Return what the list is ordered by."""
        return 0.0 if segment.status == Segment.Status.FAILED else segment.kept_score

    @extend_schema_field(FlagSerializer(many=True))
    def get_flags(self, segment: Any) -> list[dict[str, str]]:
        """Return the flags of the kept take with their sentences."""
        kept = next((one for one in _takes_of(segment) if _is_kept(one, segment)), None)
        if kept is None:
            return []
        found = [
            {"name": name, "sentence": sentence_of(name, kept["measures"])}
            for name in kept["flags"]
        ]
        return found or ([_SHORT_FLAG] if segment.is_short else [])

    @extend_schema_field(ReviewTakeSerializer(many=True))
    def get_takes(self, segment: Segment) -> list[dict[str, Any]]:
        """Return the takes that can be kept, in the order in which they were made."""
        return [
            {
                **{name: one[name] for name in _TAKE_FIELDS},
                "is_kept": _is_kept(one, segment),
                "heard": one.get("heard"),
                "audio_url": f"{_audio_url(segment.job_id, segment.pk)}?take={one['take']}",
            }
            for one in _takes_of(segment)
        ]

    @extend_schema_field(NeighbourSerializer(many=True))
    def get_before(self, segment: Segment) -> list[dict[str, Any]]:
        """Return up to two segments before it in its chapter, in their order."""
        return self._beside(segment, range(segment.index - NEIGHBOURS, segment.index))

    @extend_schema_field(NeighbourSerializer(many=True))
    def get_after(self, segment: Segment) -> list[dict[str, Any]]:
        """Return up to two segments after it in its chapter, in their order."""
        return self._beside(segment, range(segment.index + 1, segment.index + NEIGHBOURS + 1))

    def _beside(self, segment: Segment, places: range) -> list[dict[str, Any]]:
        found = self._neighbours.get(segment.chapter_id, {})
        return [found[place] for place in places if place in found]


_TAKE_FIELDS = ("take", "seed", "seconds", "score", "flags", "measures")


def reason_of(segment: Any) -> str | None:
    """Return why a segment of the list's queryset needs somebody's ears; None where it does not."""
    if segment.status == Segment.Status.FAILED:
        return FAILED
    if segment.status != Segment.Status.DONE or segment.approved:
        return None
    if segment.kept_flags.startswith('["'):
        return FLAGGED
    return SHORT if segment.is_short else None


def _takes_of(segment: Segment) -> list[dict[str, Any]]:
    if segment.candidates or segment.take is None:
        return list(segment.candidates)
    return [candidate_of(segment.take, segment.seed)]


def _is_kept(take: dict[str, Any], segment: Segment) -> bool:
    return bool(take["take"] == str(segment.take_id))


def _audio_url(job_id: uuid.UUID, segment_id: int) -> str:
    return reverse("job-segment-audio", args=[job_id, segment_id])


def _neighbours_of(segments: Sequence[Segment]) -> dict[int, dict[int, dict[str, Any]]]:
    """Return what lies around segments, by chapter and place."""
    if not segments:
        return {}
    around = [
        Q(
            chapter=one.chapter_id,
            index__range=(max(0, one.index - NEIGHBOURS), one.index + NEIGHBOURS),
        )
        for one in segments
    ]
    rows = Segment.objects.filter(reduce(or_, around)).order_by("pk")
    found: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for pk, job_id, chapter_id, index, text, take_id in rows.values_list(
        "pk", "job_id", "chapter_id", "index", "text", "take_id"
    ):
        found[chapter_id][index] = {
            "id": pk,
            "index": index,
            "text": text,
            "audio_url": None if take_id is None else _audio_url(job_id, pk),
        }
    return found
