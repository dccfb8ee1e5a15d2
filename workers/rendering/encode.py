"""Encode a voice version: each clip decoded, measured and turned into codes, by one worker only."""

from __future__ import annotations

import logging
import uuid
from functools import partial

from django.core.files.storage import default_storage

from synth.engine import EngineError
from synth.models import Segment
from synth.transitions.jobs import UNFINISHED
from ttsweb.work import Kind, enqueue
from voices import transitions
from voices.clip_checks import MAX_REFERENCE_SECONDS, MIN_REFERENCE_SECONDS
from voices.models import ReferenceClip, StoredClip, VoiceVersion
from voices.objects import delete_objects
from workers import errors
from workers.audio.clips import ClipError, ClipLimits, DecodedClip, decode_clip
from workers.audio.writers import store_flac
from workers.errors import retry_while_away, settle_errors
from workers.process.held_claims import HeldClaim
from workers.process.worker_process import WorkerProcess
from workers.rendering.codes import ClipBusyError, EncoderRun

# What decoding one clip may take: a minute of sound takes a second; the rest is for slow machines.
CLIP_DECODE_SECONDS = 20.0
CLIP_DECODE_MEGABYTES = 1024  # MiB, libraries included

logger = logging.getLogger(__name__)

BUSY_DELAY_SECONDS = 0.3
SEGMENTS_ANNOUNCED = 64  # enough to wake the workers; their pumps find the rest
CLIPS_REMOVED_MESSAGE = "The clips of this voice were removed before they were encoded."


def encode_voice_version(process: WorkerProcess, claim: HeldClaim) -> None:
    """Encode a claimed version's clips and finish, fail or release it."""
    with settle_errors(process, claim, _settle_known):
        _encode_clips(process, claim)


def _encode_clips(process: WorkerProcess, claim: HeldClaim) -> None:
    version = VoiceVersion.objects.select_related("voice").get(pk=claim.pk)
    clips = list(version.clips.select_related("stored"))
    if not clips:
        raise ClipError("clip_removed", CLIPS_REMOVED_MESSAGE)
    keep = version.voice is None or version.voice.cache_codes
    frames = 0
    warnings: list[dict[str, str]] = []
    for clip in clips:
        claim.check()
        frames += _encode_clip(process, claim, clip, keep=keep)
        stored = StoredClip.objects.filter(pk=clip.stored_id).first()
        warnings += stored.measures.get("warnings", []) if stored else []
    finish = partial(
        transitions.finish_version,
        claim.fence,
        codec_fingerprint=process.host.engine.codec_fingerprint,
        frames=frames,
        warnings=warnings,
    )
    if retry_while_away(finish):
        logger.info("version ready: clips=%d frames=%d", len(clips), frames)
        _announce_segments(version.pk)


def _encode_clip(
    process: WorkerProcess, claim: HeldClaim, clip: ReferenceClip, *, keep: bool
) -> int:
    if process.codes is None:
        raise RuntimeError("a worker without an engine was asked to encode")
    engine, stored = process.host.engine, clip.stored

    def encode() -> EncoderRun:
        decoded = _decode(process, stored)
        claim.check()
        _keep_what_was_used(stored, decoded)
        codes = engine.encode_reference(decoded.waveform, decoded.sample_rate)
        return EncoderRun(codes, engine.resampler)

    codes = process.codes.find_or_encode(
        stored, engine.codec_fingerprint, keep=keep, held=process.held, encode=encode
    )
    return int(codes.shape[1])


def _decode(process: WorkerProcess, stored: StoredClip) -> DecodedClip:
    """Return the decoded upload; raises ClipError, or OSError where the storage is away."""
    if not stored.original_key:
        raise ClipError("clip_removed", CLIPS_REMOVED_MESSAGE)
    with default_storage.open(stored.original_key) as file:
        content = file.read()
    process.scratch.mkdir(parents=True, exist_ok=True)
    limits = ClipLimits(
        min_seconds=MIN_REFERENCE_SECONDS,
        max_seconds=MAX_REFERENCE_SECONDS,
        wall_seconds=CLIP_DECODE_SECONDS,
        megabytes=CLIP_DECODE_MEGABYTES,
    )
    return decode_clip(content, container=stored.container, limits=limits, scratch=process.scratch)


def _keep_what_was_used(stored: StoredClip, decoded: DecodedClip) -> None:
    """Save the mono audio and its measures beside the original, once."""
    if stored.used_key:
        return
    key = store_flac(f"clips/{stored.fingerprint}", decoded.waveform, decoded.sample_rate)
    rows = StoredClip.objects.filter(pk=stored.pk, used_key="").exclude(original_key="")
    kept = rows.update(used_key=key, measures=decoded.measures)
    if not kept:  # removed meanwhile
        delete_objects([key])


def _announce_segments(version_id: uuid.UUID) -> None:
    queued = Segment.objects.filter(job__status__in=UNFINISHED, status=Segment.Status.QUEUED)
    waiting = queued.filter(job__voices__version=version_id)
    ids = waiting.order_by("job__created_at", "pk").values_list("pk", flat=True)
    enqueue(Kind.SEGMENT, list(ids[:SEGMENTS_ANNOUNCED]))


def _settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    if isinstance(error, ClipBusyError):
        return errors.wait(claim, seconds=BUSY_DELAY_SECONDS)
    if isinstance(error, ClipError):
        return errors.fail(claim, error.code, error.message)
    if isinstance(error, EngineError):
        settle = errors.retry if error.retryable else errors.fail
        return settle(claim, error.code, str(error))
    if isinstance(error, FileNotFoundError):
        message = "The clip's file is no longer stored; upload the clip again."
        return errors.retry(claim, "clip_lost", message)
    return None
