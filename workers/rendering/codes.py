"""Look a clip's codes up: in memory, then in storage, and let one worker of all run the encoder.

Keys are content (clip fingerprint, codec fingerprint), so changed content can never find old codes.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import NamedTuple

from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import Max

from synth.contract import CodesArray
from ttsweb import leases
from voices import transitions
from voices.models import CacheEviction, ClipCodes, StoredClip
from voices.objects import delete_objects
from workers.process.held_claims import HeldClaims, Kind
from workers.rendering.codes_cache import CodesCache
from workers.rendering.codes_object import CodesObjectError, pack_codes, unpack_codes
from workers.upkeep.counters import Counters

logger = logging.getLogger(__name__)

_OVERLAP = 200


class ClipBusyError(Exception):
    """Another worker runs the encoder on this clip at the moment: look again soon."""


class EncoderRun(NamedTuple):
    """What one run of the encoder gave: codes int16 [K, T] and the resampler before it."""

    codes: CodesArray
    resampler: str


class CodesLookup:
    """Find the codes of clips for one worker process."""

    def __init__(self, cache: CodesCache, counters: Counters, *, worker: str) -> None:
        self.cache, self.counters, self.worker = cache, counters, worker
        self._seen: set[int] | None = None  # ids of evictions that were heeded

    def find(self, clip: StoredClip, codec: str, *, keep: bool) -> CodesArray | None:
        """Return the codes from memory or storage; None when the encoder has to run first.

        Args:
            keep: False never leaves them in memory.

        Raises:
            OSError: the storage cannot be read at the moment.
        """
        codes = self.cache.get((clip.fingerprint, codec, clip.tenant)) if keep else None
        if codes is not None:
            self._found("memory_hit", clip)
            return codes
        row = ClipCodes.objects.filter(
            clip=clip, codec_fingerprint=codec, encoded_at__isnull=False
        ).first()
        return None if row is None else self._read(row, clip, keep=keep)

    def find_or_encode(
        self,
        clip: StoredClip,
        codec: str,
        *,
        keep: bool,
        held: HeldClaims,
        encode: Callable[[], EncoderRun],
    ) -> CodesArray:
        """Return the codes from storage, or run `encode` if nobody else does and store its result.

        Memory is not asked: a version is ready only when every worker can find its codes.

        Raises:
            ClipBusyError: another worker runs the encoder on this clip.
            OSError: the storage cannot be used at the moment.
        """
        row, token = transitions.claim_codes(clip, codec, worker=self.worker)
        if token is None and row.encoded_at is not None:
            codes = self._read(row, clip, keep=keep)
            if codes is not None:
                return codes
            row, token = transitions.claim_codes(clip, codec, worker=self.worker)
        if token is None:
            raise ClipBusyError
        with held.holding(Kind.CODES, row.pk, token):
            return self._run(row, token, clip, keep=keep, encode=encode)

    def drop_evicted(self) -> list[str]:
        """Drop from memory what was evicted since the last call, in whatever process.

        Returns the fingerprints of those clips, whether or not their codes were in memory.

        Ids become visible out of order where transactions overlap, so the newest few are looked at
        again each time.
        """
        if self._seen is None:  # at the start memory is empty: only what comes later matters
            newest = CacheEviction.objects.aggregate(newest=Max("pk"))["newest"] or 0
            self._seen = set(range(max(0, newest - _OVERLAP), newest + 1))
            return []
        evicted = []
        rows = CacheEviction.objects.filter(pk__gt=max(self._seen, default=0) - _OVERLAP)
        for pk, fingerprint in rows.values_list("pk", "clip_fingerprint"):
            if pk not in self._seen:
                dropped = self.cache.evict(fingerprint)
                logger.debug("clip evicted: clip=%s entries=%d", fingerprint[:12], dropped)
                self._seen.add(pk)
                evicted.append(fingerprint)
        oldest = max(self._seen, default=0) - _OVERLAP
        self._seen = {pk for pk in self._seen if pk >= oldest}
        return evicted

    def _run(
        self,
        row: ClipCodes,
        token: uuid.UUID,
        clip: StoredClip,
        *,
        keep: bool,
        encode: Callable[[], EncoderRun],
    ) -> CodesArray:
        """Run the encoder under our claim and publish what it gave, or give the claim back."""
        epoch, key = self.cache.epoch, ""
        try:
            codes, resampler = encode()
            codes.setflags(write=False)
            key = _store(clip, row.codec_fingerprint, codes, resampler)
            published = transitions.finish_codes(
                row, token, key=key, frames=codes.shape[1], resampler=resampler
            )
        except BaseException:
            delete_objects([key] if key else [])
            leases.hand_back(ClipCodes, leases.Claim(row.pk, token))
            raise
        if not published:  # the clip was removed meanwhile, or our claim ran out
            delete_objects([key])
            raise ClipBusyError
        logger.info("encoder run: clip=%s frames=%d", clip.fingerprint[:12], codes.shape[1])
        if keep:
            place = (clip.fingerprint, row.codec_fingerprint, clip.tenant)
            self.cache.put(place, codes, epoch=epoch)
        return codes

    def _read(self, row: ClipCodes, clip: StoredClip, *, keep: bool) -> CodesArray | None:
        """Return a row's codes; an object that is gone or damaged is forgotten and gives None."""
        epoch = self.cache.epoch
        expected = {"clip": clip.fingerprint, "codec": row.codec_fingerprint}
        try:
            with default_storage.open(row.key) as file:
                codes = unpack_codes(file.read(), expected | {"frames": str(row.frames)})
        except (FileNotFoundError, CodesObjectError) as error:
            logger.warning(
                "codes are no longer stored, encoding again: clip=%s: %s",
                clip.fingerprint[:12],
                error,
            )
            transitions.forget_codes(row)
            delete_objects([row.key])
            return None
        self._found("storage_hit", clip)
        if keep:
            place = (clip.fingerprint, row.codec_fingerprint, clip.tenant)
            self.cache.put(place, codes, epoch=epoch)
        return codes

    def _found(self, where: str, clip: StoredClip) -> None:
        self.counters.add(where)
        logger.debug("%s: clip=%s", where, clip.fingerprint[:12])


def _store(clip: StoredClip, codec: str, codes: CodesArray, resampler: str) -> str:
    """Write a new object and return its key, which no deletion of an earlier one can hit."""
    content = pack_codes(codes, clip=clip.fingerprint, codec=codec, resampler=resampler)
    name = f"codes/{clip.fingerprint}/{codec[:16]}-{uuid.uuid4().hex}.safetensors"
    return default_storage.save(name, ContentFile(content))
