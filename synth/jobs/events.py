"""Tell what has happened to a job or a batch, of books too, by server-sent events, from rows alone.

Nothing is recorded for this: what a client has seen stands in the id of its last event, and what is
new is the difference to the rows. So any process can go on where another stopped, after any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from synth.jobs.event_ids import Seen, SegmentKey

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


def mark_of(job: Any) -> Mark:
    """Return what differs whenever a part of it ends or the job moves: each writes this row."""
    counts = (job.segments_done, job.segments_failed, job.segments_cancelled)
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
