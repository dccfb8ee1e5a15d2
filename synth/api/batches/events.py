"""Read the state of batches for events: entries are to a batch what segments are to a job."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from synth.api.batches.serializers import progress_of, with_figures
from synth.batches.figures import BatchFigures, share_figures
from synth.batches.states import ENDED_STATES, MISSING, label_of, with_state
from synth.jobs.events import ENDED, ClosedSegment, JobState, Mark, SegmentKey
from synth.models import Batch, BatchEntry, RenderJob
from synth.transitions.batches import WITH_AUDIO

_Names = Mapping[SegmentKey, tuple[str, str]]


def read_batches(
    known: Mapping[uuid.UUID, Collection[Mark | None]],
) -> dict[uuid.UUID, JobState | None]:
    """Return the state of each batch of which not all `known` marks are the present one.

    A few queries find those of each kind that changed, and read them. A batch that is gone is None.
    """
    batches = Batch.objects.in_bulk(list(known))
    gone: dict[uuid.UUID, JobState | None] = {pk: None for pk in known if pk not in batches}
    texts = [one for one in batches.values() if one.kind == Batch.Kind.TEXTS]
    changed = [one for one in texts if set(known[one.pk]) != {_mark_of_texts(one)}]
    books = {pk: one for pk, one in batches.items() if one.kind == Batch.Kind.BOOKS}
    return (
        gone
        | (_read_texts(changed) if changed else {})
        | (_read_books(books, known) if books else {})
    )


def _mark_of_texts(batch: Batch) -> Mark:
    """Return what differs whenever an item ends or the batch moves: each writes this row."""
    return (batch.updated_at, batch.status, batch.items_ended)


def _read_texts(batches: Sequence[Batch]) -> dict[uuid.UUID, JobState | None]:
    """Return the states of batches with all their items, in three queries for all of them."""
    ended: dict[uuid.UUID, dict[SegmentKey, ClosedSegment]] = {row.pk: {} for row in batches}
    names: dict[uuid.UUID, dict[SegmentKey, tuple[str, str]]] = {row.pk: {} for row in batches}
    items = RenderJob.objects.filter(batch__in=[row.pk for row in batches]).order_by()
    for batch_id, index, item_id, name, status, error_code, seconds in items.values_list(
        "batch", "item_index", "pk", "custom_id", "status", "error_code", "audio_seconds"
    ):
        if batch_id is None or index is None:
            continue
        names[batch_id][0, index] = (str(item_id), name)
        if status in ENDED:
            ended[batch_id][0, index] = ClosedSegment(status, error_code, round(seconds, 3))
    return {
        batch.pk: _state_of_texts(batch, ended[batch.pk], names[batch.pk])
        for batch in with_figures(batches)
    }


def _state_of_texts(
    batch: Any, ended: Mapping[SegmentKey, ClosedSegment], names: _Names
) -> JobState:
    is_final = batch.status in RenderJob.FINAL
    counts: dict[str, int] = dict(batch.figures.counts)
    results = f"/api/v1/batches/{batch.pk}/results" if batch.status in WITH_AUDIO else None

    def name_item(key: SegmentKey) -> dict[str, Any]:
        job_id, custom_id = names.get(key, (None, None))
        return {"index": key[1], "custom_id": custom_id, "job": job_id}

    return JobState(
        mark=_mark_of_texts(batch),
        status=batch.status,
        is_final=is_final,
        counts=tuple(counts.get(kind, 0) for kind in ENDED),
        shown_state={
            "status": batch.status,
            "final": is_final,
            "error_code": batch.error_code,
            "error_message": batch.error_message,
            "results_url": results,
        },
        shown_progress={
            "progress": progress_of(batch),
            "items_total": sum(counts.values()),
            "counts": counts,
            "audio_seconds": round(batch.figures.audio_seconds, 3),
        },
        segments=ended,
        part="item",
        name_part=name_item,
    )


# What of an entry, its book and its job tells that anything has moved.
_COLUMNS = (
    "batch_id", "index", "filename", "state", "book_id", "book__job_id", "book__error_code",
    "book__job__error_code", "book__job__audio_seconds", "book__job__segments_total",
    "book__job__segments_done", "book__job__segments_failed",
)  # fmt: skip


def _read_books(
    batches: Mapping[uuid.UUID, Batch], known: Mapping[uuid.UUID, Collection[Mark | None]]
) -> dict[uuid.UUID, JobState | None]:
    """Return the states of those batches that changed."""
    entries: dict[uuid.UUID, list[Any]] = defaultdict(list)
    rows = with_state(BatchEntry.objects.filter(batch__in=batches)).order_by("batch", "index")
    for row in rows.values_list(*_COLUMNS, named=True):
        entries[row.batch_id].append(row)
    # What differs whenever the batch or a book of it moves: no one row tells of all.
    marks: dict[uuid.UUID, Mark] = {
        pk: (batch.updated_at, batch.ended_at, hash(tuple(map(tuple, entries[pk]))))
        for pk, batch in batches.items()
    }
    changed = [pk for pk in batches if set(known[pk]) != {marks[pk]}]
    figures = share_figures(changed)
    return {pk: _state_of(batches[pk], marks[pk], entries[pk], figures[pk]) for pk in changed}


def _state_of(batch: Batch, mark: Mark, entries: Sequence[Any], figures: BatchFigures) -> JobState:
    status, is_final = label_of(batch, figures.states), batch.ended_at is not None
    ended = sum(figures.states[state] for state in ENDED_STATES)
    by_place = {(0, entry.index): entry for entry in entries}

    def name_book(key: SegmentKey) -> dict[str, Any]:
        entry = by_place.get(key)
        return {
            "index": key[1],
            "file": entry.filename if entry else None,
            "book": str(entry.book_id) if entry and entry.book_id else None,
            "job": str(entry.book__job_id) if entry and entry.book__job_id else None,
        }

    return JobState(
        mark=mark,
        status=status,
        is_final=is_final,
        counts=(ended, figures.segments_total, figures.segments_done, figures.segments_failed),
        shown_state={
            "status": status,
            "final": is_final,
            "report_url": f"/api/v1/book-batches/{batch.pk}/report" if is_final else None,
        },
        shown_progress={
            "progress": 1.0 if is_final else round(min(0.99, figures.share), 3),
            "books_total": len(entries),
            "books_ended": ended,
            "counts": figures.states,
            "segments_total": figures.segments_total,
            "segments_done": figures.segments_done,
            "segments_failed": figures.segments_failed,
        },
        segments={
            key: _segment_of(entry) for key, entry in by_place.items() if entry.state != MISSING
        },
        part="book",
        name_part=name_book,
        open_status=MISSING,
    )


def _segment_of(entry: Any) -> ClosedSegment:
    started = entry.book__job_id is not None
    code = entry.book__job__error_code if started else entry.book__error_code
    seconds = entry.book__job__audio_seconds or 0.0
    return ClosedSegment(entry.state, code or "", round(seconds, 3))
