"""Say where jobs stand in the queue, how fast it is worked off, and how much each role has to do.

Places are found for a page of jobs at once, with a few queries for all. Speed is measured by the
moments at which segments ended.

`tts_queue`, a view of the database, is a contract with programs that scale workers, such as KEDA: a
row for each kind of work, always all of them, with `kind`, `role` (gpu or cpu), `waiting` (rows
that a worker would claim now), `held` (rows that one has claimed) and `oldest_seconds` (since the
first of those that wait was due). What waits for another codec than that of its voices counts too:
a worker encodes them anew. The view is made after migrations, not by one, and goes before them:
neither database changes every table below a view. Whoever was granted a look keeps it.
"""

from __future__ import annotations

import datetime as dt
import math
import statistics
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

from django.apps import AppConfig
from django.db import connections
from django.db.models import Count, F, Min, Q, QuerySet, Sum
from django.db.models.signals import post_migrate, pre_migrate
from django.dispatch import receiver

from synth.models import ApiKey, RenderJob
from synth.transitions.jobs import UNFINISHED

SEGMENTS_LEFT = (
    F("segments_total") - F("segments_done") - F("segments_failed") - F("segments_cancelled")
)
_QUEUED = RenderJob.Status.QUEUED
_Lane = tuple[int, str]  # priority and lane
_SYSTEM = "system"
_MOST_LANE_CHARS = 40  # of the column


def lane_of(owner_id: int | None, api_key: ApiKey | None) -> str:
    """Return the lane of a job: `key:<id>`, `user:<id>`, or that of the installation itself.

    Lanes of one priority class get the same from the workers, however much each has queued.
    """
    if api_key is not None:
        return f"key:{api_key.pk.hex}"[:_MOST_LANE_CHARS]
    return _SYSTEM if owner_id is None else f"user:{owner_id}"


class Before(NamedTuple):
    """Count what comes before a job in its own lane and class."""

    queued_jobs: int
    segments: int  # of jobs that are queued or run


class LaneState(NamedTuple):
    """Count what a lane still has of one class of priority."""

    queued_jobs: int
    oldest: dt.datetime | None  # when the first of its queued jobs was made
    segments: int  # that are left of jobs that are queued or run
    before: Before  # what is older than the job that was asked for; of all jobs if none was


class QueueState:
    """Read the queue once for places and times of the same jobs, each part when it is asked for."""

    def __init__(self, jobs: Sequence[RenderJob]) -> None:
        self._jobs = [
            job
            for job in jobs
            if job.status in UNFINISHED and not job.cancel_requested and job.paused_at is None
        ]

    @cached_property
    def before(self) -> dict[uuid.UUID, Before]:
        if len(self._jobs) != 1:
            return before_in_lane(self._jobs)
        [job] = self._jobs  # as every request that makes a job asks
        lane = self.lanes.get((job.priority, job.lane))
        return {job.pk: Before(0, 0) if lane is None else lane.before}

    @cached_property
    def lanes(self) -> dict[_Lane, LaneState]:
        return read_lanes(self._jobs[0] if len(self._jobs) == 1 else None)


def queue_positions(
    jobs: Sequence[RenderJob], queue: QueueState | None = None
) -> dict[uuid.UUID, int]:
    """Return the place of each queued job among them, 1 for the next one.

    It says after how many other queued jobs this one begins: after those of more urgent classes,
    the older ones of its own lane, and as many of each other lane, since lanes take turns.
    """
    queue = queue or QueueState(jobs)
    found = {}
    for job in jobs:
        if job.status != _QUEUED or job.paused_at is not None or job.pk not in queue.before:
            continue
        own = queue.before[job.pk].queued_jobs
        place = 1 + own
        mine = queue.lanes.get((job.priority, job.lane))
        own_first = job.created_at if mine is None or mine.oldest is None else mine.oldest
        for (priority, name), lane in queue.lanes.items():
            if priority < job.priority:
                place += lane.queued_jobs
            elif priority == job.priority and name != job.lane and lane.oldest is not None:
                # In each round of turns the lane that has waited longest comes first.
                place += min(lane.queued_jobs, own + (lane.oldest < own_first))
        found[job.pk] = place
    return found


def read_lanes(job: RenderJob | None = None) -> dict[_Lane, LaneState]:
    """Return what each lane with unfinished jobs has left, by one query.

    Args:
        job: of what is older than this one each lane's `before` tells.
    """
    is_queued, is_older = Q(status=_QUEUED), Q()
    if job is not None:
        is_older = Q(created_at__lt=job.created_at) | Q(created_at=job.created_at, pk__lt=job.pk)
    rows = unfinished_jobs().values("priority", "lane")
    counted = rows.annotate(
        queued=Count("pk", filter=is_queued),
        oldest=Min("created_at", filter=is_queued),
        left=Sum(SEGMENTS_LEFT),
        queued_before=Count("pk", filter=is_queued & is_older),
        left_before=Sum(SEGMENTS_LEFT, filter=is_older, default=0),
    )
    return {
        (row["priority"], row["lane"]): LaneState(
            row["queued"],
            row["oldest"],
            row["left"],
            Before(row["queued_before"], row["left_before"]),
        )
        for row in counted
    }


def before_in_lane(jobs: Sequence[RenderJob]) -> dict[uuid.UUID, Before]:
    """Return what comes before each job in its own lane, by one query for all of them."""
    found = {job.pk: Before(0, 0) for job in jobs}
    if not found:
        return found
    older = unfinished_jobs().filter(
        priority__in={job.priority for job in jobs},
        lane__in={job.lane for job in jobs},
        created_at__lte=max(job.created_at for job in jobs),
    )
    rows = older.order_by("created_at", "pk").annotate(left=SEGMENTS_LEFT)
    columns = rows.values_list("pk", "priority", "lane", "status", "left")
    so_far: dict[_Lane, Before] = defaultdict(lambda: Before(0, 0))
    for pk, priority, lane, status, left in columns.iterator(chunk_size=5000):
        queued, segments = so_far[(priority, lane)]
        if pk in found:
            found[pk] = Before(queued, segments)
        so_far[(priority, lane)] = Before(queued + (status == _QUEUED), segments + left)
    return found


def unfinished_jobs() -> QuerySet[RenderJob]:
    """Return the jobs that workers have before them, in no order; paused ones hold nobody up."""
    return RenderJob.objects.filter(
        status__in=UNFINISHED, cancel_requested=False, paused_at__isnull=True
    ).order_by()


WITHIN = 0.3  # of itself: where a time is probably right within that, it is given
# So much longer than usual, and at least so long, is a pause, which parts what was measured.
_LONG, BREAK_SECONDS = 8.0, 30.0
_STALL, _STALL_SECONDS = 3.0, 5.0
_TOGETHER_SECONDS = 0.1
_LEAST_STEPS, _LEAST_GAPS = 5, 2
_SURE = 2.0  # standard deviations that WITHIN has to hold


class Ended(NamedTuple):
    """Say when a segment had its take, of how many characters, and when its job had begun."""

    at: float  # seconds; all moments of one call have the same origin
    chars: int
    begun: float
    job: uuid.UUID | None = None
    is_reused: bool = False


class Estimate(NamedTuple):
    """A time and its standard deviation, in seconds."""

    seconds: float
    error: float

    def plus(self, other: Estimate) -> Estimate:
        """Return the time of both, one after the other."""
        return Estimate(self.seconds + other.seconds, math.hypot(self.error, other.error))

    def if_sure(self) -> float | None:
        """Return the time if it is probably right within WITHIN of itself."""
        return self.seconds if _SURE * self.error <= WITHIN * self.seconds else None


@dataclass(frozen=True, slots=True)
class Throughput:
    """Hold how fast all workers together render, and how steadily.

    Segments that end together are one step; `spread` is the standard deviation of the time that
    one of `steps` took, in means.
    """

    chars_per_second: float
    chars_per_segment: float
    chars_per_step: float
    steps: int
    spread: float
    last_at: float

    @classmethod
    def of(cls, ended: Iterable[Ended]) -> Self | None:
        """Return the throughput of the latest steady part; None where there is none."""
        every = steps_of(ended)
        steps = _after_pause(every)
        # Many segments that began together end together: what lies between such ends has to be
        # in the measured part, more than once.
        least = _LEAST_GAPS * max(
            (step.seconds for step in every if step.seconds <= BREAK_SECONDS), default=0.0
        )
        while len(steps) >= _LEAST_STEPS and sum(step.seconds for step in steps) >= least:
            middle = len(steps) // 2
            early, late = _rate(steps[:middle]), _rate(steps[middle:])
            is_steady = max(early, late) <= (1 + WITHIN) * min(early, late)
            if is_steady or len(steps) < 2 * _LEAST_STEPS:
                return cls._measured(steps)
            steps = steps[middle:]
        return None

    @classmethod
    def _measured(cls, steps: Sequence[_Step]) -> Self | None:
        rate, number = _rate(steps), len(steps)
        if not 0 < rate < math.inf:
            return None
        chars, segments = sum(step.chars for step in steps), sum(step.segments for step in steps)
        off = sum((step.seconds - step.chars / rate) ** 2 for step in steps)
        spread = math.sqrt(off / (number - 1)) * number / (chars / rate)
        return cls(rate, chars / segments, chars / number, number, spread, steps[-1].at)

    def time_for(self, chars: float) -> Estimate:
        if chars <= 0:
            return Estimate(0.0, 0.0)
        seconds, ahead = chars / self.chars_per_second, chars / self.chars_per_step
        error = seconds * self.spread * math.sqrt(1 / self.steps + 1 / ahead)
        # Of what ends together nobody knows whether the last of it needs a whole step of its own.
        last = self.seconds_per_step / 2 * (1 - self.chars_per_segment / self.chars_per_step)
        return Estimate(seconds, math.hypot(error, last))

    @property
    def seconds_per_step(self) -> float:
        return self.chars_per_step / self.chars_per_second

    def is_stalled(self, now: float, since: float) -> bool:
        """Say whether nothing has ended for much longer than usual, since a job began, too."""
        usual = self.seconds_per_step * (1 + self.spread)
        return now - max(self.last_at, since) > max(_STALL_SECONDS, _STALL * usual)


@dataclass(slots=True)
class _Step:
    """What ended at one moment, and the time since the one before it or since its job began."""

    at: float
    seconds: float
    chars: int
    segments: int = 1


def steps_of(ended: Iterable[Ended]) -> list[_Step]:
    """Return the steps, in order, in which segments ended."""
    steps: list[_Step] = []
    for one in sorted(ended, key=lambda one: one.at):
        if steps and one.at - steps[-1].at < _TOGETHER_SECONDS:
            steps[-1].chars += one.chars
            steps[-1].segments += 1
            continue
        before = max(steps[-1].at if steps else -math.inf, one.begun)
        steps.append(_Step(one.at, max(0.0, one.at - before), one.chars))
    return steps


def _after_pause(steps: Sequence[_Step]) -> Sequence[_Step]:
    """Return what ended after the last pause, without its first step, whose start is not known."""
    if not steps:
        return steps
    limit = max(BREAK_SECONDS, _LONG * statistics.median(step.seconds for step in steps))
    pauses = [place for place, step in enumerate(steps) if step.seconds > limit]
    return steps[(pauses[-1] if pauses else 0) + 1 :]


def _rate(steps: Sequence[_Step]) -> float:
    seconds = sum(step.seconds for step in steps)
    return sum(step.chars for step in steps) / seconds if seconds > 0 else math.inf


VIEW = "tts_queue"

# Of each vendor: this moment, and the seconds since one; SQLite keeps moments as text.
_NOW = {
    "postgresql": "statement_timestamp()",
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f', 'now')",
}
_MOMENT = {"postgresql": "{0}", "sqlite": "substr({0}, 1, 23)"}  # to a millisecond
_SECONDS = {
    "postgresql": "CAST(EXTRACT(EPOCH FROM statement_timestamp() - {0}) AS double precision)",
    "sqlite": "(julianday('now') - julianday({0})) * 86400.0",
}
# Kind, role, table, its column of states, the states of a row that waits and of one that is held.
_LEASED = (
    ("version", "gpu", "voices_voiceversion", "status", "pending", "encoding"),
    ("transcript", "gpu", "voices_transcript", "status", "queued", "transcribing"),
    ("export", "cpu", "synth_export", "status", "queued", "claimed"),
    ("delivery", "cpu", "synth_webhookdelivery", "status", "queued", "claimed"),
    ("book", "cpu", "synth_booksource", "state", "importing", "importing"),
    ("book_file", "cpu", "synth_bookfile", "status", "queued", "claimed"),
)
# Jobs whose segments may be rendered, as `synth.transitions.claims.claimable_segments` has it.
_SPEAKING = """
SELECT j.id FROM synth_renderjob j WHERE j.status IN ('queued', 'running')
AND NOT j.cancel_requested AND j.paused_at IS NULL
AND (j.deadline_at IS NULL OR {deadline} > {now})
AND NOT EXISTS (
    SELECT 1 FROM synth_jobvoice p
    JOIN voices_voiceversion v ON v.id = p.version_id
    LEFT JOIN voices_voice w ON w.id = v.voice_id
    LEFT JOIN auth_user u ON u.id = j.owner_id
    WHERE p.job_id = j.id AND (
        v.status <> 'ready' OR w.deleted_at IS NOT NULL OR w.consent_withdrawn_at IS NOT NULL
        OR (NOT w.shared AND NOT u.is_superuser AND w.owner_id <> j.owner_id)))
"""
_RENDERING = (
    "SELECT r.content_key FROM synth_segment r WHERE r.status = 'claimed' AND r.content_key <> ''"
)


def view_query(vendor: str) -> str:
    """Return the query that the view is, for one of the two databases."""
    parts = [_leased(vendor, *one) for one in _LEASED]
    speaking = _SPEAKING.format(now=_NOW[vendor], deadline=_MOMENT[vendor].format("j.deadline_at"))
    source = f"synth_segment s LEFT JOIN ({speaking}) o ON o.id = s.job_id"
    waits = f"s.status = 'queued' AND o.id IS NOT NULL AND s.content_key NOT IN ({_RENDERING})"
    where = "s.status IN ('queued', 'claimed')"
    parts.append(_part(vendor, "segment", "gpu", source, waits, where))
    return " UNION ALL ".join(parts)


def _leased(
    vendor: str, kind: str, role: str, table: str, state: str, waiting: str, held: str
) -> str:
    waits = f"s.claim_token IS NULL AND s.{state} = '{waiting}'"
    return _part(vendor, kind, role, f"{table} s", waits, f"s.{state} IN ('{waiting}', '{held}')")


def _part(vendor: str, kind: str, role: str, source: str, waits: str, where: str) -> str:
    due = _MOMENT[vendor].format("s.not_before")
    is_due = f"{waits} AND {due} <= {_NOW[vendor]}"
    seconds = _SECONDS[vendor].format("s.not_before")
    return (
        f"SELECT '{kind}' AS kind, '{role}' AS role, "
        f"COUNT(CASE WHEN {is_due} THEN 1 END) AS waiting, COUNT(s.claim_token) AS held, "
        f"COALESCE(MAX(CASE WHEN {is_due} THEN {seconds} END), 0.0) AS oldest_seconds "
        f"FROM {source} WHERE {where}"
    )


_GRANTED = """
SELECT grantee FROM information_schema.table_privileges
WHERE table_schema = current_schema() AND table_name = %s AND privilege_type = 'SELECT'
AND grantee <> current_user
"""
_readers: list[str] = []  # of the view that went


@receiver(pre_migrate)
def drop_view(sender: AppConfig, using: str, plan: Any = (), **_: Any) -> None:
    database = connections[using]
    if sender.label != "synth" or not plan:
        return
    with database.cursor() as cursor:
        if database.vendor == "postgresql":
            cursor.execute(_GRANTED, [VIEW])
            _readers.extend(name for (name,) in cursor.fetchall())
        cursor.execute(f"DROP VIEW IF EXISTS {VIEW}")


@receiver(post_migrate)
def make_view(sender: AppConfig, using: str, plan: Any = (), **_: Any) -> None:
    """Make the view, after migrations alone: a flush, between two tests, ends here as well."""
    database = connections[using]
    if sender.label != "synth" or not plan:
        return
    tables = {"synth_segment", *(one[2] for one in _LEASED)}
    with database.cursor() as cursor:
        if not tables <= set(database.introspection.table_names(cursor)):
            return  # some were taken back
        cursor.execute(f"CREATE VIEW {VIEW} AS {view_query(database.vendor)}")
        for name in _readers:
            role = name if name == "PUBLIC" else database.ops.quote_name(name)
            cursor.execute(f"GRANT SELECT ON {VIEW} TO {role}")
    _readers.clear()
