"""Read which books a list is to show; a filter that cannot be read is an error, not ignored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Q
from rest_framework import serializers

from synth.api.books.serializers import PAUSED, STATUSES
from synth.models import BookSource, RenderJob
from synth.transitions import UNFINISHED
from ttsweb.http.query_filters import id_filter, ids_filter, names_filter

MAX_IDS = 200


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


class BookFilterSerializer(serializers.Serializer[Any]):
    """The filters of the list of books, as a condition on books."""

    status = names_filter(STATUSES, "One or more states, separated by commas.", status_condition)
    ids = ids_filter("books", MAX_IDS)
    batch = id_filter("batch of books", lambda batch: Q(batch_entry__batch=batch))
