"""Answer a worker from rows and storage: the site of workers that have both.

Claimed are segments that a worker has room for, and suspects, which run alone. What a worker holds
comes with its question, so that whoever asks may be on another host.
"""

from __future__ import annotations

import datetime as dt
import shutil
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
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
from voices.models import StoredClip
from workers import sweep
from workers.kinds import WORKS, Known, retry_while_away, settle
from workers.process.held_claims import SURE_SECONDS, HeldClaim, Room
from workers.process.status import NameTakenError, write_row
from workers.rendering import live_writer
from workers.rendering.codes import CodesLookup
from workers.rendering.live_writer import Piece
from workers.rendering.render import EngineNames
from workers.site import clips as site_clips
from workers.site.protocol import (
    Begun,
    Care,
    EncodedClip,
    Hold,
    Losses,
    OpenedClip,
    SegmentsWanted,
    Settled,
    Store,
    Suspect,
)
from workers.site.segments import Judge, SegmentSteps


def last_attempt() -> int:
    """Return the attempts that a row has behind it when the next one is its last."""
    return max(1, settings.MAX_ATTEMPTS - 1)


def _note_later(job_ids: Collection[uuid.UUID]) -> None:
    try:
        retry_while_away(partial(note_claims, job_ids))
    finally:
        connection.close()


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


@dataclass
class LocalSite:
    """Do what one worker asks for, by its name.

    Args:
        codes: None for a worker without an engine.
        pause: called with why nothing new is to be begun for a moment.
        judge: says more of a take that was stored and screened.
        is_closing: whether the worker hands its claims back, so that nothing is to be settled.
        token: of the claims that are made, and were by an earlier call; None makes new ones.
        is_screened: whether takes are screened; None is what this host's checkpoint says.
    """

    name: str
    codes: CodesLookup | None
    pause: Callable[[str], None]
    judge: Judge
    is_closing: Callable[[], bool]
    token: uuid.UUID | None = None
    is_screened: bool | None = None
    kinds: Collection[Kind] = tuple(WORKS)
    has_messages: bool = True
    refusal: str = ""

    @property
    def lease_seconds(self) -> float:
        return float(settings.LEASE_SECONDS)

    def begin(self) -> None:
        sweep.free_own(self.name)
        sweep.start_clock()

    def write_status(self, columns: Mapping[str, Any], *, is_start: bool) -> None:
        try:
            write_row(self.name, columns, is_start=is_start)
        except NameTakenError as error:
            self.refusal = str(error)

    def last_losses(self) -> Losses:
        lost = Segment.objects.filter(losses__gt=0, claimed_by=self.name)
        since = leases.database_now() - dt.timedelta(seconds=SURE_SECONDS)
        waiting = list(lost.filter(status=Segment.Status.QUEUED).values_list("losses", flat=True))
        lately = list(lost.filter(finished_at__gt=since).values_list("losses", flat=True))
        return Losses(waiting, lately)

    def sweep(self) -> None:
        sweep.sweep_if_due()

    def reopen_stale(self, codec: str) -> None:
        sweep.reopen_stale(self.name, codec)

    def free_ended(self) -> bool:
        return bool(sweep.free_ended())

    def care(self) -> Care:
        trouble = disk_trouble()
        if self.codes is None:
            return Care([], trouble)
        evicted = self.codes.drop_evicted()
        self.codes.counters.flush()
        return Care(evicted, trouble)

    def renew(self, claims: Sequence[HeldClaim]) -> list[HeldClaim]:
        lost: list[HeldClaim] = []
        for kind, held in _by_kind(claims).items():
            rows = kind.model._default_manager.filter(pk__in=[claim.pk for claim in held])
            tokens = [claim.token for claim in held]
            ours = leases.renew(rows, tokens, lease_seconds=settings.LEASE_SECONDS)
            lost += [claim for claim in held if claim.pk not in ours]
        return lost

    def find_lost(self, claims: Sequence[HeldClaim]) -> list[HeldClaim]:
        lost: list[HeldClaim] = []
        for kind, held in _by_kind(claims).items():
            rows = kind.model._default_manager.filter(pk__in=[claim.pk for claim in held])
            ours = set(rows.values_list("pk", "claim_token"))
            lost += [claim for claim in held if (claim.pk, claim.token) not in ours]
        return lost

    def hand_back(self, claims: Iterable[HeldClaim]) -> None:
        for claim in claims:
            leases.hand_back(claim.kind.model, claim)

    def has_engine_work(self, codec: str) -> bool:
        others = (kind for kind in self.kinds if kind.needs_engine and kind is not Kind.SEGMENT)
        waiting = any(WORKS[kind].waiting().exists() for kind in others)
        return waiting or claimable_segments(codec).exists()

    def find_suspect(self, kinds: Sequence[Kind], codec: str) -> Suspect | None:
        """Return a row that has to run alone: one lost too often, or on its last attempt."""
        # `losses__gt=0` is the condition of the index, which SQLite does not infer from the other.
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

    def claim(
        self, kind: Kind, room: int, hold: Callable[[Any, uuid.UUID], None], pk: Any = None
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
            for claim in leases.claim(waiting, [one], worker=self.name, token=self.token):
                hold(claim.pk, claim.token)

    def claim_segments(self, wanted: SegmentsWanted, hold: Hold) -> bool:
        last = last_attempt()
        limit, suspects = _held_limit(wanted)
        room = wanted.room
        claimed: list[SegmentClaim] = []

        def note(made: Sequence[SegmentClaim]) -> None:
            claimed.extend(made)
            hold(made)

        claim = partial(self._claim_some, wanted.codec, hold=note)
        if limit is not None:
            room = _small_room(wanted, claimed, limit)
            if suspects and room.any_class:
                claim(Room(room.any_class, 0), ids=suspects, attempts_below=last)
                room = _small_room(wanted, claimed, limit)
        if room.interactive:
            claim(room, losses_below=1, attempts_below=last)
        return limit is not None

    def claim_segment(self, pk: int, codec: str, hold: Hold) -> None:
        self._claim_some(codec, Room(1, 1), hold=hold, ids=[pk])

    def _claim_some(
        self,
        codec: str,
        room: Room,
        *,
        hold: Hold,
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
                worker=self.name,
                limit=room.any_class,
                interactive_limit=room.interactive,
                codec_fingerprint=codec,
                ids=ids,
                hold=note,
                token=self.token,
                **below,
            )
        except DATABASE_AWAY:
            if not job_ids:
                raise
            # Not in this thread: the pump has to see for itself that the database is away.
            threading.Thread(target=_note_later, args=(job_ids,), daemon=True).start()

    def begin_segments(self, claims: Sequence[HeldClaim], engine: EngineNames) -> Begun:
        return self._steps.begin(claims, engine)

    def settle_segments(
        self, claims: Sequence[HeldClaim], engine: EngineNames, store: Store
    ) -> Settled:
        return self._steps.settle_rendered(claims, store)

    def settle_error(self, claim: HeldClaim, error: Exception, known: Known) -> None:
        if not self.is_closing():
            settle(claim, error, known, pause=self.pause)

    def write_pieces(self, pieces: Sequence[Piece]) -> set[uuid.UUID]:
        return live_writer.write_pieces(pieces)

    def clips_of(self, claim: HeldClaim) -> list[StoredClip]:
        return site_clips.clips_of(claim)

    def open_clip(self, claim: HeldClaim, clip: StoredClip, codec: str) -> OpenedClip:
        keep = site_clips.may_keep(claim)
        how: dict[str, Any] = {"worker": self.name, "keep": keep, "token": self.token}
        return site_clips.open_clip(self._lookup, clip, codec, **how)

    def close_clip(
        self, claim: HeldClaim, clip: StoredClip, opened: OpenedClip, made: EncodedClip
    ) -> None:
        keep = site_clips.may_keep(claim)
        site_clips.close_clip(self._lookup, clip, opened, made, keep=keep)

    def finish_version(self, claim: HeldClaim, codec: str) -> None:
        site_clips.finish_version(claim, codec)

    @property
    def _lookup(self) -> CodesLookup:
        if self.codes is None:
            raise RuntimeError("a worker without an engine was asked for its work")
        return self.codes

    @property
    def _steps(self) -> SegmentSteps:
        steps = (self._lookup, self.settle_error, self.judge, self.is_closing, self.is_screened)
        return SegmentSteps(*steps)


def disk_trouble() -> str:
    """Say that the disk of the storage is nearly full; "" where it is not.

    Where objects are in a bucket, it is the disk on which files are made.
    """
    folder: Path = settings.STORAGE_DIR or settings.DATA_DIR
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free >= settings.MIN_FREE_BYTES:
        return ""
    return (
        f"No new work is started: the storage's disk has {free / 1e6:.0f} MB "
        f"left, and it needs {settings.MIN_FREE_BYTES / 1e6:.0f} MB. "
        "Free some space; the worker then continues by itself."
    )


def _by_kind(claims: Iterable[HeldClaim]) -> dict[Kind, list[HeldClaim]]:
    found: dict[Kind, list[HeldClaim]] = defaultdict(list)
    for claim in claims:
        found[claim.kind].append(claim)
    return found
