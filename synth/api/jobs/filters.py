"""Read which jobs a list is to show; a filter that cannot be read is an error, not ignored."""

from __future__ import annotations

import datetime as dt
import uuid
from contextlib import suppress
from typing import Any

from django.db.models import Q
from django.utils.dateparse import parse_datetime
from rest_framework import serializers

from synth.models import RenderJob
from ttsweb.http.query_filters import MOMENT, UUID, DescribedField, ids_of, read_choices, some_of

MAX_IDS = 200
KINDS = ("speech", "batch", "book")  # messages tell of a batch of texts as of a job
MOMENT_HELP = "A time with its zone, such as 2026-01-31T12:00:00Z."


class JobFilterSerializer(serializers.Serializer[Any]):
    """The filters of the job list, as a condition on jobs."""

    status = DescribedField(
        schema=some_of(RenderJob.Status.values),
        required=False,
        help_text="One or more statuses, separated by commas.",
    )
    voice = serializers.CharField(required=False, help_text="Id or name of a voice.")
    ids = DescribedField(
        schema=ids_of(MAX_IDS), required=False, help_text="Up to 200 ids, separated by commas."
    )
    kind = DescribedField(
        schema=some_of(KINDS),
        required=False,
        help_text="One or more priorities, separated by commas.",
    )
    batch = DescribedField(
        schema=UUID,
        required=False,
        help_text="Id of a batch; if left out, items of batches are not listed.",
    )
    created_after = DescribedField(schema=MOMENT, required=False, help_text=MOMENT_HELP)
    created_before = DescribedField(schema=MOMENT, required=False, help_text=MOMENT_HELP)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Leave items of batches out, unless a batch or ids are asked for."""
        if attrs.keys().isdisjoint(("batch", "ids")):
            attrs["batch"] = Q(batch__isnull=True)
        return attrs

    def validate_status(self, value: str) -> Q:
        """Return the condition for statuses."""
        return Q(status__in=read_choices(value, RenderJob.Status.values))

    def validate_kind(self, value: str) -> Q:
        """Return the condition for kinds."""
        return Q(kind__in=read_choices(value, list(KINDS)))

    def validate_voice(self, value: str) -> Q:
        """Return the condition for a voice, which may be deleted by now."""
        try:
            return Q(voices__version__voice=uuid.UUID(value))
        except ValueError:
            return Q(voices__version__voice__name__iexact=value)

    def validate_ids(self, value: str) -> Q:
        """Return the condition for ids."""
        texts = value.split(",")
        if len(texts) > MAX_IDS:
            raise serializers.ValidationError(f"At most {MAX_IDS} ids are allowed.")
        try:
            return Q(pk__in=[uuid.UUID(text.strip()) for text in texts])
        except ValueError as error:
            raise serializers.ValidationError(
                "Expected ids of jobs, separated by commas."
            ) from error

    def validate_batch(self, value: str) -> Q:
        """Return the condition for the items of a batch."""
        try:
            return Q(batch=uuid.UUID(value))
        except ValueError as error:
            raise serializers.ValidationError("Expected the id of a batch.") from error

    def validate_created_after(self, value: str) -> Q:
        """Return the condition for what came after a moment."""
        return Q(created_at__gt=_read_moment(value))

    def validate_created_before(self, value: str) -> Q:
        """Return the condition for what came before a moment."""
        return Q(created_at__lt=_read_moment(value))


def _read_moment(value: str) -> dt.datetime:
    """Return a moment; one without a zone could mean several."""
    moment: dt.datetime | None = None
    with suppress(ValueError):
        # A plus sign in a query is a blank unless it was escaped.
        moment = parse_datetime(value.replace(" ", "+") if value.count(" ") == 1 else value)
    if moment is None or moment.tzinfo is None:
        raise serializers.ValidationError(
            "Expected a time with its zone, such as 2026-01-31T12:00:00Z."
        )
    with suppress(OverflowError):  # of the year 1 or 9999, whose UTC would lie outside of them
        return moment.astimezone(dt.UTC)
    raise serializers.ValidationError("Expected a time with a year from 2 to 9998.")
