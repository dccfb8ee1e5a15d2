"""Claim work for this process and start on it, because the pump looks or a message came.

What is claimed, and whether, the rows decide; a message only has this worker look.

A row whose worker ended may be what ended it, or one of many that were near. While such segments
wait, this worker holds few at a time, these first, so that the next end leaves fewer under
suspicion; one that was killed itself does so for a while longer, see `held_claims`. What was near
twice, of whatever kind, and what the engine has on its last attempt, is run alone: nothing else is
claimed while it runs, and it starts when nothing else runs. Webhooks alone go on: they kill nobody.
"""

from __future__ import annotations

import itertools
import logging
import math
import uuid
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from celery import shared_task
from django.db.models import QuerySet

from synth.batches.turns import advance_batch
from synth.models import Export, RenderJob
from synth.transitions.claims import INTERACTIVE, SegmentClaim
from synth.transitions.files import EXPORT_PRIORITY
from ttsweb import leases
from ttsweb.leases import LOSSES_BESIDE_OTHERS
from ttsweb.work import ADVANCE_BOOK_BATCH, FILL_LIVE, SWEEP, Kind
from workers.delivery import take_deliveries
from workers.kinds import WORKS
from workers.process import worker_process
from workers.process.held_claims import HeldClaim, Room
from workers.process.worker_process import WorkerProcess
from workers.site.protocol import Hold, SegmentsWanted
from workers.sweep import sweep_if_due

logger = logging.getLogger(__name__)

MOST_FILES_TOGETHER = 16
MOST_SEGMENTS_TOGETHER = 4  # of a job whose file is short
_TOGETHER = (Kind.SEGMENT, Kind.EXPORT)  # many claims share a run
_KILLERS = tuple(kind for kind in Kind if kind.may_kill)  # a suspect one runs beside no other


def take_work(process: WorkerProcess, kinds: Collection[Kind] | None = None) -> int:
    """Claim what this process has a use for, of some kinds or of all; return how many rows.

    What has to run alone is looked for with all of them.
    """
    if kinds is None:
        _take_suspect(process)
    wanted = _performed(process)
    return sum(take(process, kind) for kind in wanted if kinds is None or kind in kinds)


def has_engine_work(process: WorkerProcess) -> bool:
    """Return whether rows wait that the engine of this process could take, loaded or not."""
    return process.site.has_engine_work(process.host.codec_fingerprint)


def _performed(process: WorkerProcess) -> list[Kind]:
    has_engine = process.has_engine_role and process.may_claim_for_engine
    return [
        kind
        for kind in WORKS
        if kind in process.site.kinds
        and (has_engine if kind.needs_engine else process.has_cpu_role)
    ]


def take(process: WorkerProcess, kind: Kind) -> int:
    """Claim rows of a kind that wait, and start; return how many."""
    particular = _PARTICULAR.get(kind)
    if particular is not None:
        return particular(process)
    with process.claim_lock:
        room = 0 if process.is_isolating else process.room(kind)
        claims = _claim_rows(process, kind, room) if room else []
    return _start(process, claims)


def take_segments(process: WorkerProcess) -> int:
    """Claim segments that can be rendered, and start; return how many.

    Never more than keep the engine busy for a moment: other workers get the rest.
    """
    with process.claim_lock:
        room = Room(0, 0) if process.is_isolating else process.segment_room()
        if not room.interactive:
            return 0
        held = process.held.of(Kind.SEGMENT)
        wanted = SegmentsWanted(
            codec=process.host.engine.codec_fingerprint,
            room=room,
            slots=process.host.engine.slots,
            held_limit=process.ahead.held_limit(),
            unrendered=[claim.pk for claim in process.held.unrendered()],
            held=len(held),
            held_interactive=sum(claim.priority == INTERACTIVE for claim in held),
        )
        claims: list[HeldClaim] = []
        process.is_careful = process.site.claim_segments(wanted, _holding(process, claims))
        process.ahead.note_look(room.any_class, len(claims))
    return _start(process, claims)


def note_last_losses(process: WorkerProcess) -> None:
    """Begin small where processes of this worker were killed lately, as rows say.

    With half of what the last one lost, or with as many times half of the slots as one of these
    segments was lost.
    """
    lost = process.site.last_losses()
    if lost.waiting or lost.lately:
        most = min(len(lost.waiting) or math.inf, process.host.engine.slots)
        process.ahead.note_loss(int(most) >> max(lost.waiting + lost.lately))


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


def _take_suspect(process: WorkerProcess) -> None:
    """Run one suspect row alone; while one waits or runs, nothing else is claimed."""
    with process.claim_lock:
        if process.is_isolating and process.held.count(*_KILLERS):
            return
        process.is_isolating = False
        suspect = None
        if process.may_claim:
            suspect = process.site.find_suspect(_performed(process), _codec(process))
        if suspect is None:
            return
        process.is_isolating = True
        with process.exports_lock:  # what is being claimed now is held from here on
            pass
        if process.held.count(*_KILLERS):
            return  # it starts as soon as what runs has ended
        if suspect.kind is Kind.SEGMENT:
            claims: list[HeldClaim] = []
            hold = _holding(process, claims)
            process.site.claim_segment(suspect.pk, _codec(process), hold)
        else:
            claims = _claim_rows(process, suspect.kind, 1, suspect.pk)
    _start(process, claims)


def _codec(process: WorkerProcess) -> str:
    return process.host.engine.codec_fingerprint if process.host.is_ready else ""


def _claim_rows(process: WorkerProcess, kind: Kind, room: int, pk: Any = None) -> list[HeldClaim]:
    claims: list[HeldClaim] = []

    def hold(pk: Any, token: uuid.UUID) -> None:
        claims.append(process.held.add(kind, pk, token))

    process.site.claim(kind, room, hold, pk)
    return claims


def _holding(process: WorkerProcess, claims: list[HeldClaim]) -> Hold:
    """Return what holds segments as soon as they are claimed, and adds them to `claims`."""

    def hold(made: Sequence[SegmentClaim]) -> None:
        claims.extend(process.held.add(Kind.SEGMENT, **vars(claim)) for claim in made)
        if made:
            process.ahead.note_claims()

    return hold


_PARTICULAR: dict[Kind, Callable[[WorkerProcess], int]] = {
    Kind.SEGMENT: take_segments,
    Kind.EXPORT: take_exports,
    Kind.DELIVERY: take_deliveries,
}


def look(kind: Kind) -> None:
    """Take rows of a kind that wait, as far as this worker has room.

    For segments its pump looks, with the few queries that many messages cost as well as one.
    """
    process = worker_process.current_process()
    if process is None:
        return
    if kind is Kind.SEGMENT:
        process.look_for_work(kind)
    else:
        take(process, kind)


def _declare(kind: Kind) -> None:
    @shared_task(name=kind.task)
    def receive() -> None:
        look(kind)


for _kind in Kind:
    if _kind.task:
        _declare(_kind)


@shared_task(name=ADVANCE_BOOK_BATCH)
def advance_book_batch(batch_id: Any) -> None:
    """Begin what of a batch of books has its turn, or end it."""
    try:
        found = uuid.UUID(batch_id)
    except (ValueError, TypeError, AttributeError):
        logger.warning("message dropped, its argument is not an id: %.80r", batch_id)
        return
    advance_batch(found)


@shared_task(name=FILL_LIVE)
def fill_live() -> None:
    """Have this worker look at once for audio that listeners of some job miss."""
    process = worker_process.current_process()
    if process is not None:
        process.fill_due.set()


@shared_task(name=SWEEP)
def sweep() -> None:
    sweep_if_due()
