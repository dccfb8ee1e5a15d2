"""Render claimed segments: ask the engine, keep the take, and settle each claim exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial

import numpy as np
from django.conf import settings
from django.db import IntegrityError

from synth import transitions
from synth.contract import SegmentAudio
from synth.engine import EngineError
from synth.models import RenderJob, Segment, Take
from synth.transitions import Claim
from voices.transitions import reopen_without_codes
from workers.held_claims import HeldClaim
from workers.outages import is_disk_full, is_outage, outlast
from workers.render_request import CodesMissingError, RenderRequest, build_request
from workers.takes import drop_unused_take, find_take, save_take
from workers.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

OUTAGE_DELAY_SECONDS = 5.0
MISSING_CODES_DELAY_SECONDS = 0.5
RETRY_DELAY_SECONDS = 2.0  # doubled by every attempt that was spent
UNEXPECTED_MESSAGE = (
    "Rendering this text failed in a way nobody foresaw; the worker's log has the traceback."
)


class NotFiniteAudioError(EngineError):
    """The codec gave samples that are not numbers."""

    code = "audio_not_finite"


def begin_segment(process: WorkerProcess, claim: HeldClaim) -> None:
    """Reuse the take of a claimed segment, or hand the segment to the engine."""
    try:
        segment = Segment.objects.select_related("job").get(pk=claim.pk)
        if segment.job.cancel_requested:
            _settle(process, claim, partial(transitions.cancel_segment, _fence(claim)))
            return
        if process.codes is None:
            raise RuntimeError("a worker without an engine was asked to render")
        request = build_request(segment, process.codes, process.host.engine)
        take = find_take(request.content_key)
        if take is not None:
            _finish(process, claim, take)
            return
    except Exception as error:
        _settle_error(process, claim, error)
        return
    _submit(process, claim, request)


def _submit(process: WorkerProcess, claim: HeldClaim, request: RenderRequest) -> None:
    """Ask the engine; its answer is dealt with in our own threads, never in the engine's."""
    future = process.host.engine.submit(request.spec, priority=request.priority)
    claim.future = future
    if claim.is_lost or process.handing_back.is_set():
        claim.stop()
    future.add_done_callback(
        lambda done: process.run(claim, end_segment, request.content_key, done)
    )


def end_segment(
    process: WorkerProcess, claim: HeldClaim, content_key: str, future: Future[SegmentAudio]
) -> None:
    """Keep what the engine made of a segment and settle its claim."""
    if process.handing_back.is_set():
        return  # the shutdown gives the claim back
    if claim.is_lost:  # whoever has the row now renders it
        process.held.drop(claim)
        return
    try:
        rendered = future.result()
        if not np.isfinite(rendered.audio).all():
            raise NotFiniteAudioError("The model's audio holds samples that are not numbers.")
        take = outlast(partial(save_take, content_key, rendered))
        _finish(process, claim, take)
    except Exception as error:
        _settle_error(process, claim, error)


def _finish(process: WorkerProcess, claim: HeldClaim, take: Take) -> None:
    if _settle(process, claim, partial(transitions.finish_segment, _fence(claim), take)):
        logger.info("segment done: frames=%d seconds=%.1f", take.frames, take.audio_seconds)
    elif not Segment.objects.filter(pk=claim.pk).exists():  # its job was deleted meanwhile
        drop_unused_take(take)


def _settle(process: WorkerProcess, claim: HeldClaim, step: Callable[[], bool]) -> bool:
    """Write a claim's end, waiting for a database that is away, and forget the claim.

    Returns False when the claim was not ours any more, so that nothing was written.
    """
    settled = outlast(step)
    if not settled:
        logger.info("segment was taken over or removed meanwhile")
    process.held.drop(claim)
    return settled


def _fence(claim: HeldClaim) -> Claim:
    return Claim(claim.pk, claim.token)


def _settle_error(process: WorkerProcess, claim: HeldClaim, error: Exception) -> None:
    """Decide what an error means: wait, once more, or the row says why not."""
    if process.handing_back.is_set():
        return
    fence = _fence(claim)
    release = partial(cancel_or_release, fence)
    if claim.is_lost or isinstance(error, Segment.DoesNotExist):
        process.held.drop(claim)
    elif isinstance(error, CancelledError) or getattr(error, "code", "") == "cancelled":
        _settle(process, claim, release)
    elif isinstance(error, CodesMissingError):
        reopen_without_codes(error.version_id)
        _settle(process, claim, partial(release, delay_seconds=MISSING_CODES_DELAY_SECONDS))
    elif is_outage(error):
        logger.warning("segment waits, not its fault: %s", error)
        if is_disk_full(error):
            process.pause_claims("The disk is full: no audio can be stored.")
        _settle(process, claim, partial(release, delay_seconds=OUTAGE_DELAY_SECONDS))
    elif isinstance(error, IntegrityError):  # the take was deleted with its job in this moment
        _settle(process, claim, release)
    elif isinstance(error, EngineError):
        retry = partial(_retry_or_fail, fence, error.code, str(error), retry=error.retryable)
        _settle(process, claim, retry)
    else:
        logger.error("segment failed unexpectedly", exc_info=error)
        retry = partial(_retry_or_fail, fence, "unexpected_error", UNEXPECTED_MESSAGE, retry=True)
        _settle(process, claim, retry)


def cancel_or_release(fence: Claim, *, delay_seconds: float = 0.0) -> bool:
    """Cancel a segment whose job was cancelled; any other waits again, with no attempt spent."""
    if RenderJob.objects.filter(segments=fence.pk, cancel_requested=True).exists():
        return transitions.cancel_segment(fence)
    return transitions.release_segment(fence, delay_seconds=delay_seconds)


def _retry_or_fail(fence: Claim, code: str, message: str, *, retry: bool) -> bool:
    attempts = Segment.objects.filter(pk=fence.pk).values_list("attempts", flat=True).first()
    if attempts is None:
        return False
    if not retry or attempts >= settings.MAX_ATTEMPTS:
        return transitions.fail_segment(fence, code=code, message=message)
    delay = RETRY_DELAY_SECONDS * 2**attempts
    return transitions.release_segment(fence, delay_seconds=delay, spend_attempt=True)
