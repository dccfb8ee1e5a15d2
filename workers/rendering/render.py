"""Render claimed segments: ask the engine, keep the takes, and settle each claim exactly once."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Iterable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import IntegrityError, transaction

from synth.card import CardError, read_card
from synth.contract import RenderSpec, SegmentAudio
from synth.engine import EngineError
from synth.models import Segment, Take
from synth.transitions.claims import begin_takes, wait_for_takes
from synth.transitions.jobs import OPEN
from synth.transitions.segments import finish_segments, retake_segments
from ttsweb import leases
from voices.objects import delete_objects
from voices.transitions import reopen_without_codes
from workers import errors
from workers.audio.clips import dbfs
from workers.audio.writers import store_flac
from workers.errors import retry_while_away, settle_error
from workers.process.held_claims import HeldClaim
from workers.rendering.codes import pack_codes
from workers.rendering.live_writer import Cutter, HeardSegment
from workers.rendering.quality import screen
from workers.rendering.render_request import (
    CodesMissingError,
    RenderRequest,
    VoiceSilencedError,
    build_requests,
)
from workers.rendering.rendered import Rendered, RenderedQueue

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
    except Exception as error:  # noqa: BLE001
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
    reused += _begin_takes(process, asked)
    _finish(process, reused, is_reused=True)


def _begin_takes(
    process: WorkerProcess, asked: Sequence[tuple[HeldClaim, RenderRequest]]
) -> list[tuple[HeldClaim, Take]]:
    """Hand segments to the engine; those whose take another claim renders wait for that in rows.

    Returns the claims whose takes have come meanwhile.
    """
    try:
        wanted = {claim.fence: request.content_key for claim, request in asked}
        begun = retry_while_away(partial(begin_takes, wanted))
        # Whoever had a key before may have finished between our look and our claim on it.
        takes = retry_while_away(partial(find_takes, [wanted[fence] for fence in begun]))
        waiting = {fence: key for fence, key in wanted.items() if fence not in begun}
        if waiting and retry_while_away(partial(wait_for_takes, waiting)) < len(waiting):
            for fence in waiting:  # what is still held is of a job that was cancelled
                retry_while_away(partial(leases.hand_back, Segment, fence))
    except Exception as error:  # noqa: BLE001
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
    future = claim.future = _ask(process, claim, request)
    if claim.is_lost or process.handing_back.is_set():
        claim.stop()
    future.add_done_callback(lambda done: process.note_rendered(Rendered(claim, request, done)))


def _ask(process: WorkerProcess, claim: HeldClaim, request: RenderRequest) -> Future[SegmentAudio]:
    """Ask the engine; where somebody listens, the samples are written while they are made."""
    engine = process.host.engine
    if not request.is_live or claim.job_id is None:
        return engine.submit(request.spec, priority=request.priority)
    claim.take_id = uuid.uuid4()
    names = {"job_id": claim.job_id, "segment_id": claim.pk, "attempt": claim.take_id}
    cutter = Cutter(**names, sample_rate=engine.sample_rate, heard_rate=request.heard_rate)
    heard = HeardSegment(process.live, cutter)
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
        wanted: list[Rendered] = []
        for item in items:
            if item.claim.is_lost:  # whoever has the row now renders it
                process.held.drop(item.claim)
            else:
                wanted.append(item)
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
    except Exception as error:  # noqa: BLE001
        return error
    try:
        spec = item.request.spec
        screen_take(take, spec, rendered)
        process.speech.judge(take, spec.text, rendered, language=item.request.language)
    except Exception as error:  # noqa: BLE001
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
    except Exception as error:  # noqa: BLE001
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
        settled = retry_while_away(partial(finish_segments, rest, reused=reused))
    except Exception as error:  # noqa: BLE001
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


class CardInvalidError(EngineError):
    """The checkpoint's card became unreadable, so nobody knows whether to screen."""

    code = "checkpoint_card_invalid"


def screen_take(take: Take, spec: RenderSpec, rendered: SegmentAudio) -> None:
    """Write what the screen finds into a take whose row is still to be written.

    Where the card has the screen off, the take's score stays None.

    Raises:
        CardInvalidError: the card cannot be read.
    """
    try:
        is_on = read_card(settings.CHECKPOINT).quality_screen
    except CardError as error:
        raise CardInvalidError(str(error)) from error
    if not is_on:
        return
    quality = screen(spec, rendered)
    take.quality_score, take.quality_flags = quality.score, quality.flags
    take.measures = take.measures | quality.measures


class NotFiniteAudioError(EngineError):
    """The codec gave samples that are not numbers."""

    code = "audio_not_finite"


def find_takes(content_keys: Iterable[str]) -> dict[str, Take]:
    """Return the takes of requests whose audio is there, by content key."""
    found = Take.objects.filter(content_key__in=set(content_keys))
    return {take.content_key: take for take in found if default_storage.exists(take.audio_key)}


def store_take(content_key: str, rendered: SegmentAudio) -> Take:
    """Store a rendering's codes and audio; return its take, which has no row yet: see `add_takes`.

    Raises:
        NotFiniteAudioError: the audio holds samples that are not numbers.
        OSError: the storage cannot be written; nothing is left behind.
    """
    measures = _measures(rendered)
    folder = f"takes/{content_key[:2]}/{content_key}"
    packed = pack_codes(rendered.codes, content_key=content_key)
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
