"""Begin and settle claimed segments by their rows: each ends with one take, an error, or queued.

Of a take its codes and audio are objects; what was measured of it stands in its row.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial

import numpy as np
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction

from synth.card import CardError, read_card
from synth.contract import CodedError, RenderSpec, SegmentAudio
from synth.models import Segment, Take
from synth.transitions.claims import begin_takes, wait_for_takes
from synth.transitions.jobs import OPEN
from synth.transitions.segment_edits import note_history
from synth.transitions.segments import finish_segments, retake_segments
from ttsweb import leases
from ttsweb.storage import delete_objects
from voices.transitions import reopen_without_codes
from workers import kinds
from workers.audio.clips import dbfs
from workers.kinds import retry_while_away
from workers.process.held_claims import HeldClaim
from workers.rendering.codes import CodesLookup, pack_codes, store_flac
from workers.rendering.quality import screen
from workers.rendering.render import (
    CodesMissingError,
    EarlierOpenError,
    EngineNames,
    RenderRequest,
    VoiceSilencedError,
    build_requests,
)
from workers.site.protocol import Begun, Settled, Store

logger = logging.getLogger(__name__)


class CardInvalidError(CodedError):
    """The checkpoint's card became unreadable, so nobody knows whether to screen."""

    code = "checkpoint_card_invalid"


def screen_take(
    take: Take, spec: RenderSpec, rendered: SegmentAudio, *, is_on: bool | None = None
) -> None:
    """Write what the screen finds into a take whose row is still to be written.

    Where the screen is off, the take's score stays None.

    Args:
        is_on: whether the screen is on; None is what the card of this host's checkpoint says.

    Raises:
        CardInvalidError: the card cannot be read.
    """
    try:
        is_wanted = read_card(settings.CHECKPOINT).quality_screen if is_on is None else is_on
    except CardError as error:
        raise CardInvalidError(str(error)) from error
    if not is_wanted:
        return
    quality = screen(spec, rendered)
    take.quality_score, take.quality_flags = quality.score, quality.flags
    take.measures = take.measures | quality.measures


class NotFiniteAudioError(CodedError):
    """The codec gave samples that are not numbers."""

    code = "audio_not_finite"


def find_takes(content_keys: Iterable[str]) -> dict[str, Take]:
    """Return the takes of requests whose audio is there, by content key."""
    found = Take.objects.filter(content_key__in=set(content_keys))
    return {take.content_key: take for take in found if default_storage.exists(take.audio_key)}


def store_take(content_key: str, rendered: SegmentAudio, *, decoder: str = "") -> Take:
    """Store a rendering's codes and audio; return its take, which has no row yet: see `add_takes`.

    Args:
        decoder: digest of the weights that the codes are made for.

    Raises:
        NotFiniteAudioError: the audio holds samples that are not numbers.
        OSError: the storage cannot be written; nothing is left behind.
    """
    measures = _measures(rendered)
    folder = f"takes/{content_key[:2]}/{content_key}"
    packed = pack_codes(rendered.codes, content_key=content_key, decoder=decoder)
    codes_key = default_storage.save(
        f"{folder}/{uuid.uuid4().hex}.safetensors", ContentFile(packed)
    )
    try:
        audio_key = store_flac(folder, rendered.audio, rendered.sample_rate)
    except BaseException:
        delete_objects([codes_key])
        raise
    return Take(
        content_key=content_key,
        codes_key=codes_key,
        audio_key=audio_key,
        frames=rendered.codes.shape[1],
        sample_rate=rendered.sample_rate,
        audio_seconds=len(rendered.audio) / rendered.sample_rate,
        finish_reason=str(rendered.finish_reason),
        size_bytes=len(packed) + default_storage.size(audio_key),
        measures=measures,
    )


def add_takes(stored: Sequence[Take]) -> dict[str, Take]:
    """Write the rows of stored takes; return all of them by content key.

    Of several with one key, here or in another worker, the first one stays and the objects of the
    others go. Calling it again with the same takes is harmless.

    Raises:
        IntegrityError: a take of another worker stood in the way and was deleted in this moment.
    """
    with transaction.atomic():
        # In one order: two workers that add the same takes must not wait for each other.
        ordered = sorted(stored, key=lambda take: take.content_key)
        Take.objects.bulk_create(ordered, ignore_conflicts=True)
        found = Take.objects.in_bulk(
            {take.content_key for take in stored}, field_name="content_key"
        )
    if any(take.content_key not in found for take in stored):
        raise IntegrityError("a take of another worker was deleted at the same time")
    kept = {take.pk for take in found.values()}
    others = {take.content_key: _replace_or_reuse(take) for take in stored if take.pk not in kept}
    return found | others


def drop_stored(stored: Iterable[Take]) -> None:
    delete_objects([key for take in stored for key in (take.codes_key, take.audio_key)])


def drop_unused_take(take: Take) -> None:
    """Delete a take that no segment has, and its objects; one that is in use stays."""
    try:
        unused = Take.objects.filter(segments__isnull=True, candidate_of__isnull=True)
        deleted, _ = unused.filter(pk=take.pk).delete()
    except IntegrityError:  # a segment took it in this moment
        return
    if deleted:
        delete_objects([take.codes_key, take.audio_key])


def _replace_or_reuse(stored: Take) -> Take:
    """Return the take with this key, made meanwhile; give it our objects where its own are gone."""
    take = Take.objects.get(content_key=stored.content_key)
    if take.audio_key == stored.audio_key:  # an earlier call has done so
        return take
    if not default_storage.exists(take.audio_key):
        columns = {
            field.attname: getattr(stored, field.attname)
            for field in Take._meta.concrete_fields
            if field.attname not in ("id", "content_key", "created_at")
        }
        rows = Take.objects.filter(pk=take.pk, audio_key=take.audio_key)
        if rows.update(**columns):
            return Take.objects.get(pk=take.pk)
    drop_stored([stored])
    return take


def _measures(rendered: SegmentAudio) -> dict[str, float]:
    """Return peak and rms level in dBFS and where the time went, in seconds.

    Raises:
        NotFiniteAudioError: a sample is not a number, which shows in the sum of squares.
    """
    audio, timings = rendered.audio, rendered.timings
    total = float(np.einsum("i,i->", audio, audio, dtype=np.float64))
    if not math.isfinite(total):
        raise NotFiniteAudioError("The model's audio contains samples that are not numbers.")
    peak = max(float(audio.max()), -float(audio.min())) if len(audio) else 0.0
    return {
        "peak_dbfs": round(dbfs(peak), 2),
        "rms_dbfs": round(dbfs(math.sqrt(total / max(len(audio), 1))), 2),
        "queue_seconds": round(timings.queue_seconds, 4),
        "prefill_seconds": round(timings.prefill_seconds, 4),
        "decode_seconds": round(timings.decode_seconds, 4),
        "codec_seconds": round(timings.codec_seconds, 4),
    }


PROMPT_TOO_LONG = "prompt_too_long"
MISSING_CODES_DELAY_SECONDS = 0.5
MOST_SETTLED_TOGETHER = 16  # each takes a millisecond or two, in which nobody else writes
Judge = Callable[[Take, RenderRequest, SegmentAudio], None]


@dataclass
class SegmentSteps:
    """Take the steps of segments that one worker has claimed.

    Args:
        settle: settles an error by its claim; see `kinds.settle`.
        judge: says more of a take that was stored and screened.
        is_closing: whether the worker hands its claims back, so that nothing is to be settled.
        is_screened: whether takes are screened; None is what this host's checkpoint says.
    """

    codes: CodesLookup
    settle: Callable[[HeldClaim, Exception, kinds.Known], None]
    judge: Judge
    is_closing: Callable[[], bool]
    is_screened: bool | None = None

    def begin(self, claims: Sequence[HeldClaim], engine: EngineNames) -> Begun:
        """Reuse the takes of claimed segments, and say what of the others is to be rendered."""
        begun = Begun()
        try:
            requests = build_requests([claim.pk for claim in claims], self.codes, engine)
            keys = [one.content_key for one in requests.values() if isinstance(one, RenderRequest)]
            takes = find_takes(keys)
        except Exception as error:  # noqa: BLE001
            self._settle_all(claims, error)
            return begun
        reused: list[tuple[HeldClaim, Take]] = []
        asked: dict[HeldClaim, RenderRequest] = {}
        chained: dict[HeldClaim, int] = {}
        for claim in claims:
            request = requests.get(claim.pk)
            if isinstance(request, Exception):
                self._settle(claim, request)
            elif request is not None:  # else its row is gone
                claim.request = request
                if request.is_chained:
                    chained[claim] = len(request.spec.history)
                if request.content_key in takes:
                    reused.append((claim, takes[request.content_key]))
                else:
                    asked[claim] = request
        if chained:
            retry_while_away(partial(note_history, chained))
        reused += self._begin_takes(asked, begun)
        begun.settled = self._finish(reused, is_reused=True)
        return begun

    def _begin_takes(
        self, asked: dict[HeldClaim, RenderRequest], begun: Begun
    ) -> list[tuple[HeldClaim, Take]]:
        """Say which segments are to be rendered; those whose take another claim renders wait.

        Returns the claims whose takes have come meanwhile.
        """
        try:
            wanted = {claim: request.content_key for claim, request in asked.items()}
            mine = retry_while_away(partial(begin_takes, wanted))
            # Whoever had a key before may have finished between our look and our claim on it.
            takes = retry_while_away(partial(find_takes, [wanted[claim] for claim in mine]))
            waiting = {claim: key for claim, key in wanted.items() if claim not in mine}
            if waiting and retry_while_away(partial(wait_for_takes, waiting)) < len(waiting):
                for claim in waiting:  # what is still held is of a job that was cancelled
                    retry_while_away(partial(leases.hand_back, Segment, claim))
        except Exception as error:  # noqa: BLE001
            self._settle_all(list(asked), error)
            return []
        found = {claim: takes[wanted[claim]] for claim in mine if wanted[claim] in takes}
        begun.requests = {
            claim: request
            for claim, request in asked.items()
            if claim in mine and claim not in found
        }
        begun.awaited = list(waiting.values())
        if waiting:
            sentence = "segments wait for equal takes that are being rendered: count=%d"
            logger.info(sentence, len(waiting))
        return list(found.items())

    def settle_rendered(self, claims: Sequence[HeldClaim], store: Store) -> Settled:
        """Keep what the engine made of segments, and settle their claims."""
        stored: list[tuple[HeldClaim, Take]] = []
        outcomes = store(self._store, claims)
        if self.is_closing():  # nobody would wait for their rows
            drop_stored([take for take in outcomes if isinstance(take, Take)])
            return Settled()
        freed = False
        for claim, outcome in zip(claims, outcomes, strict=True):
            if isinstance(outcome, Exception):
                self._settle(claim, outcome)
                freed |= claim.request.is_chained
            elif outcome is not None:
                stored.append((claim, outcome))
        settled = self._finish(self._with_rows(stored))
        settled.freed |= freed
        return settled

    def _store(self, claim: HeldClaim) -> Take | Exception | None:
        """Return a rendered segment's take, whose row is still to be written, or why there is none.

        None once the worker hands its claims back, which gives this one back as well.
        """
        if self.is_closing():
            return None
        request = claim.request
        try:
            assert claim.future is not None
            rendered = claim.future.result()
            key, decoder = request.content_key, request.decoder
            store = partial(store_take, key, rendered, decoder=decoder)
            take = retry_while_away(store)
            if claim.take_id is not None:  # by which the pieces are known that were heard of it
                take.pk = claim.take_id
        except Exception as error:  # noqa: BLE001
            return error
        try:
            screen_take(take, request.spec, rendered, is_on=self.is_screened)
            self.judge(take, request, rendered)
        except Exception as error:  # noqa: BLE001
            drop_stored([take])
            return error
        return take

    def _with_rows(self, stored: list[tuple[HeldClaim, Take]]) -> list[tuple[HeldClaim, Take]]:
        """Return the claims with takes that have rows: those just written, or others of a name."""
        if not stored:
            return []
        takes = [take for _, take in stored]
        try:
            found = retry_while_away(partial(add_takes, takes))
        except Exception as error:  # noqa: BLE001
            if len(stored) > 1:  # one of them may be at fault
                return [pair for one in stored for pair in self._with_rows([one])]
            drop_stored(takes)
            self._settle(stored[0][0], error)
            return []
        return [(claim, found[take.content_key]) for claim, take in stored]

    def _finish(self, done: list[tuple[HeldClaim, Take]], *, is_reused: bool = False) -> Settled:
        """Write that segments are done, or wait for another take."""
        settled = Settled()
        for start in range(0, len(done), MOST_SETTLED_TOGETHER):
            some = done[start : start + MOST_SETTLED_TOGETHER]
            self._finish_some(some, settled, is_reused=is_reused)
        return settled

    def _finish_some(
        self, done: list[tuple[HeldClaim, Take]], settled: Settled, *, is_reused: bool
    ) -> None:
        takes = dict(done)
        reused = set(takes) if is_reused else set()
        try:
            again = retry_while_away(partial(retake_segments, done, reused=reused))
            rest = [(claim, take) for claim, take in done if claim not in again]
            ended = retry_while_away(partial(finish_segments, rest, reused=reused))
        except Exception as error:  # noqa: BLE001
            for claim, take in done:
                if len(done) > 1:  # one of them may be at fault
                    self._finish_some([(claim, take)], settled, is_reused=is_reused)
                else:
                    self._settle(claim, error)
            return
        settled.made += [take.content_key for _, take in done]
        settled.again += len(again)
        settled.done += len(ended)
        settled.freed |= any(claim.request.is_chained for claim in ended)
        if again:
            logger.info("suspicious takes are rendered again: count=%d", len(again))
        for claim, take in done:
            if claim not in ended | again:
                logger.info("segment was taken over or removed meanwhile: segment=%s", claim.pk)
                if not Segment.objects.filter(pk=claim.pk, status__in=OPEN).exists():
                    drop_unused_take(take)  # nobody will ask for it: its job was stopped or deleted
        if ended:
            frames = sum(takes[claim].frames for claim in ended)
            seconds = sum(takes[claim].audio_seconds for claim in ended)
            logger.info(
                "segments done: count=%d frames=%d seconds=%.1f", len(ended), frames, seconds
            )

    def _settle(self, claim: HeldClaim, error: Exception) -> None:
        self.settle(claim, error, settle_known)

    def _settle_all(self, claims: Sequence[HeldClaim], error: Exception) -> None:
        for claim in claims:
            self._settle(claim, error)


def settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    """Settle what may be wrong with a segment."""
    if isinstance(error, CancelledError) or getattr(error, "code", "") == "cancelled":
        return kinds.wait(claim)
    if isinstance(error, CodesMissingError):
        reopen_without_codes(error.version_id)
        return kinds.wait(claim, seconds=MISSING_CODES_DELAY_SECONDS)
    if isinstance(error, EarlierOpenError):
        return kinds.wait(claim)
    if getattr(error, "code", "") == PROMPT_TOO_LONG and _has_history(claim):
        # This engine's slots have no room for it: it is rendered without, and the row says so.
        return leases.hand_back(Segment, claim, history_used=0)
    if isinstance(error, IntegrityError):  # the take was deleted with its job in this moment
        return kinds.wait(claim)
    if isinstance(error, VoiceSilencedError):
        return kinds.fail(claim, error.code, str(error))
    return None


def _has_history(claim: HeldClaim) -> bool:
    request: RenderRequest | None = getattr(claim, "request", None)
    return request is not None and bool(request.spec.history)
