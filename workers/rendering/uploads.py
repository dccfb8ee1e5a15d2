"""Take uploaded clips: encode those of a voice version, and hear what is said in others.

Each clip is decoded and measured in a process of its own, and encoded by one worker only.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from ttsweb.work import Kind
from voices import transitions
from voices.clip_checks import MAX_REFERENCE_SECONDS, MAX_TRANSCRIPT_CHARS, MIN_REFERENCE_SECONDS
from voices.models import StoredClip, Transcript
from workers import kinds
from workers.audio.clips import ClipError, ClipLimits, DecodedClip, decode_clip
from workers.kinds import retry_while_away, settle_errors
from workers.process.held_claims import HeldClaim
from workers.process.worker_process import WorkerProcess
from workers.rendering.transcriber import NotHeardError
from workers.site.clips import read_clip, settle_known
from workers.site.protocol import EncodedClip

if TYPE_CHECKING:
    from workers.process.worker_process import WorkerProcess

logger = logging.getLogger(__name__)

# What decoding one clip may take: a minute of sound takes a second; the rest is for slow machines.
CLIP_DECODE_SECONDS = 20.0
CLIP_DECODE_MEGABYTES = 1024  # MiB, libraries included


def encode_voice_version(process: WorkerProcess, claim: HeldClaim) -> None:
    """Encode a claimed version's clips and finish, fail or release it."""
    with settle_errors(process, claim, settle_known):
        for clip in process.site.clips_of(claim):
            claim.check()
            _encode_clip(process, claim, clip)
        process.site.finish_version(claim, process.host.engine.codec_fingerprint)


def _encode_clip(process: WorkerProcess, claim: HeldClaim, clip: StoredClip) -> None:
    engine, site = process.host.engine, process.site
    opened = site.open_clip(claim, clip, engine.codec_fingerprint)
    if opened.token is None:
        return
    with process.held.holding(Kind.CODES, opened.codes_pk, opened.token) as run:
        try:
            decoded = decode_upload(process, opened.content, opened.container)
            claim.check()
            codes = engine.encode_reference(decoded.waveform, decoded.sample_rate)
            codes.setflags(write=False)
        except BaseException:
            site.hand_back([run])
            raise
        site.close_clip(claim, clip, opened, EncodedClip(codes, engine.resampler, decoded))


def decode_upload(process: WorkerProcess, content: bytes, container: str) -> DecodedClip:
    """Return the decoded upload; raises as `decode_clip` does."""
    process.scratch.mkdir(parents=True, exist_ok=True)
    limits = ClipLimits(
        min_seconds=MIN_REFERENCE_SECONDS,
        max_seconds=MAX_REFERENCE_SECONDS,
        wall_seconds=CLIP_DECODE_SECONDS,
        megabytes=CLIP_DECODE_MEGABYTES,
    )
    return decode_clip(content, container=container, limits=limits, scratch=process.scratch)


def propose_transcript(process: WorkerProcess, claim: HeldClaim) -> None:
    """Hear a claimed clip and finish, fail or release its row."""
    with settle_errors(process, claim, _settle_known):
        row = Transcript.objects.get(pk=claim.pk)
        decoded = decode_upload(process, read_clip(row.original_key), row.container)
        claim.check()
        heard = process.speech.hear_clip(
            decoded.waveform, decoded.sample_rate, language=row.language
        )
        if not heard:
            raise NotHeardError("No words were heard in the clip.")
        finish = partial(transitions.finish_transcript, claim, heard[:MAX_TRANSCRIPT_CHARS])
        if retry_while_away(finish):
            logger.info("transcript proposed: characters=%d", len(heard))


def _settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    if isinstance(error, ClipError):
        return kinds.fail(claim, error.code, error.message)
    if isinstance(error, NotHeardError):
        return kinds.fail(claim, "not_heard", f"Nothing can be proposed: {error}")
    if isinstance(error, FileNotFoundError):
        message = "The clip's file is no longer stored; send the clip again."
        return kinds.fail(claim, "clip_lost", message)
    return None
