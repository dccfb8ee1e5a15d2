"""Look up what listeners need: the order of segments, their states, and their pieces of audio."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from synth.live.place import Chunk, SegmentState


@dataclass(frozen=True, slots=True)
class Looked:
    """Hold what one look has found; a job without segments, or that is gone, has an empty order."""

    orders: Mapping[uuid.UUID, Sequence[int]]
    states: Mapping[int, SegmentState]


def look_up(new_jobs: Collection[uuid.UUID], segment_ids: Collection[int]) -> Looked:
    """Return the orders of some jobs and the states of some segments, with three queries."""
    from synth.models import LiveChunk, Segment  # Django is not set up when this is imported

    orders: dict[uuid.UUID, list[int]] = {job_id: [] for job_id in new_jobs}
    if new_jobs:
        rows = Segment.objects.filter(job__in=list(new_jobs)).order_by("chapter__index", "index")
        for job_id, pk in rows.values_list("job_id", "pk"):
            orders[job_id].append(pk)
    if not segment_ids:
        return Looked(orders, {})
    attempts: dict[int, dict[uuid.UUID, list[Chunk]]] = {pk: {} for pk in segment_ids}
    # The states come first: what is done has all its pieces in the second answer, or will have.
    segments = Segment.objects.filter(pk__in=list(segment_ids)).order_by()
    found = list(segments.values_list("pk", "status", "take_id", "pause_after_ms"))
    chunks = LiveChunk.objects.filter(segment__in=list(segment_ids)).order_by("pk")
    columns = ("index", "key", "num_samples", "sample_rate", "is_last")
    for pk, attempt, *values in chunks.values_list("segment_id", "attempt", *columns):
        attempts[pk].setdefault(attempt, []).append(Chunk(*values))
    states = {
        pk: SegmentState(status, take_id, pause, _newest_first(attempts[pk]))
        for pk, status, take_id, pause in found
    }
    return Looked(orders, states)


def note_listeners(job_ids: Collection[uuid.UUID]) -> None:
    """Note that somebody listens to these jobs, so that their pieces stay."""
    from synth.transitions.live import keep_live

    keep_live(job_ids)


def read_object(key: str) -> bytes | None:
    """Return an object's bytes; None when it is gone."""
    from django.core.files.storage import default_storage

    try:
        with default_storage.open(key, "rb") as file:
            return bytes(file.read())
    except FileNotFoundError:
        return None


def _newest_first(attempts: dict[uuid.UUID, list[Chunk]]) -> dict[uuid.UUID, list[Chunk]]:
    """Return attempts in the opposite order, each in the order of its text.

    A take whose pieces were made by two processes may have them out of order.
    """
    return {
        attempt: sorted(attempts[attempt], key=lambda chunk: chunk.index)
        for attempt in reversed(attempts)
    }
