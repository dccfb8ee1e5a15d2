"""Say in which state each entry of a book batch is, as the database sees it."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Any

from django.db.models import Case, CharField, Count, F, Q, QuerySet, Value, When

from synth.models import Batch, BatchEntry, BookSource, RenderJob
from synth.transitions.jobs import UNFINISHED

MISSING = "missing"  # its file was not uploaded yet
IMPORTING = "importing"
WAITING = "waiting"  # planned; its sample or the rest of it begins when its turn comes
SAMPLING = "sampling"
SAMPLED = "sampled"  # its sample is to be approved
PAUSED = "paused"
DELETED = "deleted"  # its job was deleted once it had been started
QUEUED, RUNNING, SUCCEEDED, PARTIAL, FAILED, CANCELLED = map(str, RenderJob.Status.values)
OPEN = (IMPORTING, WAITING, SAMPLING, SAMPLED, QUEUED, RUNNING, PAUSED)
ENDED_STATES = (SUCCEEDED, PARTIAL, FAILED, CANCELLED, DELETED)
STATES = (MISSING, *OPEN, *ENDED_STATES)

_SAMPLED = Q(book__started__has_key="sample")


def with_state(entries: QuerySet[BatchEntry]) -> QuerySet[Any]:
    """Add `state`, one of STATES, to entries: no type says so."""
    return entries.annotate(
        state=Case(
            When(book__isnull=True, then=Value(MISSING)),
            When(
                book__job__paused_at__isnull=False,
                book__job__status__in=UNFINISHED,
                then=Value(PAUSED),
            ),
            When(book__job__isnull=False, then=F("book__job__status")),
            When(book__started__has_key="chapters", then=Value(DELETED)),
            When(book__state=BookSource.State.FAILED, then=Value(FAILED)),
            When(batch__cancelled_at__isnull=False, then=Value(CANCELLED)),
            When(book__state=BookSource.State.IMPORTING, then=Value(IMPORTING)),
            When(~Q(book__error_code=""), then=Value(FAILED)),
            When(book__sample_job__status__in=UNFINISHED, then=Value(SAMPLING)),
            When(
                _SAMPLED,
                batch__sample=Batch.Sample.HOLD,
                batch__approved_at__isnull=True,
                book__start_wanted=False,
                then=Value(SAMPLED),
            ),
            default=Value(WAITING),
            output_field=CharField(),
        )
    )


def count_states(batch_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, dict[str, int]]:
    """Return how many entries of each batch are in each state, by one query."""
    found = {batch_id: dict.fromkeys(STATES, 0) for batch_id in batch_ids}
    rows = with_state(BatchEntry.objects.filter(batch__in=list(batch_ids))).order_by()
    for batch_id, state, count in rows.values_list("batch", "state").annotate(Count("pk")):
        found[batch_id][state] = count
    return found


def to_sample(batch: Batch) -> QuerySet[Any]:
    """Return the entries of a batch whose samples are still to be begun, in their order."""
    if batch.sample == Batch.Sample.NONE:
        return BatchEntry.objects.none()
    return _planned(batch).exclude(_SAMPLED).filter(book__start_wanted=False)


def to_start(batch: Batch) -> QuerySet[Any]:
    """Return the entries of a batch that may be started as a whole, in their order."""
    ready = _planned(batch)
    if batch.sample == Batch.Sample.NONE:
        return ready
    if batch.sample == Batch.Sample.HOLD and batch.approved_at is None:
        return ready.filter(book__start_wanted=True)
    ready = ready.filter(_SAMPLED | Q(book__start_wanted=True))
    if batch.sample == Batch.Sample.FIRST:
        counts = count_states([batch.pk])[batch.pk]
        coming = counts[IMPORTING] + counts[SAMPLING]
        if batch.closed_at is None:
            coming += counts[MISSING]
        if coming or to_sample(batch).exists():
            return ready.filter(book__start_wanted=True)
    return ready


def number_at_work(batch: Batch) -> int:
    """Return how many jobs of a batch are unfinished, samples too; paused ones do not count."""
    unfinished = RenderJob.objects.filter(status__in=UNFINISHED, paused_at__isnull=True)
    whole = unfinished.filter(book__batch_entry__batch=batch).count()
    return whole + unfinished.filter(sampled_book__batch_entry__batch=batch).count()


def jobs_of(batch_id: uuid.UUID) -> QuerySet[RenderJob]:
    """Return all jobs of a batch: those of its books, and of their samples."""
    entries = BatchEntry.objects.filter(batch=batch_id)
    wholes = entries.exclude(book__job=None).values("book__job")
    samples = entries.exclude(book__sample_job=None).values("book__sample_job")
    return RenderJob.objects.filter(Q(pk__in=wholes) | Q(pk__in=samples))


def _planned(batch: Batch) -> QuerySet[Any]:
    entries = with_state(BatchEntry.objects.filter(batch=batch)).order_by("index")
    return entries.filter(state__in=(WAITING, SAMPLED)).select_related(
        "book__owner", "book__api_key"
    )


def label_of(batch: Batch, counts: dict[str, int]) -> str:
    """Return the status of a batch as a whole."""
    if batch.ended_at is not None:
        return CANCELLED if batch.cancelled_at is not None else "ended"
    if batch.cancelled_at is not None:
        return "cancelling"
    if batch.paused_at is not None:
        return PAUSED
    if counts[SAMPLED] and not any(counts[s] for s in (IMPORTING, SAMPLING, QUEUED, RUNNING)):
        return "to_approve"
    if not sum(counts[state] for state in OPEN):
        return "open"
    return RUNNING


LABELS = ("open", RUNNING, PAUSED, "to_approve", "cancelling", CANCELLED, "ended")
