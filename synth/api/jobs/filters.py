"""Read which jobs a list is to show; a filter that cannot be read is an error, not ignored."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Q
from rest_framework import serializers

from synth.models import RenderJob
from ttsweb.http.query_filters import id_filter, ids_filter, moment_filter, names_filter

MAX_IDS = 200
KINDS = ("speech", "batch", "book")  # messages tell of a batch of texts as of a job
STATUSES = "One or more statuses, separated by commas."


class JobFilterSerializer(serializers.Serializer[Any]):
    """The filters of the job list, as a condition on jobs."""

    status = names_filter(RenderJob.Status.values, STATUSES)
    voice = serializers.CharField(required=False, help_text="Id or name of a voice.")
    ids = ids_filter("jobs", MAX_IDS)
    kind = names_filter(KINDS, "One or more kinds, separated by commas.")
    batch = id_filter(
        "batch", help_text="Id of a batch; if left out, items of batches are not listed."
    )
    created_after = moment_filter("created_at__gt")
    created_before = moment_filter("created_at__lt")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Leave items of batches out, unless a batch or ids are asked for."""
        if attrs.keys().isdisjoint(("batch", "ids")):
            attrs["batch"] = Q(batch__isnull=True)
        return attrs

    def validate_voice(self, value: str) -> Q:
        """Return the condition for a voice, which may be deleted by now."""
        try:
            return Q(voices__version__voice=uuid.UUID(value))
        except ValueError:
            return Q(voices__version__voice__name__iexact=value)
