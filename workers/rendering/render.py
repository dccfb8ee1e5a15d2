"""Render claimed segments: ask the engine, keep the takes, and settle each claim exactly once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING

from django.db import IntegrityError

from synth import transitions
from synth.contract import SegmentAudio
from synth.engine import EngineError
from synth.models import Segment, Take
from synth.transitions.jobs import OPEN
from synth.transitions.segments import retake_segments
from ttsweb import leases
from voices.transitions import reopen_without_codes
from workers import errors
from workers.errors import retry_while_away, settle_error
from workers.process.held_claims import HeldClaim
from workers.rendering.render_request import (
    CodesMissingError,
    RenderRequest,
    VoiceSilencedError,
    build_requests,
)
from workers.rendering.rendered import Rendered, RenderedQueue
from workers.rendering.takes import (
    add_takes,
    drop_stored,
    drop_unused_take,
    find_takes,
    screen_take,
    store_take,
)

if TYPE_CHECKING:
    from workers.process.worker_process import WorkerProcess  # it settles with this module

logger = logging.getLogger(__name__)

MISSING_CODES_DELAY_SECONDS = 0.5
MOST_SETTLED_TOGETHER = 16  # each takes a millisecond or two, in which nobody else writes


def begin_segments(process: WorkerProcess, claims: Sequence[HeldClaim]) -> None:
    """Reuse the takes of claimed segments, and hand the other segments to the engine."""
    if process.codes is None:
        raise RuntimeError("a worker without an engine was asked to render")
    try:
        engine = process.host.engine
        requests = build_requests([claim.pk for claim in claims], process.codes, engine)
        keys = [one.content_key for one in requests.values() if isinstance(one, RenderRequest)]
        takes = find_takes(keys)
    except Exception as error:
        for claim in claims:
            settle_error(process, claim, error, _settle_known)
        return
    reused: list[tuple[HeldClaim, Take]] = []
    asked: list[tuple[HeldClaim, RenderRequest]] = []
    for claim in claims:
        request = requests.get(claim.pk)
        if request is None:  # its row is gone
            process.held.drop(claim)
        elif isinstance(request, Exception):
            settle_error(process, claim, request, _settle_known)
        elif request.content_key in takes:
            reused.append((claim, takes[request.content_key]))
        else:
            asked.append((claim, request))
    for claim, take in _begin_takes(process, asked):
        reused.append((claim, take))
    _finish(process, reused, is_reused=True)


def _begin_takes(
    process: WorkerProcess, asked: Sequence[tuple[HeldClaim, RenderRequest]]
) -> list[tuple[HeldClaim, Take]]:
    """Hand segments to the engine; those whose take another claim renders wait for that in rows.

    Returns the claims whose takes have come meanwhile.
    """
    try:
        wanted = {claim.fence: request.content_key for claim, request in asked}
        begun = retry_while_away(partial(transitions.begin_takes, wanted))
        # Whoever had a key before may have finished between our look and our claim on it.
        takes = retry_while_away(partial(find_takes, [wanted[fence] for fence in begun]))
        waiting = {fence: key for fence, key in wanted.items() if fence not in begun}
        if waiting and retry_while_away(partial(transitions.wait_for_takes, waiting)) < len(
            waiting
        ):
            for fence in waiting:  # what is still held is of a job that was cancelled
                retry_while_away(partial(leases.hand_back, Segment, fence))
    except Exception as error:
        for claim, _ in asked:
            settle_error(process, claim, error, _settle_known)
        return []
    found: list[tuple[HeldClaim, Take]] = []
    for claim, request in asked:
        if claim.fence in waiting:
            process.held.drop(claim)
        elif request.content_key in takes:
            found.append((claim, takes[request.content_key]))
        else:
            _submit(process, claim, request)
    if waiting:
        logger.info("segments wait for equal takes that are being rendered: count=%d", len(waiting))
        process.note_awaited(waiting.values())
    return found


def _submit(process: WorkerProcess, claim: HeldClaim, request: RenderRequest) -> None:
    """Ask the engine; its answer is dealt with in our own threads, never in the engine's."""
    if claim.is_lost:
        process.held.drop(claim)
        return
    process.spoken.note(request.clips, request.spec.references)
    future = _ask(process, claim, request)
    claim.future = future
    if claim.is_lost or process.handing_back.is_set():
        claim.stop()
    future.add_done_callback(lambda done: process.note_rendered(Rendered(claim, request, done)))


def _ask(process: WorkerProcess, claim: HeldClaim, request: RenderRequest) -> Future[SegmentAudio]:
    """Ask the engine; where somebody listens, the samples are written while they are made."""
    engine = process.host.engine
    if not request.is_live or claim.job_id is None:
        return engine.submit(request.spec, priority=request.priority)
    heard = process.live.begin(
        job_id=claim.job_id,
        segment_id=claim.pk,
        sample_rate=engine.sample_rate,
        heard_rate=request.heard_rate,
    )
    claim.take_id = heard.attempt
    future = engine.submit(request.spec, priority=request.priority, on_audio=heard.take)
    future.add_done_callback(heard.end)
    return future


def settle_rendered(process: WorkerProcess, queue: RenderedQueue) -> None:
    """Keep what the engine made of segments and settle their claims, many at once."""
    items: list[Rendered] = []
    try:
        items = queue.take()
        if process.handing_back.is_set():
            return  # the shutdown gives the claims back
        wanted = [item for item in items if not _drop_lost(process, item.claim)]
        stored: list[tuple[HeldClaim, Take]] = []
        store = process.store_first if queue is process.rendered_first else process.store
        outcomes = store(partial(_store, process), wanted)
        if process.handing_back.is_set():  # nobody would wait for their rows
            drop_stored([take for take in outcomes if isinstance(take, Take)])
            return
        for item, outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Exception):
                settle_error(process, item.claim, outcome, _settle_known)
            elif outcome is not None:
                stored.append((item.claim, outcome))
        _finish(process, _with_rows(process, stored))
    except Exception:  # left to expire
        for item in items:
            process.held.drop(item.claim)
        raise
    finally:
        queue.end_run()


def _drop_lost(process: WorkerProcess, claim: HeldClaim) -> bool:
    """Forget a claim that is not ours any more: whoever has the row now renders it."""
    if claim.is_lost:
        process.held.drop(claim)
    return claim.is_lost


def _store(process: WorkerProcess, item: Rendered) -> Take | Exception | None:
    """Return a rendered segment's take, whose row is still to be written, or why there is none.

    None once the process hands its claims back, which gives this one back as well.
    """
    if process.handing_back.is_set():
        return None
    try:
        rendered = item.future.result()
        take = store_take(item.request.content_key, rendered)
        if item.claim.take_id is not None:  # by which the pieces are known that were heard of it
            take.pk = item.claim.take_id
    except Exception as error:
        return error
    try:
        spec = item.request.spec
        screen_take(take, spec, rendered)
        process.speech.judge(take, spec.text, rendered, language=item.request.language)
    except Exception as error:
        drop_stored([take])
        return error
    return take


def _with_rows(
    process: WorkerProcess, stored: list[tuple[HeldClaim, Take]]
) -> list[tuple[HeldClaim, Take]]:
    """Return the claims with takes that have rows: those just written, or others of that name."""
    if not stored:
        return []
    takes = [take for _, take in stored]
    try:
        found = retry_while_away(partial(add_takes, takes))
    except Exception as error:
        if len(stored) > 1:  # one of them may be at fault
            return [pair for one in stored for pair in _with_rows(process, [one])]
        drop_stored(takes)
        settle_error(process, stored[0][0], error, _settle_known)
        return []
    return [(claim, found[take.content_key]) for claim, take in stored]


def _finish(
    process: WorkerProcess, done: list[tuple[HeldClaim, Take]], *, is_reused: bool = False
) -> None:
    """Write that segments are done, or wait for another take, and forget their claims."""
    for start in range(0, len(done), MOST_SETTLED_TOGETHER):
        _finish_some(process, done[start : start + MOST_SETTLED_TOGETHER], is_reused=is_reused)


def _finish_some(
    process: WorkerProcess, done: list[tuple[HeldClaim, Take]], *, is_reused: bool
) -> None:
    fences = {claim.fence: take for claim, take in done}
    reused = set(fences) if is_reused else set()
    try:
        again = retry_while_away(partial(retake_segments, list(fences.items()), reused=reused))
        rest = [(fence, take) for fence, take in fences.items() if fence not in again]
        settled = retry_while_away(partial(transitions.finish_segments, rest, reused=reused))
    except Exception as error:
        if len(done) > 1:
            for one in done:
                _finish_some(process, [one], is_reused=is_reused)
        else:
            settle_error(process, done[0][0], error, _settle_known)
        return
    process.note_made(take.content_key for _, take in done)
    if again:
        logger.info("suspicious takes are rendered again: count=%d", len(again))
        process.look_for_work()
    for claim, take in done:
        process.held.drop(claim)
        if claim.fence not in settled | again:
            logger.info("segment was taken over or removed meanwhile: segment=%s", claim.pk)
            if not Segment.objects.filter(pk=claim.pk, status__in=OPEN).exists():
                drop_unused_take(take)  # nobody will ask for it: its job was stopped or deleted
    if not settled:
        return
    frames = sum(fences[fence].frames for fence in settled)
    seconds = sum(fences[fence].audio_seconds for fence in settled)
    if process.has_cpu_role:
        process.look_for_work()  # their files, sooner than by a message
    elif process.is_careful or process.is_isolating:
        process.wake.set()
    logger.info("segments done: count=%d frames=%d seconds=%.1f", len(settled), frames, seconds)


def _settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    """Settle the errors that only segments have."""
    if isinstance(error, CancelledError) or getattr(error, "code", "") == "cancelled":
        return errors.wait(claim)
    if isinstance(error, CodesMissingError):
        reopen_without_codes(error.version_id)
        return errors.wait(claim, seconds=MISSING_CODES_DELAY_SECONDS)
    if isinstance(error, IntegrityError):  # the take was deleted with its job in this moment
        return errors.wait(claim)
    if isinstance(error, VoiceSilencedError):
        return errors.fail(claim, error.code, str(error))
    if isinstance(error, EngineError):
        settle = errors.retry if error.retryable else errors.fail
        return settle(claim, error.code, str(error))
    return None
