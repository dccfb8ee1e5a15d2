"""Claim segments: which may be rendered now, in which order, and who gets them.

A lane is whose share of the workers a job takes: that of an API key, or of a user. Within a class
of priority the next segment is one of the lane that has the least claimed at that moment, and of
several such lanes of the one whose turn is the longest ago: with more lanes than a worker has room
for, they take turns. Within a lane the oldest job goes first and its text in order, so that what is
in the engine together mostly has one voice. With one lane that is the order of age alone. What is
rendered after earlier segments waits for these: other chains, chapters and jobs go ahead of it.

The cost does not grow with what is queued: lanes come from an index of unfinished jobs, jobs in
their order from the same index, and of segments are read no more than are asked for.
"""

from __future__ import annotations

import datetime as dt
import heapq
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from django.db import IntegrityError, connection, transaction
from django.db.models import Case, Count, Exists, F, Min, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce

from synth.jobs.removal import update_jobs
from synth.models import LaneTurn, RenderJob, Segment
from synth.transitions.batches import start_batches
from synth.transitions.jobs import OPEN, UNFINISHED, JobStatus, unready_voices
from ttsweb import leases
from ttsweb.leases import AnyClaim, Claim

INTERACTIVE = RenderJob.Priority.INTERACTIVE


@dataclass(eq=False)
class SegmentClaim(Claim):
    """A held segment, its job, and the job's priority."""

    job_id: uuid.UUID
    priority: int


def claimable_segments(codec_fingerprint: str) -> QuerySet[Segment]:
    """Return the segments that a worker with this codec may render now, by class and age.

    What a worker takes is in another order where several lanes have some: see `choose_fairly`.
    """
    now = leases.database_now()
    unready = unready_voices(codec_fingerprint).filter(job=OuterRef("job"))
    return Segment.objects.filter(
        ~Exists(unready),
        ~Q(content_key__in=rendering_keys()),
        ~_earlier_is_open(),
        Q(job__deadline_at__isnull=True) | Q(job__deadline_at__gt=now),
        status=Segment.Status.QUEUED,
        not_before__lte=now,
        job__cancel_requested=False,
        job__paused_at__isnull=True,
        job__status__in=UNFINISHED,
    ).order_by("job__priority", "job__created_at", "pk")


def claim_segments(
    *,
    worker: str,
    limit: int,
    codec_fingerprint: str,
    interactive_limit: int = 0,
    ids: Sequence[int] | None = None,
    attempts_below: int | None = None,
    losses_below: int | None = None,
    hold: Callable[[Sequence[SegmentClaim]], None] | None = None,
    token: uuid.UUID | None = None,
) -> list[SegmentClaim]:
    """Move segments QUEUED -> CLAIMED and their jobs to RUNNING, most urgent first.

    Up to `limit` of any class; those of interactive jobs up to `interactive_limit` where that is
    more. Within a class lanes get equal shares. With `attempts_below`, only those tried less often,
    with `losses_below`, those whose workers ended less often; with `ids`, which name what is to run
    whatever else waits, only among those. Of many workers exactly one gets each segment.

    Args:
        hold: called with the claims once they are committed, before `note_claims`: a database that
            goes away between the two must not leave claims that nobody renews.
        token: that of the claims; None makes one.
    """
    has_locks = connection.features.has_select_for_update_skip_locked
    want = Want(codec_fingerprint, attempts_below, losses_below, is_locking=has_locks)
    if has_locks:
        with transaction.atomic():
            claims = _claim(_choose(want, limit, interactive_limit, ids), worker, token)
    else:
        # One writer at a time: looking for candidates would keep all others waiting. Whoever takes
        # one of them meanwhile has moved it out of QUEUED.
        chosen = _choose(want, limit, interactive_limit, ids)
        if not chosen:
            return []
        with transaction.atomic():
            claims = _claim(chosen, worker, token)
    if claims:
        if hold is not None:
            hold(claims)
        note_claims({claim.job_id for claim in claims})
    return claims


@transaction.atomic
def note_claims(jobs: Collection[uuid.UUID]) -> None:
    """Move jobs with claimed segments to RUNNING and note whose turn it was; it may be done again.

    On its own: with the rows still locked it could wait for a cancel that waits for them.
    """
    now = leases.database_now()
    queued = RenderJob.objects.filter(pk__in=jobs, status=JobStatus.QUEUED)
    if update_jobs(queued, status=JobStatus.RUNNING, started_at=now, updated_at=now):
        start_batches(jobs)
    lanes = set(RenderJob.objects.filter(pk__in=jobs).values_list("priority", "lane"))
    LaneTurn.objects.bulk_create(
        [LaneTurn(priority=priority, lane=lane, turn_at=now) for priority, lane in sorted(lanes)],
        update_conflicts=True,
        unique_fields=["priority", "lane"],
        update_fields=["turn_at"],
    )


def begin_takes(wanted: Mapping[AnyClaim, str]) -> set[AnyClaim]:
    """Note which takes are rendered under which claims; return the claims that may render.

    Of all claims with one key, here and in every other worker, one may: the others wait, see
    `wait_for_takes`. A job that is more urgent than the one whose segment renders does not wait.
    Whether a take has come since it was looked for is to be looked at afterwards.

    Args:
        wanted: the content keys of takes that are not there.
    """
    chosen: dict[str, AnyClaim] = {}
    for claim, key in wanted.items():
        chosen.setdefault(key, claim)
    if not chosen:
        return set()
    try:
        with transaction.atomic():
            return _begin_takes({claim: key for key, claim in chosen.items()})
    except IntegrityError:  # another worker has begun one of them in this moment
        begun = set()
        for key, claim in chosen.items():
            with suppress(IntegrityError), transaction.atomic():
                begun |= _begin_takes({claim: key})
        return begun


def _begin_takes(wanted: Mapping[AnyClaim, str]) -> set[AnyClaim]:
    rendering = Segment.objects.filter(status=Segment.Status.CLAIMED)
    ours = [claim.pk for claim in wanted]
    others = rendering.filter(content_key__in=wanted.values()).exclude(pk__in=ours)
    found = others.values_list("content_key", "pk", "job__priority")
    held = {key: (pk, priority) for key, pk, priority in found}
    if held:
        rows = Segment.objects.filter(pk__in=ours)
        priorities = dict(rows.values_list("pk", "job__priority"))
        slower = [
            held.pop(key)[0]
            for claim, key in wanted.items()
            if key in held and held[key][1] > priorities.get(claim.pk, INTERACTIVE)
        ]
        rendering.filter(pk__in=slower).update(content_key="")
    mine = {claim: key for claim, key in wanted.items() if key not in held}
    if mine:
        _held(rendering, mine).update(content_key=_keys_of(mine))
    return set(mine)


def wait_for_takes(waiting: Mapping[AnyClaim, str]) -> int:
    """Move CLAIMED -> QUEUED, to be claimed again once nobody renders the take of that key.

    The claim costs no attempt. Segments of cancelled jobs stay claimed; returns how many moved.
    """
    speaking = RenderJob.objects.filter(cancel_requested=False)
    rows = _held(Segment.objects.filter(job__in=speaking), waiting)
    return rows.filter(status=Segment.Status.CLAIMED).update(
        status=Segment.Status.QUEUED,
        content_key=_keys_of(waiting),
        **leases.free(spend_attempt=False, not_before=leases.database_now()),
    )


def _held(rows: QuerySet[Segment], claims: Collection[AnyClaim]) -> QuerySet[Segment]:
    tokens = {claim.token for claim in claims}
    return rows.filter(pk__in=[claim.pk for claim in claims], claim_token__in=tokens)


def _keys_of(claims: Mapping[AnyClaim, str]) -> Case:
    return Case(*[When(pk=claim.pk, then=Value(key)) for claim, key in claims.items()])


def _choose(want: Want, limit: int, interactive_limit: int, ids: Sequence[int] | None) -> list[int]:
    if ids is not None:
        rows = claimable_segments(want.codec_fingerprint).filter(pk__in=ids)
        if want.attempts_below is not None:
            rows = rows.filter(attempts__lt=want.attempts_below)
        if want.is_locking:
            rows = rows.select_for_update(skip_locked=True, of=("self",))
        return list(rows.values_list("pk", flat=True)[:limit])
    chosen: list[int] = []
    for priority in sorted(RenderJob.Priority.values):
        most = max(limit, interactive_limit) if priority == INTERACTIVE else limit - len(chosen)
        chosen += choose_fairly(priority, most, want)
    return chosen


def _claim(chosen: Sequence[int], worker: str, token: uuid.UUID | None) -> list[SegmentClaim]:
    """Claim those of the rows that are still free, under one token; call in a transaction."""
    if not chosen:
        return []
    token = token or uuid.uuid4()
    # An expression, so that SQLite reads these rows and not its index of all that is queued.
    rows = Segment.objects.alias(state=Coalesce("status", Value(""))).filter(pk__in=chosen)
    rows.filter(state=Segment.Status.QUEUED).update(
        content_key="", **leases.claimed(Segment, worker=worker, token=token)
    )
    won = Segment.objects.filter(pk__in=chosen, claim_token=token)
    found = {row[0]: row[1:] for row in won.values_list("pk", "job_id", "job__priority")}
    return [SegmentClaim(pk, token, *found[pk]) for pk in chosen if pk in found]


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


def choose_fairly(priority: int, limit: int, want: Want) -> list[int]:
    """Return up to `limit` primary keys of segments of one class, in their fair order.

    In a transaction where `want` locks them.
    """
    lanes = _lanes(priority, want) if limit > 0 else []
    left = limit
    while left and (open_lanes := [lane for lane in lanes if not lane.is_exhausted]):
        for lane, share in _shares(open_lanes, left):
            left -= lane.take(share)
    # Of each lane in its order, the lane with the least in flight first.
    turns = (
        (lane.in_flight + number, place, pk)
        for place, lane in enumerate(lanes)
        for number, pk in enumerate(lane.chosen)
    )
    return [pk for _, _, pk in sorted(turns)]


def _lanes(priority: int, want: Want) -> list[_Lane]:
    """Return the lanes with unfinished jobs: whose turn is the longest ago first, then by age."""
    jobs = _queued_jobs().filter(priority=priority)
    oldest = dict(jobs.order_by().values_list("lane").annotate(oldest=Min("created_at")))
    if not oldest:
        return []
    turns = LaneTurn.objects.filter(priority=priority, lane__in=oldest)
    last = dict(turns.values_list("lane", "turn_at")) if len(oldest) > 1 else {}
    held = Segment.objects.filter(status=Segment.Status.CLAIMED, job__priority=priority)
    in_flight = held.order_by().values_list("job_id", "job__lane").annotate(count=Count("pk"))
    per_lane: Counter[str] = Counter()
    per_job: dict[uuid.UUID, int] = {}
    for job_id, lane, count in in_flight:
        per_lane[lane] += count
        per_job[job_id] = count
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
            unready = unready_voices(self.want.codec_fingerprint).filter(job=OuterRef("pk"))
            queued = _queued(Segment.objects.filter(job=OuterRef("pk")), self.want)
            rows = RenderJob.objects.filter(
                Q(deadline_at__isnull=True) | Q(deadline_at__gt=self.want.now),
                Exists(queued),
                ~Exists(unready),
                pk__in=[pk for _, pk in keys],
                status__in=UNFINISHED,
                cancel_requested=False,
                paused_at__isnull=True,
            ).order_by()
            left = dict(rows.values_list("pk").annotate(left=F("segments_total") - closed))
            held = self.claimed_of_job
            self._jobs = [(pk, left[pk] - held.get(pk, 0)) for _, pk in keys if pk in left]
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
        chosen: list[int] = []
        if whole:
            place = {pk: index for index, pk in enumerate(whole)}
            rows = self._rows(Segment.objects.filter(job__in=whole)).values_list("job_id", "pk")
            ordered = sorted((place[job_id], pk) for job_id, pk in rows)
            chosen = [pk for _, pk in ordered[:number]]
        if self._jobs and len(chosen) < number:
            pk, _ = self._jobs[0]
            own = self._rows(Segment.objects.filter(job=pk)).exclude(pk__in=self.chosen)
            some = list(own.order_by("pk").values_list("pk", flat=True)[: number - len(chosen)])
            if len(some) < number - len(chosen):
                self._jobs.pop(0)
            chosen += some
        return chosen

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
    return rows.filter(~_earlier_is_open(), free_from__lte=want.now)


def _earlier_is_open() -> Exists:
    """Return the condition that an earlier segment of the chain is still to be rendered."""
    # An expression, so that SQLite reads the index of chains and not that of all that is queued.
    rows = Segment.objects.alias(state=Coalesce("status", Value("")))
    return Exists(
        rows.filter(
            chapter=OuterRef("chapter"),
            chain=OuterRef("chain"),
            index__lt=OuterRef("index"),
            state__in=OPEN,
        )
    )
