"""Make jobs of which something needs ears: failed, flagged and unsuspicious segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import User

from synth.models import RenderJob, Segment, Take
from synth.transitions.takes import with_candidate
from tests.factories import make_job, make_segment, make_take

SCREEN = [{"name": "too_short", "value": 0.2, "limit": 1.5}]


def make_spoken_job(owner: User, *scores: float | None, **fields: Any) -> RenderJob:
    """Return an ended job; a score below 1 is that of a flagged take, None that of a failure."""
    values: dict[str, Any] = {"status": RenderJob.Status.SUCCEEDED}
    job = make_job(segments=0, owner=owner, **(values | fields))
    for number, score in enumerate(scores):
        segment = make_segment(job, text=f"Sentence number {number}.")
        if score is None:
            fail(segment)
        else:
            keep(segment, score=score)
    job.segments_done = sum(score is not None for score in scores)
    job.segments_failed = len(scores) - job.segments_done
    job.save()
    return job


def fail(segment: Segment) -> None:
    segment.status, segment.error_code = Segment.Status.FAILED, "prompt_too_long"
    segment.error_message = "It is too long."
    segment.save()


def keep(
    segment: Segment, *, score: float = 1.0, flags: Sequence[str] = ("too_short",), **fields: Any
) -> Take:
    """Give a segment one more take, which it keeps; a score of 1 has no flag."""
    is_bad = score < 1
    values: dict[str, Any] = {
        "quality_score": score,
        "quality_flags": list(flags) if is_bad else [],
        "measures": {"screen": SCREEN} if is_bad else {},
    }
    take = make_take(**(values | fields))
    if is_bad or segment.candidates:
        segment.candidates += with_candidate([], take, segment.seed)
        segment.candidate_takes.add(take)
    segment.take, segment.status = take, Segment.Status.DONE
    segment.save()
    return take
