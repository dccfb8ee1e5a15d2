"""Take the steps of remote workers: each is one of a `LocalSite`, in the name of that worker.

A step may come twice, where its answer was lost: claims are named by tokens that the worker chose,
and what was settled is fenced by them.
"""

from __future__ import annotations

import io
import math
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Any

import soundfile
from django.db.models import Q

from synth.contract import VoicesKey, key_of_voices
from synth.models import Segment, WorkerStatus
from synth.transitions.claims import SegmentClaim, note_claims
from ttsweb.work import Kind
from voices.clip_checks import MAX_REFERENCE_SECONDS
from voices.models import CacheEviction, ClipCodes, StoredClip
from workers.audio.clips import DecodedClip, warnings_for
from workers.kinds import SITE_AWAY, Known
from workers.process.held_claims import HeldClaim, Room
from workers.process.status import Run, find_namesake
from workers.remote import messages as m
from workers.rendering.codes import CodesLookup, pack_codes
from workers.rendering.live_writer import Piece
from workers.rendering.render import EarlierOpenError, RenderRequest, build_requests
from workers.site import clips, segments
from workers.site.local import LocalSite, disk_trouble
from workers.site.protocol import EncodedClip, OpenedClip, SegmentsWanted

MOST_CODES_BYTES = 64_000_000
PAUSE_SECONDS = 5.0
_MOST_RATE = 384_000
_KNOWN: dict[Kind, Known] = {
    Kind.SEGMENT: segments.settle_known,
    Kind.VERSION: clips.settle_known,
}
_OVERLAP = 200  # of evictions: ids become visible out of order where transactions overlap
_caring = threading.Lock()


@cache
def shared_codes() -> CodesLookup:
    """Return what this web process keeps of codes, for all workers."""
    return CodesLookup(max_bytes=MOST_CODES_BYTES)


class Pause:
    """Remember for a moment that nothing could be stored, so that workers begin nothing new."""

    def __init__(self) -> None:
        self._sentence, self._until = "", 0.0

    def note(self, sentence: str) -> None:
        self._sentence, self._until = sentence, time.monotonic() + PAUSE_SECONDS

    def trouble(self) -> str:
        """Return why nothing new is to begin; "" where nothing is wrong."""
        return disk_trouble() or (self._sentence if time.monotonic() < self._until else "")


pause = Pause()


def _begin(site: LocalSite, asked: m.Begin) -> m.Welcome:
    namesake = find_namesake(site.name, Run(asked.run, asked.previous))
    rows = WorkerStatus.objects.filter(pk=site.name)
    # What this run holds by now is not to be freed by a call of it that was long on its way.
    has_begun = rows.exclude(run="").filter(run=asked.run).exists()
    if not namesake and not has_begun:
        site.begin()
    return m.Welcome(site.lease_seconds, namesake)


_COLUMNS = ("run", "role", "checkpoint", "state", "detail", "device", "model_fingerprint",
            "codec_fingerprint", "engine_class", "resampler", "figures")  # fmt: skip


def _status(site: LocalSite, said: m.Status) -> m.Nothing:
    columns: dict[str, Any] = {}
    for name, value in said.columns.items():
        field: Any = WorkerStatus._meta.get_field(name) if name in _COLUMNS else None
        is_text = isinstance(value, str)
        if field is None or is_text == (name in ("engine_class", "figures")):
            raise m.BadMessageError(f"{name[:40]!r} is not said of a worker")
        if not isinstance(value, str):
            if not all(math.isfinite(one) for one in value.values() if not isinstance(one, str)):
                raise m.BadMessageError(f"{name} holds what is no number")
            columns[name] = value
        else:
            columns[name] = value.replace("\0", "")[: field.max_length or 2000]
    if columns.get("state", WorkerStatus.State.READY) not in WorkerStatus.State.values:
        raise m.BadMessageError("there is no such state")
    site.write_status({**columns, "role": "gpu"}, is_start=said.is_start)
    return m.Nothing()


def _losses(site: LocalSite, _: m.Nothing) -> m.LossCounts:
    found = site.last_losses()
    return m.LossCounts(found.waiting, found.lately)


def _reopen(site: LocalSite, asked: m.Codec) -> m.Nothing:
    site.reopen_stale(asked.codec)
    return m.Nothing()


def _care(site: LocalSite, asked: m.CareAsked) -> m.CareGiven:
    rows = CacheEviction.objects.order_by("pk").values_list("pk", "clip_fingerprint")
    since = asked.since
    newest = (rows.last() or (0, ""))[0]
    found = [] if since is None else list(rows.filter(pk__gt=min(since, newest) - _OVERLAP))
    return m.CareGiven([fingerprint for _, fingerprint in found], newest, pause.trouble())


def _places(
    site: LocalSite, held: m.HeldRows, find: Callable[[Sequence[HeldClaim]], list[HeldClaim]]
) -> m.Places:
    """Return the places of the claims that are lost, those that never were ours included."""
    ours = _ours(site, held.claims)
    lost = set(find(list(ours.values())))
    return m.Places([n for n in range(len(held.claims)) if n not in ours or ours[n] in lost])


def _ours(site: LocalSite, rows: Sequence[m.HeldRow]) -> dict[int, HeldClaim]:
    """Return those of the claims that this worker has, by their places."""
    found: dict[int, HeldClaim] = {}
    for label, kind in m.HELD_KINDS.items():
        keys = {n: _key(kind, row.pk) for n, row in enumerate(rows) if row.kind == label}
        held = kind.model._default_manager.filter(
            pk__in=list(keys.values()), claimed_by=site.name, claim_token__isnull=False
        )
        tokens = dict(held.values_list("pk", "claim_token"))
        for n, pk in keys.items():
            if tokens.get(pk) == rows[n].token:
                found[n] = HeldClaim(pk, rows[n].token, kind=kind)
    if unknown := {row.kind for row in rows} - set(m.HELD_KINDS):
        raise m.BadMessageError(f"{min(unknown)!r} is no kind of work for remote workers")
    return found


def _key(kind: Kind, pk: Any) -> Any:
    is_number = kind is Kind.SEGMENT
    if isinstance(pk, int) is not is_number:
        raise m.BadMessageError(f"{pk!r} is no key of a {kind.label}")
    return pk


def _hand_back(site: LocalSite, held: m.HeldRows) -> m.Nothing:
    site.hand_back(_ours(site, held.claims).values())
    return m.Nothing()


def _kind(label: str) -> Kind:
    if label not in m.KINDS:
        raise m.BadMessageError(f"{label!r} is no kind of work for remote workers")
    return m.KINDS[label]


def _has_work(site: LocalSite, asked: m.SuspectAsked) -> m.Wanted:
    site.kinds = [_kind(label) for label in asked.kinds]
    return m.Wanted(site.has_engine_work(asked.codec))


def _suspect(site: LocalSite, asked: m.SuspectAsked) -> m.SuspectFound:
    found = site.find_suspect([_kind(label) for label in asked.kinds], asked.codec)
    return m.SuspectFound() if found is None else m.SuspectFound(found.kind.label, found.pk)


def _claim(site: LocalSite, wanted: m.RowsWanted) -> m.RowsClaimed:
    kind = _kind(wanted.kind)
    if kind is Kind.SEGMENT:
        raise m.BadMessageError("segments are claimed by a step of their own")
    pk = None if wanted.pk is None else _key(kind, wanted.pk)
    rows = kind.model._default_manager.filter(claimed_by=site.name, claim_token=wanted.token)
    pks = list(rows.values_list("pk", flat=True))  # of an earlier call, whose answer was lost
    if not pks and not pause.trouble():
        site.token = wanted.token
        site.claim(kind, wanted.room, lambda one, _: pks.append(one), pk)
    return m.RowsClaimed(pks)


def _claim_segments(site: LocalSite, wanted: m.SegmentRoom) -> m.SegmentsClaimed:
    rows = Segment.objects.filter(claimed_by=site.name, claim_token=wanted.token)
    earlier = list(rows.values_list("pk", "job_id", "job__priority"))
    if earlier:
        note_claims({job_id for _, job_id, _ in earlier})
        return m.SegmentsClaimed([m.SegmentRow(*row) for row in earlier], is_careful=True)
    made: list[SegmentClaim] = []
    is_careful = True
    if not pause.trouble():
        site.token = wanted.token
        if wanted.only is not None:
            site.claim_segment(wanted.only, wanted.codec, made.extend)
        else:
            is_careful = site.claim_segments(
                SegmentsWanted(
                    wanted.codec,
                    Room(wanted.room, wanted.interactive_room),
                    wanted.slots,
                    wanted.held_limit,
                    wanted.unrendered,
                    wanted.held,
                    wanted.held_interactive,
                ),
                made.extend,
            )
    found = [m.SegmentRow(one.pk, one.job_id, one.priority) for one in made]
    return m.SegmentsClaimed(found, is_careful)


def _begin_segments(site: LocalSite, held: m.SegmentsHeld) -> m.SegmentsAsked:
    with _caring:
        shared_codes().drop_evicted()
        shared_codes().counters.flush()
    claims = list(_ours_of(site, held.claims, Kind.SEGMENT).values())
    begun = site.begin_segments(claims, held.engine)
    asked: list[m.SegmentAsked] = []
    codes: dict[str, bytes] = {}
    for claim, request in begun.requests.items():
        spec = request.spec
        voices, said = key_of_voices(spec.references), key_of_voices(spec.history)
        asked.append(_asked(claim, request, voices, said))
        for (digest, _), one in zip(voices + said, spec.references + spec.history, strict=True):
            if digest not in held.known and digest not in codes:
                codes[digest] = pack_codes(one.codes)
    return m.SegmentsAsked(asked, codes, begun.awaited, begun.settled.made)


def _asked(
    claim: HeldClaim, request: RenderRequest, voices: VoicesKey, said: VoicesKey
) -> m.SegmentAsked:
    sampling, history = request.spec.sampling, request.spec.history
    return m.SegmentAsked(
        pk=claim.pk,
        text=request.spec.text,
        references=[m.ReferenceNamed(digest, text) for digest, text in voices],
        history=[
            m.TurnNamed(digest, text, turn.key)
            for (digest, text), turn in zip(said, history, strict=True)
        ],
        seed=sampling.seed,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        max_frames=sampling.max_frames,
        content_key=request.content_key,
        clips=list(request.clips),
        is_live=request.is_live,
        language=request.language,
        may_keep=request.may_keep,
    )


def _ours_of(site: LocalSite, rows: Sequence[m.HeldRow], kind: Kind) -> dict[int, HeldClaim]:
    if any(row.kind != kind.label for row in rows):
        raise m.BadMessageError(f"this step is for {kind.plural} alone")
    return _ours(site, rows)


def _settle(site: LocalSite, settled: m.SegmentsSettled) -> m.Nothing:
    """Keep takes; what was asked for is found anew, so that nobody names a take at will.

    Where that is another take by now, since an earlier segment is, this one is rendered again.
    """
    sent = settled.segments
    ours = _ours_of(site, [one.claim for one in sent], Kind.SEGMENT)
    requests = build_requests([claim.pk for claim in ours.values()], shared_codes(), settled.engine)
    site.is_screened = settled.is_screened
    wanted: list[HeldClaim] = []
    for n, claim in ours.items():
        request = requests.get(claim.pk)
        if isinstance(request, RenderRequest):
            claim.request, claim.take_id = request, sent[n].take_id
            if sent[n].outcome is not None and sent[n].content_key != request.content_key:
                site.settle_error(claim, EarlierOpenError(), segments.settle_known)
                continue
            claim.future = _outcome(sent[n], request)
            wanted.append(claim)
        elif request is not None:
            site.settle_error(claim, request, segments.settle_known)
    site.settle_segments(wanted, settled.engine, lambda step, items: [step(one) for one in items])
    return m.Nothing()


def _outcome(sent: m.SegmentSettled, request: RenderRequest) -> Future[Any]:
    future: Future[Any] = Future()
    if sent.failure is not None:
        future.set_exception(m.error_of(sent.failure))
    elif sent.outcome is not None:
        most = request.spec.sampling.max_frames
        future.set_result(m.audio_of(sent.outcome, max_frames=most))
    else:
        raise m.BadMessageError("a segment has neither audio nor a failure")
    return future


def _fail(site: LocalSite, failed: m.Failed) -> m.Nothing:
    kind = _kind(failed.claim.kind)
    for claim in _ours(site, [failed.claim]).values():
        site.settle_error(claim, m.error_of(failed.failure), _KNOWN[kind])
    return m.Nothing()


def _pieces(site: LocalSite, sent: m.PiecesSent) -> m.Broken:
    """Keep the pieces of what this worker renders, or has just rendered."""
    ids = {piece.segment_id for piece in sent.pieces}
    rows = Segment.objects.filter(pk__in=ids, claimed_by=site.name)
    ours = dict(rows.values_list("pk", "job_id"))
    pieces = [
        Piece(
            one.job_id,
            one.segment_id,
            one.attempt,
            one.index,
            m.samples_of(one.samples),
            one.sample_rate,
            one.is_last,
        )
        for one in sent.pieces
        if ours.get(one.segment_id) == one.job_id
    ]
    broken = {one.attempt for one in sent.pieces} - {one.attempt for one in pieces}
    return m.Broken(list(broken | (site.write_pieces(pieces) if pieces else set())))


def _version(site: LocalSite, row: m.HeldRow) -> HeldClaim | None:
    found = list(_ours_of(site, [row], Kind.VERSION).values())
    return found[0] if found else None


def _clips(site: LocalSite, asked: m.VersionHeld) -> m.ClipNames:
    claim = _version(site, asked.claim)
    names: list[uuid.UUID] = []
    is_wanted = claim is not None and _passes(
        site, claim, lambda: names.extend(clip.pk for clip in site.clips_of(claim))
    )
    return m.ClipNames(names, is_wanted)


def _passes(site: LocalSite, claim: HeldClaim, step: Callable[[], object]) -> bool:
    """Take a step of encoding; False where it could not be taken, and the version was settled."""
    try:
        step()
    except (*SITE_AWAY, m.BadMessageError):
        raise
    except Exception as error:  # noqa: BLE001
        site.settle_error(claim, error, clips.settle_known)
        return False
    return True


def _clip_of(claim: HeldClaim, pk: uuid.UUID) -> StoredClip:
    return StoredClip.objects.filter(uses__version=claim.pk).distinct().get(pk=pk)


def _open_clip(site: LocalSite, wanted: m.ClipWanted) -> m.ClipFound:
    claim = _version(site, wanted.claim)
    found: list[OpenedClip] = []
    if claim is None:
        return m.ClipFound(is_wanted=False)
    site.token = wanted.token
    version = claim

    def step() -> None:
        found.append(site.open_clip(version, _clip_of(version, wanted.clip), wanted.codec))

    if not _passes(site, claim, step):
        return m.ClipFound(is_wanted=False)
    (one,) = found
    return m.ClipFound(True, one.frames, one.codes_pk, one.content, one.container)


def _close_clip(site: LocalSite, made: m.ClipMade) -> m.Wanted:
    claim = _version(site, made.claim)
    if claim is None:
        return m.Wanted(False)
    version, codes = claim, m.codes_of(made.codes)
    decoded = _decoded(made)
    opened = OpenedClip(0, made.codes_pk, made.token)

    def step() -> None:
        rows = ClipCodes.objects.filter(pk=made.codes_pk)
        if not rows.filter(Q(claimed_by=site.name) | Q(encoded_at__isnull=False)).exists():
            raise clips.ClipBusyError
        clip = _clip_of(version, made.clip)
        site.close_clip(version, clip, opened, EncodedClip(codes, made.resampler, decoded))

    return m.Wanted(_passes(site, claim, step))


def _decoded(made: m.ClipMade) -> DecodedClip:
    """Return the audio that was encoded, and its measures, with what they warn of."""
    measures: dict[str, Any] = dict(made.measures)
    numbers = ("duration_seconds", "silence_share", "clipped_share", "sample_rate")
    if not all(isinstance(measures.get(name), (int, float)) for name in numbers):
        raise m.BadMessageError("a measure of the clip is missing")
    if not all(math.isfinite(one) for one in measures.values() if isinstance(one, float)):
        raise m.BadMessageError("a measure of the clip is no number")
    measures["warnings"] = warnings_for(measures)
    try:
        with soundfile.SoundFile(io.BytesIO(made.flac)) as file:
            if file.frames > MAX_REFERENCE_SECONDS * _MOST_RATE or file.channels != 1:
                raise m.BadMessageError("the clip's audio is too long, or not mono")
            return DecodedClip(file.read(dtype="float32"), file.samplerate, measures)
    except soundfile.LibsndfileError as error:
        raise m.BadMessageError("the clip's audio is no FLAC") from error


def _finish_version(site: LocalSite, made: m.VersionMade) -> m.Wanted:
    claim = _version(site, made.claim)
    if claim is None:
        return m.Wanted(False)
    version = claim
    return m.Wanted(_passes(site, claim, lambda: site.finish_version(version, made.codec)))


CALLS: dict[str, tuple[Any, Callable[[LocalSite, Any], m.Part]]] = {
    "begin": (m.Begin, _begin),
    "status": (m.Status, _status),
    "losses": (m.Nothing, _losses),
    "reopen": (m.Codec, _reopen),
    "care": (m.CareAsked, _care),
    "renew": (m.HeldRows, lambda site, held: _places(site, held, site.renew)),
    "find-lost": (m.HeldRows, lambda site, held: _places(site, held, site.find_lost)),
    "hand-back": (m.HeldRows, _hand_back),
    "has-work": (m.SuspectAsked, _has_work),
    "suspect": (m.SuspectAsked, _suspect),
    "claim": (m.RowsWanted, _claim),
    "claim-segments": (m.SegmentRoom, _claim_segments),
    "begin-segments": (m.SegmentsHeld, _begin_segments),
    "settle": (m.SegmentsSettled, _settle),
    "fail": (m.Failed, _fail),
    "pieces": (m.PiecesSent, _pieces),
    "clips": (m.VersionHeld, _clips),
    "open-clip": (m.ClipWanted, _open_clip),
    "close-clip": (m.ClipMade, _close_clip),
    "finish-version": (m.VersionMade, _finish_version),
}
