"""Read which books a list is to show; a filter that cannot be read is an error, not ignored."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

from django.db.models import Q
from rest_framework import serializers

from synth.api.books.serializers import PAUSED, STATUSES
from synth.models import BookSource, RenderJob
from synth.transitions import UNFINISHED
from ttsweb.http.query_filters import UUID, DescribedField, ids_of, read_choices, some_of

MAX_IDS = 200


class BookFilterSerializer(serializers.Serializer[Any]):
    """The filters of the list of books, as a condition on books."""

    status = DescribedField(
        schema=some_of(STATUSES),
        required=False,
        help_text="One or more states, separated by commas.",
    )
    ids = DescribedField(
        schema=ids_of(MAX_IDS), required=False, help_text="Up to 200 ids, separated by commas."
    )
    batch = DescribedField(schema=UUID, required=False, help_text="Id of a batch of books.")

    def validate_status(self, value: str) -> Q:
        """Return the condition for statuses."""
        return status_condition(read_choices(value, list(STATUSES)))

    def validate_ids(self, value: str) -> Q:
        """Return the condition for ids."""
        texts = value.split(",")
        if len(texts) > MAX_IDS:
            raise serializers.ValidationError(f"At most {MAX_IDS} ids are allowed.")
        try:
            return Q(pk__in=[uuid.UUID(text.strip()) for text in texts])
        except ValueError as error:
            raise serializers.ValidationError(
                "Expected ids of books, separated by commas."
            ) from error

    def validate_batch(self, value: str) -> Q:
        """Return the condition for the books of a batch."""
        try:
            return Q(batch_entry__batch=uuid.UUID(value))
        except ValueError as error:
            raise serializers.ValidationError("Expected the id of a batch of books.") from error


def status_condition(names: Iterable[str]) -> Q:
    """Return the condition for books that are in one of these states, as answers call them."""
    found = Q(pk__in=())
    for name in names:
        found |= _condition(name)
    return found


def _condition(name: str) -> Q:
    of_job = Q(job__status=name, job__paused_at__isnull=True)
    if name == PAUSED:
        return Q(job__paused_at__isnull=False, job__status__in=UNFINISHED)
    if name in UNFINISHED:
        return of_job
    if name in RenderJob.Status.values:
        of_job = Q(job__status=name)  # one that ended is no longer paused, whatever its row says
    if name in BookSource.State.values:
        of_import = Q(job__isnull=True, state=name)
        return of_import | of_job if name in RenderJob.Status.values else of_import
    return of_job
