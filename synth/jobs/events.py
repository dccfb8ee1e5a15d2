"""Tell what has happened to a job or a batch, of books too, by server-sent events, from rows alone.

Nothing is recorded for this: what a client has seen stands in the id of its last event, and what is
new is the difference to the rows. So any process can go on where another stopped, after any time.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from synth.jobs.event_ids import CLOSED, Seen, SegmentKey

RETRY_MILLISECONDS = 2000
MAX_IDS_PER_BATCH = 100  # an id is made from all segments; a replay of a book would take minutes

Mark = tuple[Any, ...]


class ClosedSegment(NamedTuple):
    """A segment that is done, failed or cancelled, or an item that has ended."""

    status: str
    error_code: str = ""
    audio_seconds: float | None = None


def segment_data(key: SegmentKey, segment: ClosedSegment) -> dict[str, Any]:
    """Return what an event tells of a segment."""
    return {
        "chapter": key[0],
        "index": key[1],
        "status": segment.status,
        "error_code": segment.error_code,
        "audio_seconds": segment.audio_seconds,
    }


@dataclass(frozen=True)
class JobState:
    """A job and its closed segments at one moment; `mark` differs once anything of it does.

    Of a batch the parts are its items: `part` names their events, `data_of` says what these tell,
    `open_status` what one is that is not among `segments` any more.
    """

    mark: Mark
    status: str
    is_final: bool
    counts: tuple[int, ...]  # of parts, by the ways in which they end
    shown_state: Mapping[str, Any]
    shown_progress: Mapping[str, Any]
    segments: Mapping[SegmentKey, ClosedSegment]
    part: str = "segment"
    data_of: Callable[[SegmentKey, ClosedSegment], dict[str, Any]] = segment_data
    open_status: str = "queued"


def news(seen: Seen, job: JobState) -> Iterator[str]:
    """Yield the events that lead from what was seen to the job's state; `seen` is moved along.

    The order is: that it started, its segments, its progress; that it ended comes last.
    """
    steps = list(_steps(seen, job))
    stride = 1 + len(steps) // MAX_IDS_PER_BATCH
    for number, (name, data) in enumerate(steps, start=1):
        _move(seen, job, name, data)
        has_id = number == len(steps) or number % stride == 0
        yield write_event(name, data, seen.event_id() if has_id else None)


def write_event(name: str, data: Mapping[str, Any], event_id: str | None) -> str:
    """Return one event in the form of `text/event-stream`."""
    first = "" if event_id is None else f"id: {event_id}\n"
    return f"{first}event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def read_changed(known: Mapping[uuid.UUID, Collection[Mark | None]]) -> dict[uuid.UUID, Any]:
    """Return the JobState of each job of which not all `known` marks are the present one.

    One query finds them, one more reads the segments of those that changed, and two the items of
    batches among them. What is no job is looked for among batches of books; what is gone is None.
    """
    from synth.api.jobs.serializers import has_audio, progress_of
    from synth.batches.events import read_batches  # Django is not set up when this is imported
    from synth.book_batches.events import read_book_batches
    from synth.models import RenderJob, Segment

    rows = RenderJob.objects.filter(pk__in=list(known)).order_by().defer("text")
    jobs = {job.pk: job for job in rows}
    others = {pk: marks for pk, marks in known.items() if pk not in jobs}
    found: dict[uuid.UUID, JobState | None] = read_book_batches(others) if others else {}
    changed = [pk for pk, job in jobs.items() if set(known[pk]) != {mark_of(job)}]
    batches = [pk for pk in changed if jobs[pk].kind == RenderJob.Kind.BATCH]
    if batches:
        found |= read_batches([jobs[pk] for pk in batches])
        changed = [pk for pk in changed if pk not in found]
    closed: dict[uuid.UUID, dict[SegmentKey, ClosedSegment]] = {pk: {} for pk in changed}
    if changed:
        segments = Segment.objects.filter(job__in=changed, status__in=CLOSED).order_by()
        for pk, chapter, index, status, error_code, seconds in segments.values_list(
            "job", "chapter__index", "index", "status", "error_code", "take__audio_seconds"
        ):
            closed[pk][chapter, index] = ClosedSegment(status, error_code, seconds)
    for pk in changed:
        job = jobs[pk]
        audio_url = f"/api/v1/jobs/{pk}/audio" if has_audio(job) else None
        found[pk] = _state_of(job, progress_of(job), audio_url, closed[pk])
    return found


def _state_of(
    job: Any,
    progress: float,
    audio_url: str | None,
    segments: Mapping[SegmentKey, ClosedSegment],
) -> JobState:
    """Return what events tell of a row and its segments."""
    is_final = job.status in job.FINAL
    counts = (job.segments_done, job.segments_failed, job.segments_cancelled)
    return JobState(
        mark=mark_of(job),
        status=job.status,
        is_final=is_final,
        counts=counts,
        shown_state={
            "status": job.status,
            "final": is_final,
            "error_code": job.error_code,
            "error_message": job.error_message,
            "audio_url": audio_url,
        },
        shown_progress={
            "progress": progress,
            "segments_total": job.segments_total,
            "segments_done": counts[0],
            "segments_failed": counts[1],
            "segments_cancelled": counts[2],
            "audio_seconds": round(job.audio_seconds, 3),
        },
        segments=segments,
    )


def mark_of(job: Any) -> Mark:
    """Return what differs whenever a part of it ends or the job moves: each writes this row."""
    counts = (job.segments_done, job.segments_failed, job.segments_cancelled, job.items_ended)
    return (job.updated_at, job.status, *counts)


def _steps(seen: Seen, job: JobState) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name and data of each event."""
    if job.status != seen.status and not job.is_final:
        yield "state", job.shown_state
    again = [key for key in seen.closed if key not in job.segments]
    for key in sorted(again):
        yield job.part, job.data_of(key, ClosedSegment(job.open_status))
    for key in sorted(job.segments):
        if seen.closed.get(key) != job.segments[key].status:
            yield job.part, job.data_of(key, job.segments[key])
    if job.counts != seen.counts:
        yield "progress", job.shown_progress
    if job.status != seen.status and job.is_final:
        yield "state", job.shown_state


def _move(seen: Seen, job: JobState, name: str, data: Mapping[str, Any]) -> None:
    """Note that this event was told."""
    if name == "state":
        seen.status = data["status"]
        return
    if name == "progress":
        seen.counts = job.counts
        return
    key = data.get("chapter", 0), data["index"]
    if data["status"] in seen.kinds:
        seen.closed[key] = data["status"]
    else:
        del seen.closed[key]
