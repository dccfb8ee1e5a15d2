"""Read which segments the review list is to show; a filter that cannot be read is an error."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Q
from rest_framework import serializers

from synth.models import Segment
from synth.review.flags import FLAGS
from ttsweb.http.query_filters import UUID, DescribedField, read_choices, some_of

STATUSES = [Segment.Status.FAILED.value, Segment.Status.DONE.value]


class ReviewFilterSerializer(serializers.Serializer[Any]):
    """The filters of the review list, as a condition on segments; `approved` is a flag."""

    book = DescribedField(schema=UUID, required=False, help_text="Id of a book.")
    job = DescribedField(schema=UUID, required=False, help_text="Id of a job.")
    flag = DescribedField(
        schema=some_of(list(FLAGS)),
        required=False,
        help_text="One or more flags, separated by commas.",
    )
    status = DescribedField(
        schema=some_of(STATUSES),
        required=False,
        help_text="`failed`, `done` or both, separated by commas.",
    )
    heard = DescribedField(
        schema={"type": "string", "enum": ["true", "false"]},
        required=False,
        help_text=(
            "`true`: only segments with a take that can be heard; `false`: only segments "
            "without one."
        ),
    )
    approved = DescribedField(
        schema={"type": "string", "enum": ["true", "false"]},
        required=False,
        help_text="`true`: list approved and chosen takes instead of those that need a review.",
    )

    def validate_book(self, value: str) -> Q:
        """Return the condition for a book: its job, and that of its sample."""
        book = _read_id(value, "book")
        return Q(job__book=book) | Q(job__sampled_book=book)

    def validate_job(self, value: str) -> Q:
        """Return the condition for a job."""
        return Q(job=_read_id(value, "job"))

    def validate_flag(self, value: str) -> Q:
        """Return the condition for flags of the kept take."""
        found = Q()
        for name in read_choices(value, list(FLAGS)):
            found |= Q(kept_flags__contains=f'"{name}"')
        return found & Q(status=Segment.Status.DONE)

    def validate_status(self, value: str) -> Q:
        """Return the condition for statuses."""
        return Q(status__in=read_choices(value, STATUSES))

    def validate_heard(self, value: str) -> Q:
        """Return the condition for segments that can be listened to."""
        if value not in ("true", "false"):
            raise serializers.ValidationError("Expected true or false.")
        return Q(take__isnull=value == "false")

    def validate_approved(self, value: str) -> Q:
        """Return no condition: the list is another one; see `wants_approved`."""
        if value not in ("true", "false"):
            raise serializers.ValidationError("Expected true or false.")
        return Q()


def _read_id(value: str, noun: str) -> uuid.UUID:
    try:
        return uuid.UUID(value)
    except ValueError as error:
        raise serializers.ValidationError(f"Expected the id of a {noun}.") from error
