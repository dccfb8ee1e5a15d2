"""Tell what has happened to a batch: its items are to it what segments are to a job."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from synth.api.batches.serializers import progress_of, with_figures
from synth.jobs.event_ids import ENDED, SegmentKey
from synth.jobs.events import ClosedSegment, JobState, mark_of
from synth.models import RenderJob
from synth.transitions.batches import WITH_AUDIO

_Names = Mapping[SegmentKey, tuple[str, str]]


def read_batches(batches: Sequence[RenderJob]) -> dict[uuid.UUID, JobState]:
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
        batch.pk: _state_of(batch, ended[batch.pk], names[batch.pk])
        for batch in with_figures(batches)
    }


def _state_of(batch: Any, ended: Mapping[SegmentKey, ClosedSegment], names: _Names) -> JobState:
    is_final = batch.status in RenderJob.FINAL
    counts: dict[str, int] = dict(batch.figures.counts)
    results = f"/api/v1/batches/{batch.pk}/results" if batch.status in WITH_AUDIO else None

    def item_data(key: SegmentKey, item: ClosedSegment) -> dict[str, Any]:
        job_id, custom_id = names.get(key, (None, None))
        return {
            "index": key[1],
            "custom_id": custom_id,
            "job": job_id,
            "status": item.status,
            "error_code": item.error_code,
            "audio_seconds": item.audio_seconds,
        }

    return JobState(
        mark=mark_of(batch),
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
        data_of=item_data,
    )
