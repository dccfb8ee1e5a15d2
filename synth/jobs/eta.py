"""Estimate when unfinished work is done, from what was rendered lately; say nothing if unsure.

A time is given only where it is probably right within WITHIN of itself: where what was measured
is steady, recent and enough. Pages and commands say otherwise what `without_eta` returns.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import statistics
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Self, cast

from django.core.cache.backends.locmem import LocMemCache
from django.db.models import Case, Exists, F, OuterRef, Q, Sum, Value, When
from django.db.models.functions import Length

from synth.jobs.queue import (
    BREAK_SECONDS,
    WITHIN,
    Ended,
    Estimate,
    LaneState,
    QueueState,
    Throughput,
    read_lanes,
)
from synth.models import Export, RenderJob, Segment
from synth.transitions.jobs import OPEN, UNFINISHED
from ttsweb import leases

WITHOUT_ETA, MAKING_FILE = "estimating the time left", "making the file"
WINDOW_SECONDS = 600.0
MOST_SEGMENTS = 400  # of the newest; a busy machine ends more than that in the window
FIRST_SHARE = 0.1  # of a job's characters, before which a job that runs says little of itself
_LATEST_EXPORTS = 40
# Of the time, where a job goes on as it did since its start: at least, and by one segment.
_SO_FAR_ERROR, _ONE_SEGMENT_ERROR = 0.1, 0.3
# Of the work of a claimed segment: some wait for a slot, some are in one, of some the sound is
# made. Measured on two cores it was between a tenth and three tenths, for jobs of any length.
_CLAIMED_SHARE = 0.2
_ALIKE = 4.0  # files of up to so many times the length, or of that part of it, say something
_FIRST_FILE_SPEED = 40.0  # seconds of audio a second; a guess, as uncertain as it is long
_FILE_ERROR, _ONE_FILE_ERROR = 0.1, 0.4  # of a file's time; the second one is that of one sample
_LEAST_FILES = 3  # which tell by themselves how much such times differ
_lately = LocMemCache("what ended lately", {"timeout": 1})  # in seconds


def hours(seconds: float) -> str:
    """Return a length as people say it."""
    if seconds < 90:
        return f"{round(seconds)} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"


def without_eta(job: RenderJob) -> str:
    """Return what is said of a job that runs where nobody knows how long it takes."""
    ended = job.segments_done + job.segments_failed + job.segments_cancelled
    return MAKING_FILE if ended >= job.segments_total else WITHOUT_ETA


def eta_seconds(job: RenderJob) -> int | None:
    """Return in how many seconds a job is probably done; None where it ended or nobody knows."""
    return etas([job]).get(job.pk)


def etas(jobs: Sequence[RenderJob], queue: QueueState | None = None) -> dict[uuid.UUID, int]:
    """Return in how many seconds each job is probably done; those of which it is unknown lack.

    The cost is four queries for all, and another one for the files of those that run.
    """
    waiting = [
        job
        for job in jobs
        if job.status in UNFINISHED and not job.cancel_requested and job.paused_at is None
    ]
    if not waiting:
        return {}
    ended = _ended_lately()
    has_begun = any(job.started_at is not None for job in waiting)
    if not ended and not has_begun:
        return {}
    texts = _texts_of([job.pk for job in waiting])
    files = _Files.look() if has_begun else _Files(())
    rendering = [job for job in waiting if texts[job.pk].left]
    joining = [job.pk for job in waiting if not texts[job.pk].left and job.started_at is not None]
    found = files.left(joining, texts) if joining else {}
    if ended and rendering:
        found |= _render_times(rendering, ended, texts, files, queue or QueueState(rendering))
    return {pk: max(1, round(seconds)) for pk, seconds in found.items() if seconds is not None}


def _render_times(
    jobs: Sequence[RenderJob],
    ended: Sequence[Ended],
    texts: Mapping[uuid.UUID, _Texts],
    files: _Files,
    queue: QueueState,
) -> dict[uuid.UUID, float | None]:
    now = leases.database_now().timestamp()
    found: dict[uuid.UUID, float | None] = {}
    for job in jobs:
        since = -math.inf if job.started_at is None else job.started_at.timestamp()
        # What of a job was there already is spread over it as far as anybody knows.
        own = [one for one in ended if one.at >= since and (not one.is_reused or one.job == job.pk)]
        speed = Throughput.of(own)
        text = texts[job.pk]
        lately: Estimate | None = None
        if speed is not None and _tells(job, speed, now, since):
            mine = text.left + queue.before[job.pk].segments * speed.chars_per_segment
            lately = speed.time_for(_with_ahead(mine, job.priority, job.lane, speed, queue.lanes))
            if job.started_at is not None:
                # Of the step after the last one a part is done by now.
                gone = min(now - speed.last_at, speed.seconds_per_step)
                done = max(gone, _CLAIMED_SHARE * text.claimed / speed.chars_per_second)
                lately = Estimate(max(0.0, lately.seconds - done), lately.error)
        if job.started_at is None:
            found[job.pk] = lately.if_sure() if lately is not None else None
            continue
        rest = files.time_for(text.audio_seconds, job.format)
        found[job.pk] = _if_agreed(lately, _as_so_far(job, text, own, now), rest)
    return found


def _if_agreed(lately: Estimate | None, so_far: Estimate | None, rest: Estimate) -> float | None:
    """Return the time by the pace of late and of the whole job; None where they disagree."""
    times = [one.plus(rest) for one in (lately, so_far) if one is not None]
    if not times:
        return None
    least, most = min(one.seconds for one in times), max(one.seconds for one in times)
    mean = Estimate((least + most) / 2, min(one.error for one in times))
    return mean.if_sure() if most <= (1 + WITHIN) * least else None


def _as_so_far(job: RenderJob, text: _Texts, own: Sequence[Ended], now: float) -> Estimate | None:
    """Return how long the rest is rendered if it goes as since the job's start; None if unknown.

    A job says little of itself before its first tenth, after a pause, where takes were there
    before, and once its start is longer ago than what is looked at.
    """
    assert job.started_at is not None
    gone = now - job.started_at.timestamp()
    made = text.every - text.left
    if made < FIRST_SHARE * text.every or not 0 < gone <= WINDOW_SECONDS:
        return None
    mine = sorted(one.at for one in own if one.job == job.pk)
    if not mine or job.takes_reused > FIRST_SHARE * job.segments_done:
        return None
    moments = [job.started_at.timestamp(), *mine, now]
    if max(late - early for early, late in itertools.pairwise(moments)) > BREAK_SECONDS:
        return None
    begun = _CLAIMED_SHARE * text.claimed
    seconds = (text.left - begun) * gone / (made + begun)
    error = math.hypot(_SO_FAR_ERROR, _ONE_SEGMENT_ERROR / math.sqrt(len(mine)))
    return Estimate(seconds, error * seconds)


def _tells(job: RenderJob, speed: Throughput, now: float, since: float) -> bool:
    """Say whether what was measured since a job began says when that job ends."""
    if job.started_at is None:
        return now - speed.last_at <= WINDOW_SECONDS
    is_begun = job.segments_done >= FIRST_SHARE * job.segments_total
    return is_begun and not speed.is_stalled(now, since)


def eta_of_chars(
    chars: Mapping[uuid.UUID, tuple[float, int, str]],
    began: Mapping[uuid.UUID, dt.datetime] | None = None,
) -> dict[uuid.UUID, int]:
    """Return in how many seconds so much text, not all of it queued yet, is probably rendered.

    Args:
        chars: by any ids: characters that are left, the priority and the lane of their jobs.
        began: when the work of some of them began; what was rendered before says nothing of it.
    """
    ended, now = _ended_lately() if chars else [], leases.database_now().timestamp()
    if not ended:
        return {}
    lanes = read_lanes()
    found = {}
    for key, (left, priority, lane) in chars.items():
        start = (began or {}).get(key)
        since = -math.inf if start is None else start.timestamp()
        speed = Throughput.of(one for one in ended if one.at >= since and not one.is_reused)
        if speed is None or (start is not None and speed.is_stalled(now, since)):
            continue
        seconds = speed.time_for(_with_ahead(left, priority, lane, speed, lanes)).if_sure()
        if seconds is not None:
            found[key] = math.ceil(seconds)
    return found


def _with_ahead(
    mine: float,
    own_priority: int,
    own_lane: str,
    speed: Throughput,
    lanes: Mapping[tuple[int, str], LaneState],
) -> float:
    """Return the characters that are rendered up to the end of some, the other queued ones too."""
    ahead = 0.0
    for (priority, lane), state in lanes.items():
        chars = state.segments * speed.chars_per_segment
        if priority < own_priority:
            ahead += chars
        elif priority == own_priority and lane != own_lane:
            ahead += min(chars, mine)  # lanes of one class get the same until one is done
    return mine + ahead


def eta_of_new(chars: float, *, priority: int, lane: str) -> int | None:
    """Return in how many seconds a job of so much text would be done, were it queued now."""
    speed = throughput()
    if speed is None:
        return None
    lanes = read_lanes()
    own = lanes.get((priority, lane))
    before = own.segments * speed.chars_per_segment if own else 0.0
    whole = _with_ahead(before + chars, priority, lane, speed, lanes)
    seconds = speed.time_for(whole).if_sure()
    return None if seconds is None else math.ceil(seconds)


class _Files:
    """Know how long files took lately, by their length."""

    def __init__(self, made: Sequence[tuple[float, float, str]]) -> None:
        self._made = made  # seconds of audio, seconds of work, format

    @classmethod
    def look(cls) -> Self:
        """Read the newest files."""
        rows = Export.objects.filter(
            job__isnull=False, status=Export.Status.DONE, finished_at__isnull=False
        ).order_by("-finished_at")
        made = rows.values_list("duration_seconds", "created_at", "finished_at", "format")
        found = [
            (audio, (done - begun).total_seconds(), name)
            for audio, begun, done, name in made[:_LATEST_EXPORTS]
            if audio and done is not None and done > begun  # not where two clocks differ
        ]
        return cls(found)

    def time_for(self, audio_seconds: float, name: str) -> Estimate:
        """Return how long a file takes, by those of its kind and length; without any a guess."""
        alike = [
            work * audio_seconds / audio
            for audio, work, kind in self._made
            if kind == name and audio / _ALIKE <= audio_seconds <= _ALIKE * audio
        ]
        if not alike:
            guess = audio_seconds / _FIRST_FILE_SPEED
            return Estimate(guess, guess)
        known, number = statistics.median(alike), len(alike)
        spread = _ONE_FILE_ERROR / math.sqrt(number)
        if number >= _LEAST_FILES:
            spread = statistics.stdev(alike) / known * math.sqrt(1 + 1 / number)
        return Estimate(known, math.hypot(_FILE_ERROR, spread) * known)

    def left(
        self, job_ids: Sequence[uuid.UUID], texts: Mapping[uuid.UUID, _Texts]
    ) -> dict[uuid.UUID, float | None]:
        """Return how long the files that are being made still take; None near their ends."""
        now = leases.database_now()
        rows = Export.objects.filter(job__in=job_ids, finished_at__isnull=True)
        found: dict[uuid.UUID, float | None] = {}
        for job_id, begun, name in rows.values_list("job", "created_at", "format"):
            if job_id is None:
                continue
            time = self.time_for(texts[job_id].audio_seconds, name)
            gone = (now - begun).total_seconds()
            found[job_id] = Estimate(max(0.0, time.seconds - gone), time.error).if_sure()
        return found


class _Texts(NamedTuple):
    """Count a job's characters, those not rendered yet, and how long its audio will be."""

    left: int = 0
    audio_seconds: float = 0.0
    every: int = 0
    claimed: int = 0


def _texts_of(job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, _Texts]:
    chars = Length("spoken_text")
    rows = Segment.objects.filter(job__in=job_ids).order_by().values("job")
    found = dict.fromkeys(job_ids, _Texts())
    for row in rows.annotate(
        left=Sum(chars, filter=Q(status__in=OPEN)),
        claimed=Sum(chars, filter=Q(status=Segment.Status.CLAIMED)),
        spoken=Sum(chars, filter=Q(take__isnull=False)),
        every=Sum(chars),
        seconds=Sum("take__audio_seconds"),
    ):
        audio = row["seconds"] * row["every"] / row["spoken"] if row["spoken"] else 0.0
        found[row["job"]] = _Texts(row["left"] or 0, audio, row["every"], row["claimed"] or 0)
    return found


def real_time_factor(job: RenderJob) -> float | None:
    """Return seconds of audio per second of work of an ended job, over all that it waited for.

    Takes that were there already count as well. None while it goes on, or where it made no audio.
    """
    if job.started_at is None or job.finished_at is None or not job.audio_seconds:
        return None
    seconds = (job.finished_at - job.started_at).total_seconds()
    return round(job.audio_seconds / seconds, 3) if seconds > 0 else None


def throughput() -> Throughput | None:
    """Return how fast segments were rendered lately; None where too few were to tell."""
    return Throughput.of(one for one in _ended_lately() if not one.is_reused)


def _ended_lately() -> list[Ended]:
    """Return what ended in the window; every request asks, and gets what is a second old at most.

    Reused is also a take that another job, such as a book's sample, has just rendered.
    """
    return cast("list[Ended]", _lately.get_or_set("ended", _read_ended))


def forget_pace() -> None:
    """Look anew at what ended lately when it is asked for next."""
    _lately.clear()


def _read_ended() -> list[Ended]:
    since = leases.database_now() - dt.timedelta(seconds=WINDOW_SECONDS)
    earlier_users = Segment.objects.filter(
        take=OuterRef("take"), finished_at__lt=OuterRef("finished_at")
    )
    is_reused = Q(take__created_at__lt=since) | Q(Exists(earlier_users))
    rows = Segment.objects.filter(finished_at__gte=since, take__isnull=False)
    rows = rows.order_by("-finished_at").annotate(
        chars=Length("spoken_text"),
        begun=F("job__started_at"),
        is_reused=Case(When(is_reused, then=Value(True)), default=Value(False)),
    )
    columns = rows.values_list("finished_at", "chars", "begun", "job", "is_reused")
    return [
        Ended(at.timestamp(), chars, begun.timestamp() if begun else -math.inf, job_id, reused)
        for at, chars, begun, job_id, reused in columns[:MOST_SEGMENTS]
        if at is not None
    ]


def chars_left(job_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return how many characters of each job are not rendered yet."""
    rows = Segment.objects.filter(job__in=job_ids, status__in=OPEN).order_by()
    sums = rows.values("job").annotate(chars=Sum(Length("spoken_text")))
    return {row["job"]: row["chars"] for row in sums}
