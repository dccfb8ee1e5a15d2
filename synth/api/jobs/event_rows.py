"""Read from rows what events tell of jobs, batches and batches of books."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from synth.api.jobs.serializers import has_audio, progress_of
from synth.batches.events import read_batches
from synth.jobs.event_ids import CLOSED, SegmentKey
from synth.jobs.events import ClosedSegment, JobState, Mark, mark_of
from synth.models import RenderJob, Segment


def read_changed(known: Mapping[uuid.UUID, Collection[Mark | None]]) -> dict[uuid.UUID, Any]:
    """Return the JobState of each job of which not all `known` marks are the present one.

    One query finds them, and one more reads the segments of those that changed. What is no job is
    looked for among batches; what is gone is None.
    """
    rows = RenderJob.objects.filter(pk__in=list(known)).order_by().defer("text")
    jobs = {job.pk: job for job in rows}
    others = {pk: marks for pk, marks in known.items() if pk not in jobs}
    found: dict[uuid.UUID, JobState | None] = read_batches(others) if others else {}
    changed = [pk for pk, job in jobs.items() if set(known[pk]) != {mark_of(job)}]
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
    job: Any, progress: float, audio_url: str | None, segments: Mapping[SegmentKey, ClosedSegment]
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
