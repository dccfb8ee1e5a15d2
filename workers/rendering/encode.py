"""Encode a voice version: each clip decoded, measured and turned into codes, by one worker only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttsweb.work import Kind
from voices.clip_checks import MAX_REFERENCE_SECONDS, MIN_REFERENCE_SECONDS
from voices.models import StoredClip
from workers.audio.clips import ClipLimits, DecodedClip, decode_clip
from workers.errors import settle_errors
from workers.process.held_claims import HeldClaim
from workers.site.clips import settle_known
from workers.site.protocol import EncodedClip

if TYPE_CHECKING:
    from workers.process.worker_process import WorkerProcess

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
    """Return the decoded upload; raises ClipError."""
    process.scratch.mkdir(parents=True, exist_ok=True)
    limits = ClipLimits(
        min_seconds=MIN_REFERENCE_SECONDS,
        max_seconds=MAX_REFERENCE_SECONDS,
        wall_seconds=CLIP_DECODE_SECONDS,
        megabytes=CLIP_DECODE_MEGABYTES,
    )
    return decode_clip(content, container=container, limits=limits, scratch=process.scratch)
