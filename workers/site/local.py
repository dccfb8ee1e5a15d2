"""Answer a worker from rows and storage: the site of workers that have both."""

from __future__ import annotations

import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from ttsweb import leases
from ttsweb.work import Kind
from voices.models import StoredClip
from workers import errors, sweep
from workers.kinds import WORKS
from workers.process.held_claims import HeldClaim, Room
from workers.process.status import write_row
from workers.rendering import live_writer
from workers.rendering.codes import CodesLookup
from workers.rendering.live_writer import Piece
from workers.rendering.render_request import EngineNames
from workers.site import claims as site_claims
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

    def write_status(self, columns: Mapping[str, Any], *, is_start: bool) -> str:
        return write_row(self.name, columns, is_start=is_start)

    def last_losses(self) -> Losses:
        return site_claims.last_losses(self.name)

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
        return site_claims.has_engine_work(self.kinds, codec)

    def find_suspect(self, kinds: Sequence[Kind], codec: str) -> Suspect | None:
        return site_claims.find_suspect(kinds, codec)

    def claim(
        self, kind: Kind, room: int, hold: Callable[[Any, uuid.UUID], None], pk: Any = None
    ) -> None:
        site_claims.claim_rows(self.name, kind, room, hold, pk, self.token)

    def claim_segments(self, wanted: SegmentsWanted, hold: Hold) -> bool:
        return site_claims.claim_wanted(self.name, wanted, hold, self.token)

    def claim_segment(self, pk: int, codec: str, hold: Hold) -> None:
        site_claims.claim_some(self.name, codec, Room(1, 1), hold=hold, token=self.token, ids=[pk])

    def begin_segments(self, claims: Sequence[HeldClaim], engine: EngineNames) -> Begun:
        return self._steps.begin(claims, engine)

    def settle_segments(
        self, claims: Sequence[HeldClaim], engine: EngineNames, store: Store
    ) -> Settled:
        return self._steps.settle_rendered(claims, store)

    def settle_error(self, claim: HeldClaim, error: Exception, known: errors.Known) -> None:
        if not self.is_closing():
            errors.settle(claim, error, known, pause=self.pause)

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
