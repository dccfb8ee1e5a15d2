"""Find a clip's codes for whoever encodes its voice, or claim the one run that makes them."""

from __future__ import annotations

import logging
import uuid
from functools import partial

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage

from synth.models import Segment
from synth.transitions.jobs import UNFINISHED
from ttsweb import leases
from ttsweb.storage import delete_objects
from ttsweb.work import Kind, enqueue
from voices import transitions
from voices.models import ClipCodes, StoredClip, VoiceVersion
from workers import kinds
from workers.audio.clips import ClipError
from workers.kinds import retry_while_away
from workers.process.held_claims import HeldClaim
from workers.rendering.codes import CodesLookup, pack_codes, store_flac
from workers.site.protocol import EncodedClip, OpenedClip

logger = logging.getLogger(__name__)

BUSY_DELAY_SECONDS = 0.3
SEGMENTS_ANNOUNCED = 64  # enough to wake the workers; their pumps find the rest
CLIPS_REMOVED_MESSAGE = "The clips of this voice were removed before they were encoded."


class ClipBusyError(Exception):
    """Another worker runs the encoder on this clip at the moment: look again soon."""


def clips_of(claim: HeldClaim) -> list[StoredClip]:
    """Return the clips of a claimed version, in their order.

    Raises:
        ClipError: they were removed.
        ObjectDoesNotExist: the version was.
    """
    version = VoiceVersion.objects.get(pk=claim.pk)
    clips = [clip.stored for clip in version.clips.select_related("stored")]
    if not clips:
        raise ClipError("clip_removed", CLIPS_REMOVED_MESSAGE)
    return clips


def may_keep(claim: HeldClaim) -> bool:
    """Return whether the codes of a version may stay in memory."""
    version = VoiceVersion.objects.select_related("voice").get(pk=claim.pk)
    return version.voice is None or version.voice.cache_codes


def open_clip(
    codes: CodesLookup,
    clip: StoredClip,
    codec: str,
    *,
    worker: str,
    keep: bool,
    token: uuid.UUID | None = None,
) -> OpenedClip:
    """Return a clip whose codes are there, or which the caller is to encode under a claim.

    Memory is not asked: a version is ready only when every worker can find its codes.

    Args:
        token: of the claim, also where an earlier call with it won; None makes one.

    Raises:
        ClipBusyError: another worker runs the encoder on this clip.
        ClipError: the clip was removed.
        OSError: the storage cannot be used at the moment.
    """
    claim = partial(transitions.claim_codes, clip, codec, worker=worker, token=token)
    row, won = claim()
    if won is None and row.encoded_at is not None:
        found = codes.read(row, clip, keep=keep)
        if found is not None:
            return OpenedClip(frames=found.shape[1])
        row, won = claim()
    if won is None:
        raise ClipBusyError
    try:
        content = read_clip(clip.original_key)
    except BaseException:
        leases.hand_back(ClipCodes, leases.Claim(row.pk, won))
        raise
    return OpenedClip(0, row.pk, won, content, clip.container)


def read_clip(key: str) -> bytes:
    """Return an upload; raises ClipError, or OSError where the storage is away."""
    if not key:
        raise ClipError("clip_removed", CLIPS_REMOVED_MESSAGE)
    with default_storage.open(key) as file:
        content: bytes = file.read()
    return content


def close_clip(
    codes: CodesLookup, clip: StoredClip, opened: OpenedClip, made: EncodedClip, *, keep: bool
) -> None:
    """Publish an encoder run; repeating it is harmless.

    Raises:
        ClipBusyError: the clip was removed meanwhile, or the claim ran out.
        OSError: the storage cannot be written.
    """
    if opened.token is None:
        raise ValueError("this clip was not to be encoded")
    row = ClipCodes.objects.filter(pk=opened.codes_pk, clip=clip).first()
    if row is None:
        raise ClipBusyError
    if row.encoded_at is not None:  # by an earlier call whose answer was lost, or by another worker
        return
    epoch, key = codes.cache.epoch, ""
    try:
        _keep_what_was_used(clip, made)
        names = {"clip": clip.fingerprint, "codec": row.codec_fingerprint}
        content = pack_codes(made.codes, **names, resampler=made.resampler)
        # A new object, which no deletion of an earlier one can hit.
        name = f"codes/{clip.fingerprint}/{row.codec_fingerprint[:16]}-{uuid.uuid4().hex}"
        key = retry_while_away(
            lambda: default_storage.save(f"{name}.safetensors", ContentFile(content))
        )
        frames = made.codes.shape[1]
        published = transitions.finish_codes(
            row, opened.token, key=key, frames=frames, resampler=made.resampler
        )
    except BaseException:
        delete_objects([key] if key else [])
        leases.hand_back(ClipCodes, leases.Claim(row.pk, opened.token))
        raise
    if not published:
        delete_objects([key])
        raise ClipBusyError
    logger.info("encoder run: clip=%s frames=%d", clip.fingerprint[:12], frames)
    if keep:
        codes.keep(row, clip, made.codes, epoch)


def _keep_what_was_used(clip: StoredClip, made: EncodedClip) -> None:
    """Save the mono audio and its measures beside the original, once."""
    if clip.used_key:
        return
    decoded = made.decoded
    key = store_flac(f"clips/{clip.fingerprint}", decoded.waveform, decoded.sample_rate)
    rows = StoredClip.objects.filter(pk=clip.pk, used_key="").exclude(original_key="")
    kept = rows.update(used_key=key, measures=decoded.measures)
    if not kept:  # removed meanwhile
        delete_objects([key])


def finish_version(claim: HeldClaim, codec: str) -> None:
    """Make a version ready whose clips have their codes, and wake workers for what waits for it.

    Raises:
        ClipBusyError: a clip has no codes.
    """
    clips = clips_of(claim)
    found = transitions.summed_up(clips, codec)
    if found is None:
        raise ClipBusyError
    finish = partial(transitions.finish_version, claim, codec_fingerprint=codec, **found)
    if retry_while_away(finish):
        logger.info("version ready: clips=%d frames=%d", len(clips), found["frames"])
        queued = Segment.objects.filter(job__status__in=UNFINISHED, status=Segment.Status.QUEUED)
        waiting = queued.filter(job__voices__version=claim.pk).order_by("job__created_at", "pk")
        enqueue(Kind.SEGMENT, list(waiting.values_list("pk", flat=True)[:SEGMENTS_ANNOUNCED]))


def settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    """Settle what may be wrong with a version."""
    if isinstance(error, ClipBusyError):
        return kinds.wait(claim, seconds=BUSY_DELAY_SECONDS)
    if isinstance(error, ClipError):
        return kinds.fail(claim, error.code, error.message)
    if isinstance(error, FileNotFoundError):
        message = "The clip's file is no longer stored; upload the clip again."
        return kinds.retry(claim, "clip_lost", message)
    return None
