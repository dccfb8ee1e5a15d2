"""Expect how long a book's audio will be and when it will be done, by what was measured."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.db.models import Q
from django.db.models.functions import Length

from synth.books.plan import Plan
from synth.bookshelf.reusing import Reuse, expected_reuse
from synth.jobs.eta import eta_of_new, eta_seconds
from synth.jobs.lanes import lane_of
from synth.models import PRIORITIES, BookSource, JobVoice, RenderJob, Segment
from synth.transitions import UNFINISHED
from ttsweb import leases
from voices.models import VoiceVersion

LATEST_JOBS, LATEST_SEGMENTS = 20, 400  # of a voice, which say how fast it reads
LEAST_SECONDS = 60.0  # of audio; less says little of a voice


@dataclass(frozen=True, slots=True)
class Expected:
    """Hold what is expected of a book; None where nothing was measured.

    `seconds` are those of the audio at `chars_per_second`, which is the voice's own rate if
    `is_measured`. `render_seconds` are from now to the end, the queue before it included; what
    was spoken before takes none. `reuse` is that, of a book that was not started.
    """

    seconds: float
    chars_per_second: float
    is_measured: bool
    render_seconds: int | None
    finish: dt.datetime | None
    reuse: Reuse | None = None


def reading_rate(version: VoiceVersion | None) -> float | None:
    """Return how many characters a voice reads in a second, blanks counted; None if unknown."""
    if version is None:
        return None
    pinned = JobVoice.objects.filter(version=version).order_by("-job__created_at")
    spoken = list(pinned.values_list("job_id", "speaker")[:LATEST_JOBS])
    if not spoken:
        return None
    by_it = Q()
    for job_id, speaker in spoken:
        by_it |= Q(job=job_id, speaker=speaker)
    rows = Segment.objects.filter(by_it, status=Segment.Status.DONE, take__isnull=False)
    rows = rows.order_by("-finished_at", "-pk").annotate(chars=Length("spoken_text"))
    measured = list(rows.values_list("chars", "take__audio_seconds")[:LATEST_SEGMENTS])
    seconds = sum(one for _, one in measured if one)
    if seconds < LEAST_SECONDS:
        return None
    return round(sum(chars for chars, one in measured if one) / seconds, 2)


def expect(book: BookSource, plan: Plan, *, is_measured: bool) -> Expected:
    """Return what is expected of a book by its plan, which has the rate of its voice."""
    reuse = expected_reuse(book, plan) if book.job_id is None else None
    left = _seconds_left(book, plan, reuse)
    finish = None if left is None else leases.database_now() + dt.timedelta(seconds=left)
    seconds, rate = round(plan.seconds, 1), plan.chars_per_second
    return Expected(seconds, rate, is_measured, left, finish, reuse)


def _seconds_left(book: BookSource, plan: Plan, reuse: Reuse | None) -> int | None:
    if book.job_id is not None:
        job = RenderJob.objects.defer("text").filter(pk=book.job_id).first()
        return eta_seconds(job) if job is not None and job.status in UNFINISHED else None
    priority = PRIORITIES[book.options.get("priority", "bulk")]
    lane = lane_of(book.owner_id, book.api_key)
    new = plan.characters * (1 - (reuse.share if reuse is not None else 0.0))
    return eta_of_new(new, priority=priority, lane=lane)
