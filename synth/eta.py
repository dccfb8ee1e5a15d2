"""Estimate when an unfinished job is done, from what was rendered in the last minutes."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from django.db.models import Exists, OuterRef, Sum
from django.db.models.functions import Length

from synth.models import RenderJob, Segment
from synth.queue_places import SEGMENTS_LEFT, before_in_lane, unfinished_jobs
from synth.transitions import UNFINISHED
from ttsweb import leases

WINDOW_SECONDS = 600.0
MOST_SEGMENTS = 400  # of the newest; a busy machine ends more than that in the window
LONGEST_GAP_SECONDS = 30.0  # between two ends; a longer one says that nothing was to be done
_OPEN = (Segment.Status.QUEUED, Segment.Status.CLAIMED)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Hold how fast all workers together render, and how long a segment is, in characters."""

    chars_per_second: float
    chars_per_segment: float


def eta_seconds(job: RenderJob) -> int | None:
    """Return in how many seconds a job is probably done; None where it ended or nobody knows."""
    return etas([job]).get(job.pk)


def etas(jobs: Sequence[RenderJob]) -> dict[uuid.UUID, int]:
    """Return in how many seconds each job is probably done; those of which it is unknown lack.

    Nothing is known while nothing was rendered for ten minutes. The cost is four queries for all.
    """
    waiting = [
        job
        for job in jobs
        if job.status in UNFINISHED and not job.cancel_requested and job.paused_at is None
    ]
    speed = throughput() if waiting else None
    if speed is None:
        return {}
    own, before = chars_left([job.pk for job in waiting]), before_in_lane(waiting)
    backlogs = _backlogs()
    found: dict[uuid.UUID, int] = {}
    for job in waiting:
        mine = own.get(job.pk, 0) + before[job.pk].segments * speed.chars_per_segment
        found[job.pk] = _seconds(mine, job.priority, job.lane, speed, backlogs)
    return found


def eta_of_chars(chars: Mapping[uuid.UUID, tuple[float, int, str]]) -> dict[uuid.UUID, int]:
    """Return in how many seconds so much text, not all of it queued yet, is probably rendered.

    Args:
        chars: by any ids: characters that are left, the priority and the lane of their jobs.
    """
    speed = throughput() if chars else None
    if speed is None:
        return {}
    backlogs = _backlogs()
    return {
        key: _seconds(left, priority, lane, speed, backlogs)
        for key, (left, priority, lane) in chars.items()
    }


def _seconds(
    mine: float,
    own_priority: int,
    own_lane: str,
    speed: Throughput,
    backlogs: Mapping[tuple[int, str], int],
) -> int:
    """Return how long characters take that share the workers with what else is queued."""
    ahead = 0.0
    for (priority, lane), left in backlogs.items():
        chars = left * speed.chars_per_segment
        if priority < own_priority:
            ahead += chars
        elif priority == own_priority and lane != own_lane:
            ahead += min(chars, mine)  # lanes of one class get the same until one is done
    return math.ceil((mine + ahead) / speed.chars_per_second)


def eta_of_new(chars: float, *, priority: int, lane: str) -> int | None:
    """Return in how many seconds a job of so much text would be done, were it queued now."""
    speed = throughput()
    if speed is None:
        return None
    backlogs = _backlogs()
    before = backlogs.get((priority, lane), 0) * speed.chars_per_segment
    return _seconds(before + chars, priority, lane, speed, backlogs)


def real_time_factor(job: RenderJob) -> float | None:
    """Return seconds of audio per second of work of an ended job, over all that it waited for.

    Takes that were there already count as well. None while it goes on, or where it made no audio.
    """
    if job.started_at is None or job.finished_at is None or not job.audio_seconds:
        return None
    seconds = (job.finished_at - job.started_at).total_seconds()
    return round(job.audio_seconds / seconds, 3) if seconds > 0 else None


def throughput() -> Throughput | None:
    """Return how fast segments were rendered lately; None where too few were to tell.

    What was reused does not count, not even of a take that another job, such as a book's sample,
    has just rendered; and neither does the time in which nothing ended for long.
    """
    since = leases.database_now() - dt.timedelta(seconds=WINDOW_SECONDS)
    earlier_users = Segment.objects.filter(
        take=OuterRef("take"), finished_at__lt=OuterRef("finished_at")
    )
    rows = (
        Segment.objects.filter(finished_at__gte=since, take__created_at__gte=since)
        .exclude(Exists(earlier_users))
        .order_by("-finished_at")
        .annotate(chars=Length("spoken_text"))
        .values_list("finished_at", "chars", "job__started_at")[:MOST_SEGMENTS]
    )
    ended = [(at, chars, begun) for at, chars, begun in rows if at is not None][::-1]
    if not ended:
        return None
    per_segment = sum(chars for _, chars, _ in ended) / len(ended)
    moments = [(at, sum(row[1] for row in group)) for at, group in groupby(ended, lambda r: r[0])]
    chars = seconds = 0.0
    for (earlier, _), (later, said) in pairwise(moments):
        gap = (later - earlier).total_seconds()
        if gap <= LONGEST_GAP_SECONDS:
            chars, seconds = chars + said, seconds + gap
    first_at, first_said = moments[0]
    begun = min((row[2] for row in ended if row[0] == first_at and row[2]), default=None)
    if begun is not None and 0 < (gap := (first_at - begun).total_seconds()) <= LONGEST_GAP_SECONDS:
        chars, seconds = chars + first_said, seconds + gap
    if not seconds or not chars:
        return None
    return Throughput(chars / seconds, per_segment)


def chars_left(job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return how many characters of each job are not rendered yet."""
    rows = Segment.objects.filter(job__in=job_ids, status__in=_OPEN).order_by()
    sums = rows.values("job").annotate(chars=Sum(Length("spoken_text")))
    return {row["job"]: row["chars"] for row in sums}


def _backlogs() -> dict[tuple[int, str], int]:
    """Return how many segments are left of each priority class and lane."""
    rows = unfinished_jobs().values("priority", "lane").annotate(left=Sum(SEGMENTS_LEFT))
    return {(row["priority"], row["lane"]): row["left"] for row in rows}
