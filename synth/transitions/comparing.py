"""Compare a job's takes once all are there: one that is much louder or slower is taken again.

By then the job has the same takes in whatever order they were rendered, so that the same job gets
the same audio again. It is done until nothing new stands out, and never after that: what a person
changes later moves no other segment.
"""

from __future__ import annotations

import statistics
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models import F

from synth.models import RenderJob, Segment, Take
from synth.transitions.candidates import (
    Candidate,
    best_of,
    flagged,
    most_retakes,
    next_seed,
    with_candidate,
)
from synth.transitions.enqueue import enqueue_segments
from ttsweb import leases

FEWEST_TAKES = 8  # of one speaker; what is usual cannot be told from fewer
LEVEL_DB, LEVEL_SPREADS = 8.0, 6.0  # off the middle, in dB and in medians of how far all are off it
FASTEST_SHARE, SLOWEST_SHARE = 0.5, 2.0  # of the middle one's time for its text
_FACTOR = 0.5  # of the score: worse than a take without a flag, better than half a sentence


def retake_outliers(jobs: Sequence[RenderJob]) -> set[uuid.UUID]:
    """Queue again the segments whose takes stand out among those of their speaker in their job.

    Call it with all of the jobs' segments closed and their rows locked. Where no further take may
    follow, the best of a segment's takes is kept.

    Returns:
        The jobs of which segments were queued, so that they are not complete.
    """
    fresh = [job for job in jobs if not job.takes_compared]
    again: dict[uuid.UUID, list[int]] = {}
    for job in fresh:
        if job.segments_done < FEWEST_TAKES:
            continue
        for segment, flags in _outliers(job):
            if _note(segment, flags, job):
                again.setdefault(job.pk, []).append(segment.pk)
    compared = [job.pk for job in fresh if job.pk not in again]
    RenderJob.objects.filter(pk__in=compared).update(takes_compared=True)
    for ids in again.values():
        enqueue_segments(ids)
    return set(again)


def _outliers(job: RenderJob) -> Iterator[tuple[Segment, dict[str, float]]]:
    """Yield the segments whose takes stand out and were not found to do so before, with flags."""
    done = job.segments.filter(status=Segment.Status.DONE, take__quality_score__isnull=False)
    by_speaker: dict[int, list[tuple[int, float, float]]] = defaultdict(list)
    for speaker, pk, active_dbfs, pace in done.order_by("pk").values_list(
        "speaker", "pk", "take__measures__active_dbfs", "take__measures__pace"
    ):
        if active_dbfs is not None and pace is not None:
            by_speaker[speaker].append((pk, active_dbfs, pace))
    found: dict[int, dict[str, float]] = {}
    for rows in by_speaker.values():
        if len(rows) >= FEWEST_TAKES:
            _compare(rows, found)
    segments = job.segments.filter(pk__in=found, is_hand_picked=False).select_related("take")
    for segment in segments.order_by("pk"):
        mine = [one for one in segment.candidates if one["take"] == str(segment.take_id)]
        if not any("level" in one["flags"] or "rhythm" in one["flags"] for one in mine):
            yield segment, found[segment.pk]


def _compare(rows: Sequence[tuple[int, float, float]], found: dict[int, dict[str, float]]) -> None:
    """Add the flags of one speaker's takes that stand out, by segment."""
    level = statistics.median(row[1] for row in rows)
    spread = statistics.median(abs(row[1] - level) for row in rows)
    pace = statistics.median(row[2] for row in rows)
    far = max(LEVEL_DB, LEVEL_SPREADS * spread)
    for pk, active_dbfs, own_pace in rows:
        flags = {}
        if abs(active_dbfs - level) > far:
            flags["level"] = _FACTOR * far / abs(active_dbfs - level)
        if pace and not FASTEST_SHARE <= own_pace / pace <= SLOWEST_SHARE:
            flags["rhythm"] = _FACTOR
        if flags:
            found[pk] = flags


def _note(segment: Segment, flags: dict[str, float], job: RenderJob) -> bool:
    """Write flags into a segment's candidates; return whether it was queued for another take."""
    take = segment.take
    if take is None:
        return False
    candidates = [
        flagged(one, flags) if one["take"] == str(take.pk) else one
        for one in with_candidate(segment.candidates, take, segment.seed)
    ]
    held = Segment.objects.filter(pk=segment.pk, status=Segment.Status.DONE, take=take)
    if segment.retakes < most_retakes(job, take.quality_flags):
        moved = held.update(
            status=Segment.Status.QUEUED,
            take=None,
            seed=next_seed(segment.seed, candidates),
            retakes=segment.retakes + 1,
            candidates=candidates,
            finished_at=None,
            **leases.untried(),
        )
        if moved:
            seconds = take.audio_seconds + segment.pause_after_ms / 1000
            _count(job, segments_done=-1, audio_seconds=-seconds)
    else:
        moved = 0
        kept, changes = _best(candidates, take)
        if held.update(**changes):
            _count(job, audio_seconds=kept.audio_seconds - take.audio_seconds)
    segment.candidate_takes.add(take)
    return bool(moved)


def _best(candidates: list[Candidate], take: Take) -> tuple[Take, dict[str, Any]]:
    best = best_of(candidates)
    kept = Take.objects.filter(pk=best["take"]).first()
    if kept is None:
        return take, {"candidates": candidates}
    return kept, {"candidates": candidates, "take": kept, "seed": best["seed"]}


def _count(job: RenderJob, **amounts: float) -> None:
    RenderJob.objects.filter(pk=job.pk).update(
        **{name: F(name) + amount for name, amount in amounts.items()}
    )
