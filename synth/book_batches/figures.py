"""Count how far batches of books are, by a few queries for a page of them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Count, F, FloatField, Max, Min, Q, Sum
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, NullIf

from synth.book_batches.states import (
    CANCELLED,
    DELETED,
    FAILED,
    SAMPLED,
    SAMPLING,
    STATES,
    WAITING,
    count_states,
    with_state,
)
from synth.jobs.eta import chars_left, eta_of_chars
from synth.jobs.lanes import lane_of
from synth.models import PRIORITIES, BookBatch, BookBatchEntry, BookFile, Export, RenderJob, Segment
from synth.transitions.jobs import UNFINISHED

_NOT_STARTED = (WAITING, SAMPLING, SAMPLED)
_CHARS = Coalesce(Cast(KeyTextTransform("spoken_chars", "book__figures"), FloatField()), 0.0)
_CLOSED = F("book__job__segments_done") + F("book__job__segments_failed") + F(
    "book__job__segments_cancelled"
)  # fmt: skip
_SHARE = Cast(_CLOSED, FloatField()) / NullIf(F("book__job__segments_total"), 0)


@dataclass
class BatchFigures:
    """Hold how far a batch is; counts of segments and takes are those of its books' jobs.

    `takes_rendered` has those of samples as well: the books use them again.
    """

    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    share: float = 0.0
    segments_total: int = 0
    segments_done: int = 0
    segments_failed: int = 0
    takes_rendered: int = 0
    takes_reused: int = 0
    audio_seconds: float = 0.0
    expected_seconds: float = 0.0
    real_time_factor: float | None = None
    eta_seconds: int | None = None
    uploads: int = 0
    exports: int = 0
    files: int = 0


def share_figures(ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, BatchFigures]:
    """Return states, counts of segments and share of batches, by two queries; the rest is unset."""
    states = count_states(ids)
    found = {batch_id: BatchFigures(states=states[batch_id]) for batch_id in ids}
    if found:
        _count(ids, found)
    return found


def with_figures(batches: Sequence[BookBatch]) -> list[BookBatch]:
    """Set `figures` on batches."""
    states = count_states([batch.pk for batch in batches])
    found = {batch.pk: BatchFigures(states=states[batch.pk]) for batch in batches}
    ids = list(found)
    waiting = _count(ids, found)
    _count_samples(ids, found)
    _add_running_audio(ids, found)
    _add_bytes(ids, found)
    _estimate(batches, found, waiting)
    for batch in batches:
        batch.figures = found[batch.pk]  # type: ignore[attr-defined]  # as an annotation would be
    return list(batches)


def _count(
    ids: Sequence[uuid.UUID], found: dict[uuid.UUID, BatchFigures]
) -> dict[uuid.UUID, float]:
    """Add what the rows of books and jobs say; return the characters that are not queued yet."""
    entries = with_state(BookBatchEntry.objects.filter(batch__in=ids)).order_by()
    over = Q(state__in=(FAILED, CANCELLED, DELETED))
    rows = entries.values("batch").annotate(
        known=Count("pk", filter=Q(book__book_key__gt="") | over),
        chars=Sum(_CHARS),
        closed=Coalesce(Sum(_CHARS * _SHARE), 0.0),
        given_up=Coalesce(Sum(_CHARS, filter=over & Q(book__job__isnull=True)), 0.0),
        waiting=Coalesce(Sum(_CHARS, filter=Q(state__in=_NOT_STARTED)), 0.0),
        expected=Coalesce(
            Sum(Cast(KeyTextTransform("expected_seconds", "book__figures"), FloatField())), 0.0
        ),
        total=Coalesce(Sum("book__job__segments_total"), 0),
        done=Coalesce(Sum("book__job__segments_done"), 0),
        failed=Coalesce(Sum("book__job__segments_failed"), 0),
        rendered=Coalesce(Sum("book__job__takes_rendered"), 0),
        reused=Coalesce(Sum("book__job__takes_reused"), 0),
        seconds=Coalesce(Sum("book__job__audio_seconds"), 0.0),
        size=Coalesce(Sum("book__size_bytes"), 0),
        begun=Min("book__job__started_at"),
        touched=Max("book__job__updated_at"),
    )
    left: dict[uuid.UUID, float] = {}
    for row in rows:
        one = found[row["batch"]]
        books = max(1, sum(one.states.values()))
        if row["chars"]:
            one.share = (row["closed"] + row["given_up"]) / row["chars"] * row["known"] / books
        one.segments_total, one.segments_done = row["total"], row["done"]
        one.segments_failed = row["failed"]
        one.takes_rendered, one.takes_reused = row["rendered"], row["reused"]
        one.audio_seconds, one.expected_seconds = row["seconds"], row["expected"]
        one.uploads = row["size"]
        if row["begun"] is not None and row["touched"] is not None:
            one.real_time_factor = (row["touched"] - row["begun"]).total_seconds()
        left[row["batch"]] = row["waiting"]
    return left


def _count_samples(ids: Sequence[uuid.UUID], found: dict[uuid.UUID, BatchFigures]) -> None:
    rows = BookBatchEntry.objects.filter(batch__in=ids, book__sample_job__isnull=False)
    samples = rows.order_by().values_list("batch")
    for batch_id, count in samples.annotate(count=Sum("book__sample_job__takes_rendered")):
        found[batch_id].takes_rendered += count or 0


def _add_running_audio(ids: Sequence[uuid.UUID], found: dict[uuid.UUID, BatchFigures]) -> None:
    """Add the audio of jobs that go on, whose rows do not know it yet, and turn time into speed."""
    rows = Segment.objects.filter(
        job__book__batch_entry__batch__in=ids, job__status__in=UNFINISHED, take__isnull=False
    ).order_by()
    for batch_id, seconds in rows.values_list("job__book__batch_entry__batch").annotate(
        seconds=Sum("take__audio_seconds")
    ):
        found[batch_id].audio_seconds += seconds or 0.0
    for one in found.values():
        elapsed, one.real_time_factor = one.real_time_factor, None
        made = one.takes_rendered + one.takes_reused
        if elapsed and elapsed > 0 and one.takes_rendered:
            rendered = one.audio_seconds * one.takes_rendered / made
            one.real_time_factor = round(rendered / elapsed, 3)


def _add_bytes(ids: Sequence[uuid.UUID], found: dict[uuid.UUID, BatchFigures]) -> None:
    for name in ("book", "sampled_book"):
        path = f"job__{name}__batch_entry__batch"
        exports = Export.objects.filter(**{f"{path}__in": ids}).order_by().values_list(path)
        for batch_id, size in exports.annotate(size=Sum("size_bytes")):
            found[batch_id].exports += size
    path = "job__book__batch_entry__batch"
    files = BookFile.objects.filter(**{f"{path}__in": ids}).order_by().values_list(path)
    for batch_id, size in files.annotate(size=Sum("size_bytes")):
        found[batch_id].files += size


def _estimate(
    batches: Sequence[BookBatch],
    found: dict[uuid.UUID, BatchFigures],
    waiting: dict[uuid.UUID, float],
) -> None:
    """Add when batches are done: what is queued of them, and what is not yet, at today's speed.

    Of a paused batch, or one that waits for a person, nothing can be said.
    """
    open_ids = [
        batch.pk
        for batch in batches
        if batch.ended_at is None and batch.paused_at is None and batch.cancelled_at is None
    ]
    jobs = RenderJob.objects.filter(
        book__batch_entry__batch__in=open_ids, status__in=UNFINISHED, paused_at__isnull=True
    )
    batch_of = dict(jobs.order_by().values_list("pk", "book__batch_entry__batch"))
    left = {batch_id: waiting.get(batch_id, 0.0) for batch_id in open_ids}
    for job_id, chars in chars_left(list(batch_of)).items():
        left[batch_of[job_id]] += chars
    asked: dict[uuid.UUID, tuple[Any, int, str]] = {}
    for batch in batches:
        holds = batch.sample == BookBatch.Sample.HOLD and batch.approved_at is None
        if left.get(batch.pk) and not holds:
            lane = lane_of(batch.owner_id, batch.api_key)
            asked[batch.pk] = (left[batch.pk], PRIORITIES[priority_of(batch)], lane)
    for batch_id, seconds in eta_of_chars(asked).items():
        found[batch_id].eta_seconds = seconds


def priority_of(batch: BookBatch) -> str:
    """Return the name of the priority that a batch's books have."""
    return str(batch.defaults.get("priority", "bulk"))
