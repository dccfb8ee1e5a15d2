"""Say what a worker with an engine asks of its site: one protocol, whoever answers it.

`LocalSite` answers from rows and storage. `RemoteSite` asks the same of a web process over HTTPS,
which answers by a `LocalSite`: there is one ladder of claims, suspects, retakes and errors.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from synth.transitions.claims import SegmentClaim
from ttsweb.work import Kind
from voices.models import StoredClip
from workers.kinds import Known
from workers.process.held_claims import HeldClaim, Room

if TYPE_CHECKING:
    from synth.contract import CodesArray
    from synth.models import Take
    from workers.audio.clips import DecodedClip
    from workers.rendering.live_writer import Piece
    from workers.rendering.render import EngineNames, RenderRequest

Store = Callable[[Callable[[HeldClaim], "Take | Exception | None"], Sequence[HeldClaim]], list[Any]]
Hold = Callable[[Sequence[SegmentClaim]], None]


@dataclass(frozen=True)
class SegmentsWanted:
    """Say how many segments a worker has room for, and what it holds already.

    `held_limit` is how many it may hold since it was killed, None for any number; `unrendered` are
    the segments that its engine has still to do, `held` counts those to be stored as well.
    """

    codec: str
    room: Room
    slots: int
    held_limit: int | None
    unrendered: list[int]
    held: int
    held_interactive: int


@dataclass(frozen=True)
class Suspect:
    """A row that has to run alone."""

    kind: Kind
    pk: Any


@dataclass
class Settled:
    """Say what became of segments: the keys of takes that are there now, and how many are done.

    `again` counts those that wait for another take; `freed`: others may have waited for these.
    """

    made: list[str] = field(default_factory=list)
    done: int = 0
    again: int = 0
    freed: bool = False


@dataclass
class Begun:
    """Say what is to be rendered; all other segments are settled, or wait for the awaited takes."""

    requests: Mapping[HeldClaim, RenderRequest] = field(default_factory=dict)
    awaited: list[str] = field(default_factory=list)
    settled: Settled = field(default_factory=Settled)


@dataclass(frozen=True)
class Losses:
    """How often segments were lost that a worker of this name held: waiting ones, those done."""

    waiting: list[int]
    lately: list[int]


@dataclass(frozen=True)
class Care:
    """What a worker is to heed: clips that are gone, and why nothing new is to begin, if so."""

    evicted: list[str]
    trouble: str = ""


@dataclass(frozen=True)
class OpenedClip:
    """A clip whose codes are there, of so many frames, or which is to be encoded under a claim."""

    frames: int
    codes_pk: Any = None
    token: uuid.UUID | None = None
    content: bytes = b""
    container: str = ""


@dataclass(frozen=True, eq=False)
class EncodedClip:
    """What the encoder made of a clip: codes int16 [K, T], by which resampler, of what audio."""

    codes: CodesArray
    resampler: str
    decoded: DecodedClip


class Site(Protocol):
    """What a worker asks; every step may be repeated.

    Raises:
        SITE_AWAY: the site does not answer at the moment.
    """

    name: str
    has_messages: bool  # that wake workers for what waits here
    kinds: Collection[Kind]  # of work that is to be had here

    @property
    def lease_seconds(self) -> float: ...

    @property
    def refusal(self) -> str:
        """Return why this worker is not let in, if so."""

    def begin(self) -> None:
        """Free what an earlier process of this name held."""

    def write_status(self, columns: Mapping[str, Any], *, is_start: bool) -> None:
        """Publish what the worker says of itself.

        Where another process has begun under its name since, `refusal` says so.
        """

    def last_losses(self) -> Losses: ...

    def sweep(self) -> None:
        """Free what was lost, if a round of that is due."""

    def reopen_stale(self, codec: str) -> None:
        """Have the voices of other codecs encoded again."""

    def free_ended(self) -> bool:
        """Free what processes held that have ended here; return whether there was something."""

    def care(self) -> Care: ...

    def renew(self, claims: Sequence[HeldClaim]) -> list[HeldClaim]:
        """Extend leases; return the claims that are not ours any more."""

    def find_lost(self, claims: Sequence[HeldClaim]) -> list[HeldClaim]:
        """Return the claims that are not ours any more, since nobody wants their work."""

    def hand_back(self, claims: Iterable[HeldClaim]) -> None: ...

    def has_engine_work(self, codec: str) -> bool:
        """Return whether rows wait that an engine of this codec could take."""

    def find_suspect(self, kinds: Sequence[Kind], codec: str) -> Suspect | None: ...

    def claim(
        self, kind: Kind, room: int, hold: Callable[[Any, uuid.UUID], None], pk: Any = None
    ) -> None:
        """Claim rows of a kind that are no suspects, or the one that is named."""

    def claim_segments(self, wanted: SegmentsWanted, hold: Hold) -> bool:
        """Claim segments; return whether few are to be held, as one of them may be a killer."""

    def claim_segment(self, pk: int, codec: str, hold: Hold) -> None: ...

    def begin_segments(self, claims: Sequence[HeldClaim], engine: EngineNames) -> Begun:
        """Use the takes that are there, and say what is to be rendered."""

    def settle_segments(
        self, claims: Sequence[HeldClaim], engine: EngineNames, store: Store
    ) -> Settled:
        """Keep what the engine made of segments and settle their claims.

        Args:
            store: calls a step for each of the claims, several at once where that is wise.
        """

    def settle_error(self, claim: HeldClaim, error: Exception, known: Known) -> None: ...

    def write_pieces(self, pieces: Sequence[Piece]) -> set[uuid.UUID]:
        """Store and list pieces for listeners; return the attempts of which one is missing."""

    def clips_of(self, claim: HeldClaim) -> list[StoredClip]:
        """Return the clips of a version that is to be encoded."""

    def open_clip(self, claim: HeldClaim, clip: StoredClip, codec: str) -> OpenedClip:
        """Find a clip's codes, or claim the run of the encoder that makes them."""

    def close_clip(
        self, claim: HeldClaim, clip: StoredClip, opened: OpenedClip, made: EncodedClip
    ) -> None:
        """Publish what the encoder made of a clip."""

    def finish_version(self, claim: HeldClaim, codec: str) -> None: ...
