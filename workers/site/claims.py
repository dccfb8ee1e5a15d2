"""Claim rows for a worker: segments that it has room for, and suspects, which run alone.

What a worker holds comes with its question, so that whoever asks may be on another host.
"""

from __future__ import annotations

import datetime as dt
import threading
import uuid
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q

from synth.models import Segment
from synth.transitions.claims import (
    INTERACTIVE,
    SegmentClaim,
    claim_segments,
    claimable_segments,
    note_claims,
)
from ttsweb import leases
from ttsweb.leases import DATABASE_AWAY, LOSSES_BESIDE_OTHERS
from ttsweb.work import Kind
from workers.errors import retry_while_away
from workers.kinds import WORKS
from workers.process.held_claims import SURE_SECONDS, Room
from workers.site.protocol import Hold, Losses, SegmentsWanted, Suspect


def last_attempt() -> int:
    """Return the attempts that a row has behind it when the next one is its last."""
    return max(1, settings.MAX_ATTEMPTS - 1)


def claim_rows(
    worker: str,
    kind: Kind,
    room: int,
    hold: Callable[[Any, uuid.UUID], None],
    pk: Any,
    token: uuid.UUID | None,
) -> None:
    """Claim one row after the other; what is suspect is left to run alone."""
    waiting = WORKS[kind].waiting()
    chosen = [pk]
    if pk is None:
        waiting = waiting.filter(losses__lt=LOSSES_BESIDE_OTHERS)
        if kind.needs_engine:
            waiting = waiting.filter(attempts__lt=last_attempt())
        chosen = list(waiting.values_list("pk", flat=True)[:room])
    for one in chosen:
        for claim in leases.claim(waiting, [one], worker=worker, token=token):
            hold(claim.pk, claim.token)


def claim_wanted(worker: str, wanted: SegmentsWanted, hold: Hold, token: uuid.UUID | None) -> bool:
    """Claim segments; return whether few are to be held."""
    last = last_attempt()
    limit, suspects = _held_limit(wanted)
    room = wanted.room
    claimed: list[SegmentClaim] = []

    def note(made: Sequence[SegmentClaim]) -> None:
        claimed.extend(made)
        hold(made)

    claim = partial(claim_some, worker, wanted.codec, hold=note, token=token)
    if limit is not None:
        room = _small_room(wanted, claimed, limit)
        if suspects and room.any_class:
            claim(Room(room.any_class, 0), ids=suspects, attempts_below=last)
            room = _small_room(wanted, claimed, limit)
    if room.interactive:
        claim(room, losses_below=1, attempts_below=last)
    return limit is not None


def claim_some(
    worker: str,
    codec: str,
    room: Room,
    *,
    hold: Hold,
    token: uuid.UUID | None,
    ids: Sequence[int] | None = None,
    **below: int,
) -> None:
    """Claim segments of this codec; what is claimed is held even if the database then goes."""
    job_ids: set[uuid.UUID] = set()

    def note(made: Sequence[SegmentClaim]) -> None:
        hold(made)
        job_ids.update(claim.job_id for claim in made)

    try:
        claim_segments(
            worker=worker,
            limit=room.any_class,
            interactive_limit=room.interactive,
            codec_fingerprint=codec,
            ids=ids,
            hold=note,
            token=token,
            **below,
        )
    except DATABASE_AWAY:
        if not job_ids:
            raise
        # Not in this thread: the pump has to see for itself that the database is away.
        threading.Thread(target=_note_later, args=(job_ids,), daemon=True).start()


def _note_later(job_ids: Collection[uuid.UUID]) -> None:
    try:
        retry_while_away(partial(note_claims, job_ids))
    finally:
        connection.close()


def has_engine_work(kinds: Collection[Kind], codec: str) -> bool:
    """Return whether rows of these kinds wait that an engine of this codec could take."""
    others = (kind for kind in kinds if kind.needs_engine and kind is not Kind.SEGMENT)
    waiting = any(WORKS[kind].waiting().exists() for kind in others)
    return waiting or claimable_segments(codec).exists()


def find_suspect(kinds: Sequence[Kind], codec: str) -> Suspect | None:
    """Return a row that has to run alone: one lost too often, or on its last attempt."""
    # `losses__gt=0` is the condition of the index, which SQLite does not infer from the other one.
    lost = Q(losses__gte=LOSSES_BESIDE_OTHERS) & Q(losses__gt=0)
    last = Q(attempts__gte=last_attempt())
    for kind in kinds:
        if not kind.may_kill:
            continue
        if kind is Kind.SEGMENT:
            found = _suspect_segment(codec, lost | last)
        else:
            suspects = WORKS[kind].waiting().filter(lost | last if kind.needs_engine else lost)
            found = suspects.order_by("losses").values_list("pk", flat=True).first()
        if found is not None:
            return Suspect(kind, found)
    return None


def _suspect_segment(codec: str, suspect: Q) -> int | None:
    """Return a claimable segment that has to run alone, those with the fewest losses first.

    Mostly two cheap looks say that none is.
    """
    queued = Segment.objects.filter(status=Segment.Status.QUEUED)
    lost = queued.filter(losses__gt=0, losses__gte=LOSSES_BESIDE_OTHERS)  # as for other kinds
    if not queued.filter(attempts__gte=last_attempt()).exists() and not lost.exists():
        return None
    segments = claimable_segments(codec).filter(suspect)
    ordered = segments.order_by("losses", *segments.query.order_by)
    return ordered.values_list("pk", flat=True).first()


def _held_limit(wanted: SegmentsWanted) -> tuple[int | None, list[int]]:
    """Return how many segments to hold at most, None for any number, and suspects to take first.

    Suspects are segments whose worker ended once; while some wait, or are held here, half the slots
    are enough.
    """
    limit = wanted.held_limit
    half = max(1, wanted.slots // 2)
    small = half if limit is None else min(limit, half)
    lost = Segment.objects.filter(losses=1, losses__gt=0)  # as the condition of the index says
    suspects: list[int] = []
    if lost.filter(status=Segment.Status.QUEUED).exists():
        waiting = claimable_segments(wanted.codec).filter(losses=1)
        suspects = list(waiting.values_list("pk", flat=True)[:small])
    if suspects or (wanted.unrendered and lost.filter(pk__in=wanted.unrendered).exists()):
        return small, suspects
    return limit, []


def _small_room(wanted: SegmentsWanted, claimed: Sequence[SegmentClaim], limit: int) -> Room:
    """Return the room below a limit: a kill then leaves fewer to suspect, and costs less.

    What is still to be stored counts as well, since it would be lost. Interactive segments have as
    much room again.
    """
    held = wanted.held + len(claimed)
    num_interactive = sum(claim.priority == INTERACTIVE for claim in claimed)
    num_interactive += wanted.held_interactive
    return Room(max(0, limit - held), max(0, limit - num_interactive))


def last_losses(worker: str) -> Losses:
    """Return how often segments were lost that processes of this worker held, lately or waiting."""
    lost = Segment.objects.filter(losses__gt=0, claimed_by=worker)
    since = leases.database_now() - dt.timedelta(seconds=SURE_SECONDS)
    waiting = list(lost.filter(status=Segment.Status.QUEUED).values_list("losses", flat=True))
    lately = list(lost.filter(finished_at__gt=since).values_list("losses", flat=True))
    return Losses(waiting, lately)
