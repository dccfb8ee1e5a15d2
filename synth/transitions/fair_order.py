"""Choose which segments go next, so that no lane waits for all that another one has queued.

A lane is whose share of the workers a job takes: that of an API key, or of a user. Within a class
of priority the next segment is one of the lane that has the least claimed at that moment, and of
several such lanes of the one whose turn is the longest ago: with more lanes than a worker has room
for, they take turns. Within a lane the oldest job goes first and its text in order, so that what is
in the engine together mostly has one voice. With one lane that is the order of age alone.

The cost does not grow with what is queued: lanes come from an index of unfinished jobs, jobs in
their order from the same index, and of segments are read no more than are asked for.
"""

from __future__ import annotations

import datetime as dt
import heapq
import uuid
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from django.db.models import Count, Exists, F, Min, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Coalesce

from synth.models import LaneTurn, RenderJob, Segment
from synth.transitions.jobs import UNFINISHED
from synth.transitions.silenced import unready_voices
from ttsweb import leases

JOBS_AT_ONCE = 64  # of one lane; each further look is at four times as many, up to the most
MOST_JOBS_AT_ONCE = 4096


def rendering_keys() -> frozenset[str]:
    """Return the keys of the takes that are being rendered, each under one claim."""
    rows = Segment.objects.filter(status=Segment.Status.CLAIMED).exclude(content_key="")
    return frozenset(rows.order_by().values_list("content_key", flat=True))


@dataclass(frozen=True)
class Want:
    """Say which segments are looked for.

    `attempts_below`: only those that were tried less often; `losses_below`: whose workers ended
    less often. `is_locking`: lock the rows that are chosen, leaving out those that somebody else
    has locked; inside a transaction. `rendering` are the takes that are being rendered: segments
    that wait for one of them are left out.
    """

    codec_fingerprint: str
    attempts_below: int | None = None
    losses_below: int | None = None
    is_locking: bool = False
    now: dt.datetime = field(default_factory=leases.database_now)
    rendering: frozenset[str] = field(default_factory=rendering_keys)


def claimable_jobs(want: Want) -> Q:
    """Return the condition of jobs of which something may be rendered now."""
    unready = unready_voices(want.codec_fingerprint).filter(job=OuterRef("pk"))
    queued = _queued(Segment.objects.filter(job=OuterRef("pk")), want)
    in_time = Q(deadline_at__isnull=True) | Q(deadline_at__gt=want.now)
    is_open = Q(cancel_requested=False, paused_at__isnull=True)
    return in_time & is_open & Q(Exists(queued)) & ~Q(Exists(unready))


def choose_fairly(priority: int, limit: int, want: Want) -> list[int]:
    """Return up to `limit` primary keys of segments of one class, in their fair order.

    In a transaction where `want` locks them.
    """
    lanes = _lanes(priority, want) if limit > 0 else []
    left = limit
    while left:
        open_lanes = [lane for lane in lanes if not lane.is_exhausted]
        if not open_lanes:
            break
        for lane, share in _shares(open_lanes, left):
            left -= lane.take(share)
    return _merged({lane.name: (lane.in_flight, lane.chosen) for lane in lanes if lane.chosen})


def _merged(lanes: dict[str, tuple[int, Sequence[int]]]) -> list[int]:
    """Return what the lanes have, each in its order, the lane with the least in flight first."""
    heap = [(held, place, name, 0) for place, (name, (held, _)) in enumerate(lanes.items())]
    heapq.heapify(heap)
    merged = []
    while heap:
        held, place, name, taken = heapq.heappop(heap)
        chosen = lanes[name][1]
        if taken < len(chosen):
            merged.append(chosen[taken])
            heapq.heappush(heap, (held + 1, place, name, taken + 1))
    return merged


def note_turns(priority: int, lanes: Collection[str]) -> None:
    """Note that workers have just taken segments of these lanes."""
    now = leases.database_now()
    LaneTurn.objects.bulk_create(
        [LaneTurn(priority=priority, lane=lane, turn_at=now) for lane in sorted(lanes)],
        update_conflicts=True,
        unique_fields=["priority", "lane"],
        update_fields=["turn_at"],
    )


def in_flight(priority: int) -> dict[uuid.UUID, tuple[str, int]]:
    """Return the lane of each job of a class that has claimed segments, and how many these are."""
    held = Segment.objects.filter(status=Segment.Status.CLAIMED, job__priority=priority)
    counted = held.order_by().values_list("job_id", "job__lane").annotate(count=Count("pk"))
    return {job_id: (lane, count) for job_id, lane, count in counted}


def _lanes(priority: int, want: Want) -> list[_Lane]:
    """Return the lanes with unfinished jobs: whose turn is the longest ago first, then by age."""
    jobs = _queued_jobs().filter(priority=priority)
    oldest = dict(jobs.order_by().values_list("lane").annotate(oldest=Min("created_at")))
    if not oldest:
        return []
    turns = LaneTurn.objects.filter(priority=priority, lane__in=oldest)
    last = dict(turns.values_list("lane", "turn_at")) if len(oldest) > 1 else {}
    held = in_flight(priority)
    per_lane: Counter[str] = Counter()
    for lane, count in held.values():
        per_lane[lane] += count
    per_job = {job_id: count for job_id, (_, count) in held.items()}
    never = dt.datetime.min.replace(tzinfo=dt.UTC)
    names = sorted(oldest, key=lambda name: (last.get(name, never), oldest[name], name))
    return [_Lane(name, priority, per_lane[name], per_job, want) for name in names]


def _queued_jobs() -> QuerySet[RenderJob]:
    """Return the unfinished jobs with queued segments; many more may wait for their files alone."""
    queued = Segment.objects.filter(job=OuterRef("pk"), status=Segment.Status.QUEUED)
    return RenderJob.objects.filter(Exists(queued), status__in=UNFINISHED)


def _shares(lanes: Sequence[_Lane], left: int) -> list[tuple[_Lane, int]]:
    """Return how many each lane is to give, so that all come to the same number in flight."""
    heap = [(lane.in_flight + len(lane.chosen), place) for place, lane in enumerate(lanes)]
    heapq.heapify(heap)
    shares: Counter[int] = Counter()
    for _ in range(left):
        held, place = heap[0]
        heapq.heapreplace(heap, (held + 1, place))
        shares[place] += 1
    return [(lanes[place], share) for place, share in sorted(shares.items())]


@dataclass(eq=False)
class _Lane:
    """Read the segments of a lane in their order, no more of them than are asked for."""

    name: str
    priority: int
    in_flight: int
    claimed_of_job: dict[uuid.UUID, int]
    want: Want
    chosen: list[int] = field(default_factory=list)
    is_exhausted: bool = False
    _jobs: list[tuple[uuid.UUID, int]] = field(default_factory=list)  # with queued segments, about
    _seen: tuple[dt.datetime, uuid.UUID] | None = None
    _looks: int = 0

    def take(self, number: int) -> int:
        """Choose up to `number` segments more; return how many. Fewer exhaust the lane."""
        taken = 0
        while taken < number:
            if not self._jobs and not self._find_jobs():
                self.is_exhausted = True
                break
            chosen = self._from_jobs(number - taken)
            self.chosen += chosen
            taken += len(chosen)
        return taken

    def _find_jobs(self) -> bool:
        """Find the next jobs that have something to claim; False when there are none."""
        while True:
            jobs = _queued_jobs().filter(priority=self.priority, lane=self.name)
            jobs = jobs.order_by("created_at", "pk")
            if self._seen is not None:
                at, pk = self._seen
                jobs = jobs.filter(Q(created_at__gt=at) | Q(created_at=at, pk__gt=pk))
            number = min(JOBS_AT_ONCE * 4**self._looks, MOST_JOBS_AT_ONCE)
            keys = list(jobs.values_list("created_at", "pk")[:number])
            if not keys:
                return False
            self._seen, self._looks = keys[-1], self._looks + 1
            closed = F("segments_done") + F("segments_failed") + F("segments_cancelled")
            rows = RenderJob.objects.filter(
                claimable_jobs(self.want), pk__in=[pk for _, pk in keys], status__in=UNFINISHED
            )
            found = dict(
                rows.order_by().values_list("pk").annotate(left=F("segments_total") - closed)
            )
            self._jobs = [
                (pk, found[pk] - self.claimed_of_job.get(pk, 0)) for _, pk in keys if pk in found
            ]
            if self._jobs:
                return True

    def _from_jobs(self, number: int) -> list[int]:
        """Take from the first jobs: all of those that have too few together, then some of one."""
        whole: list[uuid.UUID] = []
        missing = number
        while self._jobs and 0 < self._jobs[0][1] <= missing:
            pk, queued = self._jobs.pop(0)
            whole.append(pk)
            missing -= queued
        chosen = self._all_of(whole, number) if whole else []
        if self._jobs and len(chosen) < number:
            pk, _ = self._jobs[0]
            rows = self._rows(Segment.objects.filter(job=pk)).exclude(pk__in=self.chosen)
            some = list(rows.order_by("pk").values_list("pk", flat=True)[: number - len(chosen)])
            if len(some) < number - len(chosen):
                self._jobs.pop(0)
            chosen += some
        return chosen

    def _all_of(self, jobs: Sequence[uuid.UUID], number: int) -> list[int]:
        """Return the queued segments of jobs that have about `number` of them, in their order."""
        place = {pk: index for index, pk in enumerate(jobs)}
        rows = self._rows(Segment.objects.filter(job__in=jobs)).values_list("job_id", "pk")
        ordered = sorted((place[job_id], pk) for job_id, pk in rows)
        return [pk for _, pk in ordered[:number]]

    def _rows(self, segments: QuerySet[Segment]) -> QuerySet[Segment]:
        """Return those of the segments that may be claimed, locked where that is wanted."""
        rows = _queued(segments, self.want).order_by()
        return rows.select_for_update(skip_locked=True) if self.want.is_locking else rows


def _queued(segments: QuerySet[Segment], want: Want) -> QuerySet[Segment]:
    """Return those of some jobs' segments that may be claimed.

    Columns are wrapped in expressions that change nothing: without statistics SQLite takes a range
    for the better condition and reads the index of all queued segments, not the one of the job's.
    """
    rows = segments.filter(status=Segment.Status.QUEUED).alias(
        free_from=Coalesce("not_before", Value(want.now)),
        tries=F("attempts") + 0,
        lost=F("losses") + 0,
    )
    if want.losses_below is not None:
        rows = rows.filter(lost__lt=want.losses_below)
    if want.attempts_below is not None:
        rows = rows.filter(tries__lt=want.attempts_below)
    if want.rendering:
        rows = rows.exclude(content_key__in=want.rendering)
    return rows.filter(free_from__lte=want.now)
