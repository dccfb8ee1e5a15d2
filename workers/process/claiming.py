"""Claim work for this process and start on it: what the pump and the Celery tasks both call.

A row whose worker ended may be what ended it, or one of many that were near. While such segments
wait, this worker holds few at a time, these first, so that the next end leaves fewer under
suspicion; one that was killed itself does so for a while longer, see `claim_ahead`. What was near
twice, of whatever kind, and what the engine has on its last attempt, is run alone: nothing else is
claimed while it runs, and it starts when nothing else runs. Webhooks alone go on: they kill nobody.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import threading
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet

from synth.models import Export, RenderJob, Segment
from synth.transitions.claims import (
    INTERACTIVE,
    SegmentClaim,
    claim_segments,
    claimable_segments,
    note_claims,
)
from synth.transitions.files import EXPORT_PRIORITY
from ttsweb import leases
from ttsweb.leases import LOSSES_BESIDE_OTHERS
from ttsweb.work import Kind
from workers.errors import DATABASE_AWAY, retry_while_away
from workers.kinds import WORKS
from workers.process import worker_process
from workers.process.held_claims import SURE_SECONDS, HeldClaim, Room
from workers.process.worker_process import WorkerProcess
from workers.webhook import take_deliveries

MOST_FILES_TOGETHER = 16
MOST_SEGMENTS_TOGETHER = 4  # of a job whose file is short
_TOGETHER = (Kind.SEGMENT, Kind.EXPORT)  # many claims share a run
_KILLERS = tuple(kind for kind in Kind if kind.may_kill)  # a suspect one runs beside no other


def take_work(process: WorkerProcess) -> int:
    """Claim whatever this process has a use for; return how many rows."""
    _take_suspect(process)
    return sum(take(process, kind) for kind in _performed(process))


def _performed(process: WorkerProcess) -> list[Kind]:
    has_engine = process.has_engine_role and process.host.is_ready
    return [kind for kind in WORKS if (has_engine if kind.needs_engine else process.has_cpu_role)]


def take(process: WorkerProcess, kind: Kind) -> int:
    """Claim rows of a kind that wait, and start; return how many."""
    particular = _PARTICULAR.get(kind)
    if particular is not None:
        return particular(process)
    with process.claim_lock:
        room = 0 if process.is_isolating else process.room(kind)
        if not room:
            return 0
        waiting = WORKS[kind].waiting().filter(losses__lt=LOSSES_BESIDE_OTHERS)
        if kind.needs_engine:
            waiting = waiting.filter(attempts__lt=_last_attempt())
        chosen = list(waiting.values_list("pk", flat=True)[:room])
        claims = [claim for pk in chosen for claim in _claim_one(process, kind, waiting, pk)]
    return _start(process, claims)


def take_segments(process: WorkerProcess) -> int:
    """Claim segments that can be rendered, and start; return how many.

    Never more than keep the engine busy for a moment: other workers get the rest.
    """
    with process.claim_lock:
        room = Room(0, 0) if process.is_isolating else process.segment_room()
        if not room.interactive:
            return 0
        claims: list[HeldClaim] = []
        last = _last_attempt()
        limit, suspects = _held_limit(process)
        process.is_careful = limit is not None
        if limit is not None:
            room = _small_room(process, limit)
            if suspects and room.any_class:
                few = Room(room.any_class, 0)
                claims = _claim_segments(process, few, ids=suspects, attempts_below=last)
                room = _small_room(process, limit)
        if room.interactive:
            claims += _claim_segments(process, room, losses_below=1, attempts_below=last)
    return _start(process, claims)


def note_last_losses(process: WorkerProcess) -> None:
    """Begin small where processes of this worker were killed lately, as rows say.

    With half of what the last one lost, or with as many times half of the slots as one of these
    segments was lost.
    """
    lost = Segment.objects.filter(losses__gt=0, claimed_by=process.name)
    since = leases.database_now() - dt.timedelta(seconds=SURE_SECONDS)
    waiting = list(lost.filter(status=Segment.Status.QUEUED).values_list("losses", flat=True))
    lately = list(lost.filter(finished_at__gt=since).values_list("losses", flat=True))
    if waiting or lately:
        most = min(len(waiting) or math.inf, process.host.engine.slots)
        process.ahead.note_loss(int(most) >> max(waiting + lately))


def take_exports(process: WorkerProcess) -> int:
    """Claim exports that wait, most urgent first, and start on them; return how many.

    Short files are made many in one run, which settles them together. Bulk leaves a thread free,
    where there are several, for files that somebody waits for. Of many calls at once one looks, and
    once more for those that came meanwhile.
    """
    taken = 0
    process.exports_due.set()
    while process.exports_due.is_set() and process.exports_lock.acquire(blocking=False):
        try:
            process.exports_due.clear()
            taken += _take_exports(process)
        finally:
            process.exports_lock.release()
    return taken


def _take_exports(process: WorkerProcess) -> int:
    taken = 0
    while not process.is_isolating and (room := process.room(Kind.EXPORT)):
        waiting = WORKS[Kind.EXPORT].waiting().filter(losses__lt=LOSSES_BESIDE_OTHERS)
        waiting = waiting.annotate(priority=EXPORT_PRIORITY)
        if room == 1 and worker_process.WORKER_THREADS > 1:
            waiting = waiting.filter(priority=INTERACTIVE)
        priority, chosen = _files_together(waiting, room)
        claimable = WORKS[Kind.EXPORT].waiting()
        made = leases.claim(claimable, chosen, worker=process.name) if chosen else []
        if not made:
            break
        add = partial(process.held.add, Kind.EXPORT, priority=priority)
        taken += _start(process, [add(claim.pk, claim.token) for claim in made])
    return taken


def _files_together(waiting: QuerySet[Export], room: int) -> tuple[int, list[uuid.UUID]]:
    """Return the class of the first of these exports, and those that go in one run with it.

    Those that somebody waits for are spread over the runs that there is room for. What was tried
    before goes alone: it may be what ended the worker then.
    """
    columns = "pk", "priority", "job__kind", "job__segments_total", "attempts", "losses"
    rows = list(waiting.values_list(*columns)[: room * MOST_FILES_TOGETHER])
    if not rows:
        return 0, []
    first, priority, *_ = rows[0]
    short: list[uuid.UUID] = []
    for pk, own_priority, kind, segments, attempts, losses in rows:
        is_tried = attempts or losses or own_priority != priority
        if is_tried or kind != RenderJob.Kind.SPEECH or segments > MOST_SEGMENTS_TOGETHER:
            break
        short.append(pk)
    is_urgent = priority == INTERACTIVE
    most = math.ceil(len(short) / room) if is_urgent else MOST_FILES_TOGETHER
    return priority, short[:most] or [first]


def _start(process: WorkerProcess, claims: list[HeldClaim]) -> int:
    """Run the work behind fresh claims; segments of a class together, and all exports."""
    for _, run in itertools.groupby(claims, key=_run_of):
        batch = list(run)
        kind = batch[0].kind
        perform = WORKS[kind].perform
        process.run(batch, perform, batch if kind in _TOGETHER else batch[0])
    return len(claims)


def _run_of(claim: HeldClaim) -> Any:
    if claim.kind is Kind.SEGMENT:
        return claim.priority
    return claim.kind if claim.kind in _TOGETHER else claim.pk


def _last_attempt() -> int:
    """Return the attempts that a row has behind it when the next one is its last."""
    return max(1, settings.MAX_ATTEMPTS - 1)


def _take_suspect(process: WorkerProcess) -> None:
    """Run one suspect row alone; while one waits or runs, nothing else is claimed."""
    with process.claim_lock:
        if process.is_isolating and process.held.count(*_KILLERS):
            return
        process.is_isolating = False
        suspect = _find_suspect(process) if process.may_claim else None
        if suspect is None:
            return
        process.is_isolating = True
        with process.exports_lock:  # what is being claimed now is held from here on
            pass
        if process.held.count(*_KILLERS):
            return  # it starts as soon as what runs has ended
        kind, rows, pk = suspect
        if kind is Kind.SEGMENT:
            claims = _claim_segments(process, Room(1, 1), ids=[pk])
        else:
            claims = _claim_one(process, kind, rows, pk)
    _start(process, claims)


def _find_suspect(process: WorkerProcess) -> tuple[Kind, QuerySet[Any], Any] | None:
    """Return the kind, the claimable rows of it, and the key of one that has to run alone."""
    # `losses__gt=0` is the condition of the index, which SQLite does not infer from the other one.
    lost = Q(losses__gte=LOSSES_BESIDE_OTHERS) & Q(losses__gt=0)
    last = Q(attempts__gte=_last_attempt())
    for kind in _performed(process):
        if not kind.may_kill:
            continue
        rows: QuerySet[Any] = Segment.objects.all()
        if kind is Kind.SEGMENT:
            found = _suspect_segment(process, lost | last)
        else:
            rows = WORKS[kind].waiting()
            suspects = rows.filter(lost | last if kind.needs_engine else lost)
            found = suspects.order_by("losses").values_list("pk", flat=True).first()
        if found is not None:
            return kind, rows, found
    return None


def _claim_one(process: WorkerProcess, kind: Kind, rows: QuerySet[Any], pk: Any) -> list[HeldClaim]:
    claims = leases.claim(rows, [pk], worker=process.name)
    return [process.held.add(kind, claim.pk, claim.token) for claim in claims]


def _suspect_segment(process: WorkerProcess, suspect: Q) -> int | None:
    """Return a claimable segment that has to run alone, those with the fewest losses first.

    Mostly two cheap looks say that none is.
    """
    queued = Segment.objects.filter(status=Segment.Status.QUEUED)
    lost = queued.filter(losses__gt=0, losses__gte=LOSSES_BESIDE_OTHERS)  # as for other kinds
    if not queued.filter(attempts__gte=_last_attempt()).exists() and not lost.exists():
        return None
    codec = process.host.engine.codec_fingerprint
    segments = claimable_segments(codec).filter(suspect)
    ordered = segments.order_by("losses", *segments.query.order_by)
    return ordered.values_list("pk", flat=True).first()


def _held_limit(process: WorkerProcess) -> tuple[int | None, list[int]]:
    """Return how many segments to hold at most, None for any number, and suspects to take first.

    Suspects are segments whose worker ended once; while some wait, or are held here, half the slots
    are enough.
    """
    limit = process.ahead.held_limit()
    half = max(1, process.host.engine.slots // 2)
    small = half if limit is None else min(limit, half)
    lost = Segment.objects.filter(losses=1, losses__gt=0)  # as the condition of the index says
    suspects: list[int] = []
    if lost.filter(status=Segment.Status.QUEUED).exists():
        codec = process.host.engine.codec_fingerprint
        waiting = claimable_segments(codec).filter(losses=1)
        suspects = list(waiting.values_list("pk", flat=True)[:small])
    held = [claim.pk for claim in process.held.unrendered()]
    if suspects or (held and lost.filter(pk__in=held).exists()):
        return small, suspects
    return limit, []


def _small_room(process: WorkerProcess, limit: int) -> Room:
    """Return the room below a limit: a kill then leaves fewer to suspect, and costs less.

    What is still to be stored counts as well, since it would be lost. Interactive segments have as
    much room again.
    """
    held = process.held.of(Kind.SEGMENT)
    num_interactive = sum(claim.priority == INTERACTIVE for claim in held)
    return Room(max(0, limit - len(held)), max(0, limit - num_interactive))


def _claim_segments(
    process: WorkerProcess, room: Room, *, ids: Sequence[int] | None = None, **below: int
) -> list[HeldClaim]:
    claims: list[SegmentClaim] = []
    held: list[HeldClaim] = []

    def hold(made: Sequence[SegmentClaim]) -> None:
        claims.extend(made)
        held.extend(process.held.add(Kind.SEGMENT, **vars(claim)) for claim in made)

    try:
        claim_segments(
            worker=process.name,
            limit=room.any_class,
            interactive_limit=room.interactive,
            codec_fingerprint=process.host.engine.codec_fingerprint,
            ids=ids,
            hold=hold,
            **below,
        )
    except DATABASE_AWAY:
        if not held:
            raise
        # Not in this thread: the pump has to see for itself that the database is away.
        threading.Thread(target=_note_later, args=(claims,), daemon=True).start()
    if held:
        process.ahead.note_claims()
    return held


def _note_later(claims: Sequence[SegmentClaim]) -> None:
    try:
        retry_while_away(partial(note_claims, claims))
    finally:
        connection.close()


_PARTICULAR: dict[Kind, Callable[[WorkerProcess], int]] = {
    Kind.SEGMENT: take_segments,
    Kind.EXPORT: take_exports,
    Kind.DELIVERY: take_deliveries,
}
