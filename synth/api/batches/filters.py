"""Read which batches, or which items of one, a list is to show."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from rest_framework import serializers

from synth.api.jobs.filters import MOMENT_HELP, JobFilterSerializer
from synth.models import RenderJob
from ttsweb.http.query_filters import MOMENT, DescribedField, read_choices, some_of


class BatchFilterSerializer(serializers.Serializer[Any]):
    """The filters of the list of batches, as a condition."""

    status = DescribedField(
        schema=some_of(RenderJob.Status.values),
        required=False,
        help_text="One or more statuses, separated by commas.",
    )
    created_after = DescribedField(schema=MOMENT, required=False, help_text=MOMENT_HELP)
    created_before = DescribedField(schema=MOMENT, required=False, help_text=MOMENT_HELP)

    def validate_status(self, value: str) -> Q:
        """Return the condition for statuses."""
        return Q(status__in=read_choices(value, RenderJob.Status.values))

    def validate_created_after(self, value: str) -> Q:
        """Return the condition for what came after a moment."""
        return JobFilterSerializer().validate_created_after(value)

    def validate_created_before(self, value: str) -> Q:
        """Return the condition for what came before a moment."""
        return JobFilterSerializer().validate_created_before(value)


class ItemFilterSerializer(serializers.Serializer[Any]):
    """The filters of a batch's items, as a condition."""

    status = DescribedField(
        schema=some_of(RenderJob.Status.values),
        required=False,
        help_text="One or more statuses, separated by commas.",
    )
    custom_id = serializers.CharField(
        required=False, trim_whitespace=False, help_text="The `custom_id` of one item."
    )

    def validate_status(self, value: str) -> Q:
        """Return the condition for statuses."""
        return Q(status__in=read_choices(value, RenderJob.Status.values))

    def validate_custom_id(self, value: str) -> Q:
        """Return the condition for a name."""
        return Q(custom_id=value)
