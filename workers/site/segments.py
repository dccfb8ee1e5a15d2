"""Begin and settle claimed segments by their rows: each ends with one take, an error, or queued."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial

from django.db import IntegrityError

from synth.contract import CodedError, SegmentAudio
from synth.models import Segment, Take
from synth.transitions.chains import note_history
from synth.transitions.claims import begin_takes, wait_for_takes
from synth.transitions.jobs import OPEN
from synth.transitions.segments import finish_segments, retake_segments
from ttsweb import leases
from voices.transitions import reopen_without_codes
from workers import errors
from workers.errors import retry_while_away
from workers.process.held_claims import HeldClaim
from workers.rendering import takes as stored_takes
from workers.rendering.codes import CodesLookup
from workers.rendering.render_request import (
    CodesMissingError,
    EarlierOpenError,
    EngineNames,
    RenderRequest,
    VoiceSilencedError,
    build_requests,
)
from workers.rendering.takes import drop_stored, drop_unused_take, find_takes, screen_take
from workers.site.protocol import Begun, Settled, Store

logger = logging.getLogger(__name__)

PROMPT_TOO_LONG = "prompt_too_long"
MISSING_CODES_DELAY_SECONDS = 0.5
MOST_SETTLED_TOGETHER = 16  # each takes a millisecond or two, in which nobody else writes
Judge = Callable[[Take, RenderRequest, SegmentAudio], None]


@dataclass
class SegmentSteps:
    """Take the steps of segments that one worker has claimed.

    Args:
        settle: settles an error by its claim; see `errors.settle`.
        judge: says more of a take that was stored and screened.
        is_closing: whether the worker hands its claims back, so that nothing is to be settled.
        is_screened: whether takes are screened; None is what this host's checkpoint says.
    """

    codes: CodesLookup
    settle: Callable[[HeldClaim, Exception, errors.Known], None]
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
            store = partial(stored_takes.store_take, request.content_key, rendered)
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
            found = retry_while_away(partial(stored_takes.add_takes, takes))
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
        return errors.wait(claim)
    if isinstance(error, CodesMissingError):
        reopen_without_codes(error.version_id)
        return errors.wait(claim, seconds=MISSING_CODES_DELAY_SECONDS)
    if isinstance(error, EarlierOpenError):
        return errors.wait(claim)
    if getattr(error, "code", "") == PROMPT_TOO_LONG and _has_history(claim):
        # This engine's slots have no room for it: it is rendered without, and the row says so.
        return leases.hand_back(Segment, claim, history_used=0)
    if isinstance(error, IntegrityError):  # the take was deleted with its job in this moment
        return errors.wait(claim)
    if isinstance(error, VoiceSilencedError):
        return errors.fail(claim, error.code, str(error))
    if isinstance(error, CodedError):
        settle = errors.retry if error.retryable else errors.fail
        return settle(claim, error.code, str(error))
    return None


def _has_history(claim: HeldClaim) -> bool:
    request: RenderRequest | None = getattr(claim, "request", None)
    return request is not None and bool(request.spec.history)
