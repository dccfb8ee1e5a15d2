"""Read which entries of a batch of books a list is to show."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from rest_framework import serializers

from synth.book_batches.states import STATES
from ttsweb.http.query_filters import DescribedField, read_choices, some_of


class EntryFilterSerializer(serializers.Serializer[Any]):
    """The filters of a batch's entries, as a condition."""

    state = DescribedField(
        schema=some_of(STATES), required=False, help_text="One or more states, separated by commas."
    )

    def validate_state(self, value: str) -> Q:
        """Return the condition for states."""
        return Q(state__in=read_choices(value, list(STATES)))
