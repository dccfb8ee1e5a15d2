"""Serve the review list over REST: what needs somebody's ears, and that a take was found good."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from synth.api.fields import StrictNumberField
from synth.api.jobs.segment_views import TakeIdField
from synth.api.review.serializers import ReviewItemSerializer
from synth.models import ApiKey, Segment
from synth.review.approval import approve
from synth.review.listing import FLAGS, reviewable, to_review
from ttsweb.http.api import ApiProblem, StrictSerializer
from ttsweb.http.nouns import ListView, Noun, list_rows, read_body
from ttsweb.http.pagination import CreatedCursorPagination
from ttsweb.http.query_filters import id_filter, names_filter, truth_filter
from ttsweb.http.schema import problems

_MOST = 2**63


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
        if cursor is not None and cursor.position is not None and not _is_rank(cursor.position):
            sentence = (
                "This cursor does not belong to this list; use the URL in `next` or `previous`."
            )
            detail = [ErrorDetail(sentence, code="cursor_invalid")]
            raise ValidationError({self.cursor_query_param: detail})
        return cursor

    def get_paginated_response(self, data: Any) -> Response:
        """Return a page with the number of all that the filters let through."""
        answer = super().get_paginated_response(data)
        answer.data = {"left": self.left, **answer.data}
        return answer

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Describe a page."""
        found: dict[str, Any] = super().get_paginated_response_schema(schema)
        found["properties"] = {
            "left": {"type": "integer", "description": "The number of segments on all pages."},
            **found["properties"],
        }
        found["required"] = ["left", *found.get("required", [])]
        return found


def _is_rank(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20 and int(text) < _MOST


STATUSES = [Segment.Status.FAILED.value, Segment.Status.DONE.value]


def _is_flagged(names: list[str]) -> Q:
    """Return the condition for flags of the kept take."""
    found = Q()
    for name in names:
        found |= Q(kept_flags__contains=f'"{name}"')
    return found & Q(status=Segment.Status.DONE)


class ReviewFilterSerializer(serializers.Serializer[Any]):
    """The filters of the review list, as a condition on segments; `approved` is a flag."""

    book = id_filter("book", lambda book: Q(job__book=book) | Q(job__sampled_book=book))
    job = id_filter("job")
    flag = names_filter(list(FLAGS), "One or more flags, separated by commas.", _is_flagged)
    status = names_filter(STATUSES, "`failed`, `done` or both, separated by commas.")
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
_MOST_ID = 2**63 - 1


class ApproveSerializer(StrictSerializer):
    """The take that was listened to."""

    take = TakeIdField(help_text="The `take` that the segment has now; any other take is refused.")


class ApprovalSerializer(ApproveSerializer):
    """A segment, and the take of it that was listened to."""

    segment = StrictNumberField(low=1, high=_MOST_ID, whole=True)


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
        """Refuse a segment that comes twice: it keeps one take."""
        if len({one["segment"] for one in value}) < len(value):
            raise serializers.ValidationError(
                "A segment is listed twice; list each once.", code="repeated"
            )
        return value


class RefusedApprovalSerializer(serializers.Serializer[Any]):
    """A segment that was not approved, and the reason."""

    segment = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()


class ApprovedManySerializer(serializers.Serializer[Any]):
    """The result of approving several takes."""

    approved = serializers.ListField(child=serializers.IntegerField())
    refused = RefusedApprovalSerializer(many=True)


def _find(request: Request, segment_id: int) -> Segment:
    segment = reviewable(request.user).filter(pk=segment_id).first()
    if segment is None:
        raise ApiProblem(404, "segment_not_found", "No segment that you may see has this id.")
    return segment


REVIEWED = Noun("review-segment", ReviewItemSerializer, _find)


class ReviewView(ListView[Segment]):
    """What a person should listen to."""

    serializer_class = ReviewItemSerializer
    pagination_class = ReviewPagination
    filters = ReviewFilterSerializer

    def rows(self) -> QuerySet[Segment]:
        """Return the segments that need a review, or those that were approved."""
        wants_approved = self.request.query_params.get("approved") == "true"
        return to_review(self.request.user, approved=wants_approved)

    get = list_rows(
        "list_review",
        "List segments of all jobs that failed or may sound wrong, worst first.",
        ReviewItemSerializer,
        filters=ReviewFilterSerializer,
    )


class ReviewSegmentView(APIView):
    """One segment, as the review list has it."""

    get = REVIEWED.getter(
        "get_review_segment", "Return a segment, whether it is listed for review or not."
    )


class ReviewApproveView(APIView):
    """The approval of a take."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="approve_segment",
        request=ApproveSerializer,
        responses={200: ReviewItemSerializer, **problems(400, 401, 404, 409, 415)},
    )
    def post(self, request: Request, segment_id: int) -> Response:
        """Approve the take that was listened to; nothing is rendered, and no file is made again.

        A book that is `partial` for short takes alone has `succeeded` with the last of them. Sent
        twice, it changes nothing.
        """
        asked = read_body(request, ApproveSerializer)
        refused = approve(request.user, {segment_id: asked["take"]})
        for error in refused.values():
            raise error
        return REVIEWED.shown(request, segment_id)


class ReviewApproveManyView(APIView):
    """The approval of many takes."""

    write_scopes = (ApiKey.Scope.JOBS,)

    @extend_schema(
        operation_id="approve_segments",
        request=ApproveManySerializer,
        responses={200: ApprovedManySerializer, **problems(400, 401, 415)},
    )
    def post(self, request: Request) -> Response:
        """Approve up to 200 takes; those that are refused are listed with the reason."""
        asked = read_body(request, ApproveManySerializer)
        seen = {one["segment"]: one["take"] for one in asked["takes"]}
        refused = approve(request.user, seen)
        return Response(
            {
                "approved": [pk for pk in seen if pk not in refused],
                "refused": [
                    {"segment": pk, "code": error.code, "detail": str(error)}
                    for pk, error in refused.items()
                ],
            }
        )
