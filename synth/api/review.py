"""Serve the review list over REST: what needs somebody's ears, and that a take was found good."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Q, QuerySet
from django.urls import reverse
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth import review
from synth.api.fields import StrictNumberField, boolean, identifier, integer, integers, string
from synth.api.jobs.segment_views import TakeIdField
from synth.api.jobs.serializers import CandidateSerializer
from synth.models import ApiKey, Segment
from synth.transitions.takes import with_candidate
from ttsweb.http.api import StrictSerializer
from ttsweb.http.fields import LookUpMixin, PageSerializer, ShownField
from ttsweb.http.nouns import ListView, Noun, get_row, operation, read_body
from ttsweb.http.pagination import CreatedCursorPagination
from ttsweb.http.query_filters import id_filter, names_filter, truth_filter

NEIGHBOURS = 2  # on each side, within the chapter
_SHORT_FLAG = {"name": "too_short", "sentence": "The take is too short for its text."}


class FlagSerializer(serializers.Serializer[Any]):
    """One flag of a take, and its meaning."""

    name = string()
    sentence = string()


class NeighbourSerializer(serializers.Serializer[Any]):
    """A segment before or after the reviewed one."""

    id = integer()
    index = integer()
    text = string()
    audio_url = string("Null until it is rendered.", null=True)


class ReviewChapterSerializer(serializers.Serializer[Any]):
    """The chapter of a segment."""

    index = integer()
    title = string()


class ReviewTakeSerializer(CandidateSerializer):
    """One take of a segment that can be chosen."""

    is_kept = boolean()
    heard = string("The words that a transcriber heard; null if none is set up.", null=True)
    audio_url = string()


_TAKE_FIELDS = ("take", "seed", "seconds", "score", "flags", "measures")


def reason_of(segment: Any) -> str | None:
    """Return why a segment of the list's queryset needs somebody's ears; None where it does not."""
    if segment.status == Segment.Status.FAILED:
        return review.FAILED
    if segment.status != Segment.Status.DONE or segment.approved:
        return None
    if segment.kept_flags.startswith('["'):
        return review.FLAGGED
    return review.SHORT if segment.is_short else None


def _takes_of(segment: Segment) -> list[dict[str, Any]]:
    if segment.candidates or segment.take is None:
        return list(segment.candidates)
    return with_candidate([], segment.take, segment.seed)


def _is_kept(take: dict[str, Any], segment: Segment) -> bool:
    return bool(take["take"] == str(segment.take_id))


def _audio_url(job_id: uuid.UUID, segment_id: int) -> str:
    return reverse("job-segment-audio", args=[job_id, segment_id])


def _shown_takes(segment: Segment) -> list[dict[str, Any]]:
    return [
        {
            **{name: one[name] for name in _TAKE_FIELDS},
            "is_kept": _is_kept(one, segment),
            "heard": one.get("heard"),
            "audio_url": f"{_audio_url(segment.job_id, segment.pk)}?take={one['take']}",
        }
        for one in _takes_of(segment)
    ]


def _flags_of(segment: Any) -> list[dict[str, str]]:
    kept = next((one for one in _takes_of(segment) if _is_kept(one, segment)), None)
    if kept is None:
        return []
    found = [
        {"name": name, "sentence": review.sentence_of(name, kept["measures"])}
        for name in kept["flags"]
    ]
    return found or ([_SHORT_FLAG] if segment.is_short else [])


class ReviewItemSerializer(LookUpMixin, serializers.Serializer[Any]):
    """A segment with everything that a person needs to judge it."""

    id = integer()
    job = identifier(source="job_id")
    book = ShownField(
        lambda segment: segment.book and segment.book[0], serializers.UUIDField(allow_null=True)
    )
    title = ShownField(
        lambda segment: segment.book[1] if segment.book else str(segment.job_title),
        help_text="Title of the book, or else the first 80 characters of the job's text.",
    )
    chapter = ReviewChapterSerializer()
    index = integer()
    text = string()
    spoken_text = string()
    speaker = integer()
    status = serializers.ChoiceField(choices=Segment.Status.choices)
    reason = ShownField(
        reason_of,
        serializers.ChoiceField(
            choices=review.REASONS,
            allow_null=True,
            help_text="Why the segment is listed for review; null if it is not.",
        ),
    )
    score = ShownField(
        lambda segment: 0.0 if segment.status == Segment.Status.FAILED else segment.kept_score,
        serializers.FloatField(
            allow_null=True, help_text="0 for a failed segment; null if it was not checked."
        ),
    )
    flags = ShownField(_flags_of, FlagSerializer(many=True))
    approved = boolean()
    error_code = string()
    error_message = string()
    take = identifier(null=True, source="take_id")
    takes = ShownField(_shown_takes, ReviewTakeSerializer(many=True))
    before = ShownField(lambda segment: segment.before, NeighbourSerializer(many=True))
    after = ShownField(lambda segment: segment.after, NeighbourSerializer(many=True))

    class Meta:
        list_serializer_class = PageSerializer

    def look_up(self, rows: Sequence[Any]) -> None:
        """Find books and up to two neighbours on each side, with a query each for all of them."""
        books = review.books_of({segment.job_id for segment in rows})
        neighbours = _neighbours_of(rows)
        for segment in rows:
            place, around = segment.index, neighbours.get(segment.chapter_id, {})
            segment.book = books.get(segment.job_id)
            segment.before = [
                around[one] for one in range(place - NEIGHBOURS, place) if one in around
            ]
            segment.after = [
                around[one] for one in range(place + 1, place + NEIGHBOURS + 1) if one in around
            ]


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


class ReviewPagination(CreatedCursorPagination):
    """Worst first; `?limit=` from 1 to 100. Each page says how many there are in all."""

    ordering = ("rank", "id")
    page_size = 25
    max_page_size = 100
    left = 0

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        """Return a page's rows; what else is told of them is read for these alone."""
        self.left = queryset.order_by().count()
        ranks = queryset.values("rank", "id")
        page: list[Any] = super().paginate_queryset(ranks, request, view) or []
        rows = queryset.order_by().in_bulk([one["id"] for one in page]) if page else {}
        return [rows[one["id"]] for one in page if one["id"] in rows]

    def decode_cursor(self, request: Request) -> Any:
        """Return where a page begins, None for the first one.

        Raises:
            ValidationError: 400 cursor_invalid.
        """
        cursor = super().decode_cursor(request)
        if cursor and cursor.position is not None and not _is_rank(cursor.position):
            raise self.cursor_invalid()
        return cursor

    def get_paginated_response(self, data: Any) -> Response:
        answer = super().get_paginated_response(data)
        answer.data = {"left": self.left, **answer.data}
        return answer

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = super().get_paginated_response_schema(schema)
        found["properties"] = {
            "left": {"type": "integer", "description": "The number of segments on all pages."},
            **found["properties"],
        }
        found["required"] = ["left", *found.get("required", [])]
        return found


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= review.MOST_ID


def _is_flagged(names: list[str]) -> Q:
    found = reduce(or_, (Q(kept_flags__contains=f'"{name}"') for name in names))
    return found & Q(status=Segment.Status.DONE)


class ReviewFilterSerializer(serializers.Serializer[Any]):
    """The filters of the review list, as a condition on segments; `approved` is a flag."""

    book = id_filter("book", lambda book: Q(job__book=book) | Q(job__sampled_book=book))
    job = id_filter("job")
    flag = names_filter(list(review.FLAGS), "One or more flags, separated by commas.", _is_flagged)
    status = names_filter(("failed", "done"), "`failed`, `done` or both, separated by commas.")
    heard = truth_filter(
        "`true`: only segments with a take that can be heard; `false`: only segments without one.",
        lambda is_heard: Q(take__isnull=not is_heard),
        is_text=True,
    )
    approved = truth_filter(
        "`true`: list approved and chosen takes instead of those that need a review.",
        lambda _: Q(),  # the list is another one; the view takes it
        is_text=True,
    )


MAX_APPROVALS = 200


class ApproveSerializer(StrictSerializer):
    """The take that was listened to."""

    take = TakeIdField(help_text="The `take` that the segment has now; any other take is refused.")


class ApprovalSerializer(ApproveSerializer):
    """A segment, and the take of it that was listened to."""

    segment = StrictNumberField(1, review.MOST_ID, whole=True)


class ApprovalsField(serializers.ListField):
    """Take a list of which no two entries are equal."""

    unique_items = True  # for the API's description


class ApproveManySerializer(StrictSerializer):
    """Takes that were listened to."""

    takes = ApprovalsField(
        child=ApprovalSerializer(),
        allow_empty=False,
        max_length=MAX_APPROVALS,
        help_text="Up to 200 takes.",
    )

    def validate_takes(self, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if len({one["segment"] for one in value}) < len(value):
            sentence = "A segment is listed twice; list each once."
            raise serializers.ValidationError(sentence, code="repeated")
        return value


class RefusedApprovalSerializer(serializers.Serializer[Any]):
    """A segment that was not approved, and the reason."""

    segment = integer()
    code = string()
    detail = string()


class ApprovedManySerializer(serializers.Serializer[Any]):
    """The result of approving several takes."""

    approved = integers()
    refused = RefusedApprovalSerializer(many=True)


def _find(request: Request, segment_id: int) -> Segment:
    missing = "No segment that you may see has this id."
    return get_row(review.reviewable(request.user), "segment_not_found", missing, pk=segment_id)


REVIEWED = Noun("review-segment", ReviewItemSerializer, _find)


class ReviewView(ListView[Segment]):
    lists = (
        "list_review",
        "List segments of all jobs that failed or may sound wrong, worst first.",
    )
    serializer_class = ReviewItemSerializer
    pagination_class = ReviewPagination
    filters = ReviewFilterSerializer

    def rows(self) -> QuerySet[Segment]:
        """Return the segments that need a review, or those that were approved."""
        wants_approved = self.request.query_params.get("approved") == "true"
        return review.to_review(self.request.user, approved=wants_approved)


class ReviewSegmentView(APIView):
    get = REVIEWED.getter(
        "get_review_segment", "Return a segment, whether it is listed for review or not."
    )


class ReviewApproveView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation("approve_segment", ReviewItemSerializer, 404, 409, 415, request=ApproveSerializer)
    def post(self, request: Request, segment_id: int) -> Response:
        """Approve the take that was listened to; nothing is rendered, and no file is made again.

        A book that is `partial` for short takes alone has `succeeded` with the last of them. Sent
        twice, it changes nothing.
        """
        asked = read_body(request, ApproveSerializer)
        refused = review.approve(request.user, {segment_id: asked["take"]})
        for error in refused.values():
            raise error
        return REVIEWED.shown(request, segment_id)


class ReviewApproveManyView(APIView):
    write_scopes = (ApiKey.Scope.JOBS,)

    @operation("approve_segments", ApprovedManySerializer, 415, request=ApproveManySerializer)
    def post(self, request: Request) -> Response:
        """Approve up to 200 takes; those that are refused are listed with the reason."""
        asked = read_body(request, ApproveManySerializer)
        seen = {one["segment"]: one["take"] for one in asked["takes"]}
        refused = review.approve(request.user, seen)
        errors = [
            {"segment": pk, "code": error.code, "detail": str(error)}
            for pk, error in refused.items()
        ]
        approved = [pk for pk in seen if pk not in refused]
        return Response({"approved": approved, "refused": errors})
