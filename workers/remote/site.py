"""Ask a site over HTTPS for all that a worker needs of it, with a key and nothing else.

A claim's token is chosen here and kept until an answer came, so that a step whose answer was lost
gives the same claims again. What is in hand while the site is away is kept, and settled when it is
back and the claim is still held.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from synth.contract import CodesArray, Reference, RenderSpec, Sampling, Turn
from synth.transitions.claims import SegmentClaim
from ttsweb.work import Kind
from voices.models import StoredClip
from workers.kinds import Known, retry_while_away
from workers.process.held_claims import HeldClaim, Room, WorkUnwantedError
from workers.process.status import Run
from workers.remote import messages as m
from workers.remote.connection import Connection
from workers.rendering.codes import CACHE_BYTES, encode_flac, pack_codes
from workers.rendering.live_writer import Piece
from workers.rendering.render import EngineNames, RenderRequest
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

logger = logging.getLogger(__name__)

MOST_REFERENCES = 256
MESSAGE_BYTES = 8 << 20  # takes are settled together up to this size
Answer = TypeVar("Answer", bound=m.Part)
_NO_RUN = Run()


class KnownReferences:
    """Hold the codes int16 [K, T] that the site has sent, by digest; safe from every thread."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[CodesArray, frozenset[str]]] = OrderedDict()
        self._lock = threading.Lock()

    def digests(self) -> dict[str, CodesArray]:
        """Return what is held at this moment."""
        with self._lock:
            return {digest: codes for digest, (codes, _) in self._held.items()}

    def put(self, digest: str, codes: CodesArray, clips: Iterable[str]) -> None:
        with self._lock:
            self._held[digest] = codes, frozenset(clips)
            self._held.move_to_end(digest)
            num_bytes = sum(codes.nbytes for codes, _ in self._held.values())
            while self._held and (len(self._held) > MOST_REFERENCES or num_bytes > CACHE_BYTES):
                _, (codes, _) = self._held.popitem(last=False)
                num_bytes -= codes.nbytes

    def evict(self, clips: Collection[str]) -> None:
        """Drop what was made of clips that are gone."""
        with self._lock:
            for digest, (_, own) in list(self._held.items()):
                if not own.isdisjoint(clips):
                    del self._held[digest]


class RemoteSite:
    """Be a worker's site over HTTPS; see `Site`.

    Args:
        is_screened: whether the takes of this worker's checkpoint are screened.
        run: tells this process from others of its name.
    """

    kinds: Collection[Kind] = tuple(m.KINDS.values())
    has_messages = False

    def __init__(
        self, connection: Connection, *, name: str, is_screened: bool, run: Run = _NO_RUN
    ) -> None:
        self.name, self.connection, self._run = name, connection, run
        self._is_screened = is_screened
        self.lease_seconds = 0.0  # until `begin`
        self._known = KnownReferences()
        self._tokens: dict[str, uuid.UUID] = {}  # of claims whose answer is still missing
        self._newest_eviction: int | None = None

    @property
    def refusal(self) -> str:
        return self.connection.refusal

    def begin(self) -> None:
        self.find_namesake()

    def find_namesake(self) -> str:
        """Return when another living process last reported under the name; "" once this begins."""
        welcome = self._call("begin", m.Begin(*self._run), m.Welcome)
        self.lease_seconds = welcome.lease_seconds
        return welcome.namesake

    def write_status(self, columns: Mapping[str, Any], *, is_start: bool) -> None:
        said = {name: _plain(value) for name, value in columns.items()}
        self._call("status", m.Status(said, is_start), m.Nothing)

    def last_losses(self) -> Losses:
        found = self._call("losses", m.Nothing(), m.LossCounts)
        return Losses(found.waiting, found.lately)

    def sweep(self) -> None:
        """Do nothing: workers at the site sweep."""

    def reopen_stale(self, codec: str) -> None:
        self._call("reopen", m.Codec(codec), m.Nothing)

    def free_ended(self) -> bool:
        return False

    def care(self) -> Care:
        since = self._newest_eviction
        given = self._call("care", m.CareAsked(since), m.CareGiven)
        self._newest_eviction = given.newest
        self._known.evict(given.evicted)
        return Care(given.evicted, given.trouble)

    def renew(self, claims: Sequence[HeldClaim]) -> list[HeldClaim]:
        return self._lost("renew", claims)

    def find_lost(self, claims: Sequence[HeldClaim]) -> list[HeldClaim]:
        return self._lost("find-lost", claims)

    def _lost(self, step: str, claims: Sequence[HeldClaim]) -> list[HeldClaim]:
        found = self._call(step, m.HeldRows([_row(claim) for claim in claims]), m.Places)
        return [claims[place] for place in found.places]

    def hand_back(self, claims: Iterable[HeldClaim]) -> None:
        self._call("hand-back", m.HeldRows([_row(claim) for claim in claims]), m.Nothing)

    def has_engine_work(self, codec: str) -> bool:
        asked = m.SuspectAsked([kind.label for kind in self.kinds], codec)
        return self._call("has-work", asked, m.Wanted).is_wanted

    def find_suspect(self, kinds: Sequence[Kind], codec: str) -> Suspect | None:
        asked = m.SuspectAsked([kind.label for kind in kinds], codec)
        found = self._call("suspect", asked, m.SuspectFound)
        return Suspect(m.KINDS[found.kind], found.pk) if found.kind else None

    def claim(
        self, kind: Kind, room: int, hold: Callable[[Any, uuid.UUID], None], pk: Any = None
    ) -> None:
        token = self._token(kind.label)
        found = self._call("claim", m.RowsWanted(kind.label, room, token, pk), m.RowsClaimed)
        del self._tokens[kind.label]
        for one in found.pks:
            hold(one, token)

    def claim_segments(self, wanted: SegmentsWanted, hold: Hold) -> bool:
        return self._claim_segments(wanted, hold)

    def claim_segment(self, pk: int, codec: str, hold: Hold) -> None:
        room = SegmentsWanted(codec, _ONE, 1, None, [], 0, 0)
        self._claim_segments(room, hold, only=pk)

    def _claim_segments(self, wanted: SegmentsWanted, hold: Hold, only: int | None = None) -> bool:
        step = "claim-segments"
        token = self._token(step)
        asked = m.SegmentRoom(
            codec=wanted.codec,
            room=wanted.room.any_class,
            interactive_room=wanted.room.interactive,
            slots=wanted.slots,
            held_limit=wanted.held_limit,
            unrendered=wanted.unrendered,
            held=wanted.held,
            held_interactive=wanted.held_interactive,
            token=token,
            only=only,
        )
        found = self._call(step, asked, m.SegmentsClaimed)
        del self._tokens[step]
        rows = found.segments
        hold([SegmentClaim(one.pk, token, one.job_id, one.priority) for one in rows])
        return found.is_careful

    def _token(self, step: str) -> uuid.UUID:
        return self._tokens.setdefault(step, uuid.uuid4())

    def begin_segments(self, claims: Sequence[HeldClaim], engine: EngineNames) -> Begun:
        return retry_while_away(partial(self._begin_segments, claims, engine))

    def _begin_segments(self, claims: Sequence[HeldClaim], engine: EngineNames) -> Begun:
        wanted = {claim.pk: claim for claim in claims if not claim.is_lost}
        known = self._known.digests()
        rows = [_row(claim) for claim in wanted.values()]
        held = m.SegmentsHeld(rows, _named(engine), list(known))
        found = self._call("begin-segments", held, m.SegmentsAsked)
        codes = {digest: m.codes_of(content) for digest, content in found.codes.items()}
        codes |= known
        made: dict[tuple[str, str], Reference] = {}  # what segments share is one value
        requests: dict[HeldClaim, RenderRequest] = {}
        for asked in found.segments:
            for one in asked.references:
                made.setdefault((one.digest, one.text), Reference(one.text, codes[one.digest]))
                if asked.may_keep:
                    self._known.put(one.digest, codes[one.digest], asked.clips)
            references = [made[one.digest, one.text] for one in asked.references]
            history = [Turn(one.text, codes[one.digest], one.key) for one in asked.history]
            requests[wanted[asked.pk]] = _request(asked, references, history)
        return Begun(requests, found.awaited, Settled(found.made, freed=bool(found.made)))

    def settle_segments(
        self, claims: Sequence[HeldClaim], engine: EngineNames, store: Store
    ) -> Settled:
        for some in _by_size(claims):
            retry_while_away(partial(self._settle, some, engine))
        # An answer that was lost must not tell the worker less: more looks than needed do no harm.
        made = [claim.request.content_key for claim in claims]
        return Settled(made, done=0, again=len(claims))

    def _settle(self, claims: Sequence[HeldClaim], engine: EngineNames) -> None:
        sent = [_settled(claim) for claim in claims if not claim.is_lost]
        if sent:
            message = m.SegmentsSettled(sent, _named(engine), self._is_screened)
            self._call("settle", message, m.Nothing)

    def settle_error(self, claim: HeldClaim, error: Exception, known: Known) -> None:
        if claim.is_lost or isinstance(error, WorkUnwantedError):
            return
        failure = m.failure_of(error)
        if failure.how == "unexpected":
            logger.error("%s failed unexpectedly", claim.kind.label, exc_info=error)
        failed = m.Failed(_row(claim), failure)
        retry_while_away(partial(self._call, "fail", failed, m.Nothing))

    def write_pieces(self, pieces: Sequence[Piece]) -> set[uuid.UUID]:
        sent = [
            m.PieceSent(
                one.job_id,
                one.segment_id,
                one.attempt,
                one.index,
                one.samples.astype("<f4").tobytes(),
                one.sample_rate,
                one.is_last,
            )
            for one in pieces
        ]
        return set(self._call("pieces", m.PiecesSent(sent), m.Broken).attempts)

    def clips_of(self, claim: HeldClaim) -> list[StoredClip]:
        found = self._wanted("clips", m.VersionHeld(_row(claim)), m.ClipNames)
        return [StoredClip(pk=pk) for pk in found.clips]

    def open_clip(self, claim: HeldClaim, clip: StoredClip, codec: str) -> OpenedClip:
        token = uuid.uuid4()
        wanted = m.ClipWanted(_row(claim), clip.pk, codec, token)
        found = self._wanted("open-clip", wanted, m.ClipFound)
        if found.codes_pk is None:
            return OpenedClip(found.frames)
        return OpenedClip(0, found.codes_pk, token, found.content, found.container)

    def close_clip(
        self, claim: HeldClaim, clip: StoredClip, opened: OpenedClip, made: EncodedClip
    ) -> None:
        assert opened.token is not None
        decoded = made.decoded
        measures = {name: one for name, one in decoded.measures.items() if name != "warnings"}
        message = m.ClipMade(
            _row(claim),
            clip.pk,
            opened.codes_pk,
            opened.token,
            pack_codes(made.codes),
            made.resampler,
            encode_flac(decoded.waveform, decoded.sample_rate),
            measures,
        )
        self._wanted("close-clip", message, m.Wanted)

    def finish_version(self, claim: HeldClaim, codec: str) -> None:
        self._wanted("finish-version", m.VersionMade(_row(claim), codec), m.Wanted)

    def _wanted(self, step: str, message: m.Part, answer: type[Any]) -> Any:
        """Take a step of a version.

        Raises:
            WorkUnwantedError: the site has settled the version, or somebody else has it.
        """
        found = retry_while_away(partial(self._call, step, message, answer))
        if not found.is_wanted:
            raise WorkUnwantedError
        return found

    def _call(self, step: str, message: m.Part, answer: type[Answer]) -> Answer:
        return self.connection.call(step, message, answer)


_ONE = Room(1, 1)


def _plain(value: Any) -> Any:
    return {str(name): one for name, one in value.items()} if isinstance(value, dict) else value


def _row(claim: HeldClaim) -> m.HeldRow:
    return m.HeldRow(claim.kind.label, claim.pk, claim.token)


def _named(engine: EngineNames) -> m.EngineNamed:
    return m.EngineNamed(engine.codec_fingerprint, engine.engine_class)


def _request(
    asked: m.SegmentAsked, references: list[Reference], history: list[Turn]
) -> RenderRequest:
    sampling = Sampling(asked.seed, asked.temperature, asked.top_p, asked.top_k, asked.max_frames)
    reference = references[0] if len(references) == 1 else tuple(references) or None
    return RenderRequest(
        RenderSpec(asked.text, reference, sampling, tuple(history)),
        asked.content_key,
        tuple(asked.clips),
        asked.is_live,
        asked.language,
        asked.may_keep,
    )


def _settled(claim: HeldClaim) -> m.SegmentSettled:
    future = claim.future
    assert future is not None
    row, key = _row(claim), claim.request.content_key
    try:
        rendered = future.result()
        return m.SegmentSettled(row, key, m.rendered_of(rendered), None, claim.take_id)
    except Exception as error:  # noqa: BLE001
        return m.SegmentSettled(row, key, None, m.failure_of(error))


def _by_size(claims: Sequence[HeldClaim]) -> Iterator[list[HeldClaim]]:
    """Yield the claims in groups whose takes go in one message."""
    group: list[HeldClaim] = []
    size = 0
    for claim in claims:
        own = _size_of(claim.future)
        if group and size + own > MESSAGE_BYTES:
            yield group
            group, size = [], 0
        group.append(claim)
        size += own
    if group:
        yield group


def _size_of(future: Future[Any] | None) -> int:
    is_made = future is not None and not future.cancelled() and future.exception() is None
    if future is None or not is_made:
        return 0
    rendered = future.result()
    return int(rendered.audio.nbytes + rendered.codes.nbytes)
