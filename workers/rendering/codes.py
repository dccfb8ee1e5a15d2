"""Keep what clips and takes are made of: audio as FLAC of 24 bits, codes in memory and in storage.

Keys are content (clip fingerprint, codec fingerprint), so changed content can never find old codes.
"""

from __future__ import annotations

import io
import json
import logging
import os
import struct
import threading
import uuid
from collections import Counter, OrderedDict
from collections.abc import Mapping

import numpy as np
import soundfile
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db.models import Max
from safetensors import SafetensorError
from safetensors.numpy import load, save

from synth.contract import AudioArray, CodesArray
from synth.models import Take
from ttsweb.storage import delete_objects
from voices import transitions
from voices.models import CacheEviction, ClipCodes, StoredClip

_FLAC_FULL_SCALE = 2**23
BYTES_PER_SAMPLE = 3
# One at a time: several would crowd the engine's threads out of their cores. Several write.
_encoding = threading.Lock()


class Counters:
    """Gather how codes were found in this process; safe to use from every thread."""

    def __init__(self) -> None:
        self._pending: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        """Count one memory_hit or storage_hit."""
        with self._lock:
            self._pending[name] += 1

    def flush(self) -> None:
        """Add what was gathered to the database.

        Raises:
            OperationalError, InterfaceError: the database is away; nothing is forgotten.
        """
        with self._lock:
            pending, self._pending = self._pending, Counter()
        for name in list(pending):
            try:
                transitions.count(name, pending[name])
            except Exception:
                with self._lock:
                    self._pending.update(pending)
                raise
            logger.info("codes found: %s=+%d", name, pending.pop(name))


logger = logging.getLogger(__name__)
_LENGTH = struct.Struct("<Q")


class CodesObjectError(Exception):
    """An object is not the codes that its row promises: damaged, cut short or of something else."""


def pack_codes(codes: CodesArray, **metadata: str | int) -> bytes:
    """Return codes int16 [K, T] as safetensors bytes with texts beside them."""
    values = {name: str(value) for name, value in metadata.items()}
    values["frames"] = str(codes.shape[1])
    packed: bytes = save({"codes": np.ascontiguousarray(codes, dtype=np.int16)}, metadata=values)
    return packed


def unpack_codes(content: bytes, expected: Mapping[str, str]) -> CodesArray:
    """Return the codes int16 [K, T], read-only, of an object whose texts are the `expected` ones.

    Raises:
        CodesObjectError: it is not that.
    """
    try:
        (length,) = _LENGTH.unpack_from(content)  # of a header in JSON
        header = json.loads(content[_LENGTH.size : _LENGTH.size + length])
        metadata: dict[str, str] = header.get("__metadata__", {})
        codes = load(content)["codes"]
    except (SafetensorError, KeyError, ValueError, struct.error) as error:
        raise CodesObjectError(f"the object cannot be read: {type(error).__name__}") from error
    for name, value in expected.items():
        if metadata.get(name) != value:
            raise CodesObjectError(f"its {name} is {metadata.get(name)!r}, not {value!r}")
    if codes.dtype != np.int16 or codes.ndim != 2 or str(codes.shape[1]) != metadata.get("frames"):
        raise CodesObjectError(f"it holds {codes.dtype} {codes.shape}, not int16 [K, T]")
    codes.setflags(write=False)  # many segments share one array
    return codes


def read_take_codes(take: Take, decoder: str) -> CodesArray | None:
    """Return the codes int16 [K, T] of a take; None where its object is gone or damaged.

    Nor are there any for an engine whose decoder is another one: to it they mean another sound.

    Raises:
        OSError: the storage cannot be read at the moment.
    """
    try:
        with default_storage.open(take.codes_key) as file:
            expected = {"content_key": take.content_key, "decoder": decoder}
            return unpack_codes(file.read(), expected)
    except (FileNotFoundError, CodesObjectError) as error:
        logger.warning("codes of a take cannot be used: take=%s: %s", take, error)
        return None


# Clip fingerprint, codec fingerprint, tenant: content, so nothing goes stale; and nobody gets codes
# that another tenant has imported for the same clip.
CodesKey = tuple[str, ...]


class CodesCache:
    """Hold codes int16 [K, T] by clip and codec fingerprint; safe to use from every thread.

    `max_bytes` or `max_clips` of 0 keep nothing. Arrays are shared: callers must not write to them.
    """

    def __init__(self, *, max_bytes: int, max_clips: int) -> None:
        self.max_bytes, self.max_clips = max_bytes, max_clips
        self._entries: OrderedDict[CodesKey, CodesArray] = OrderedDict()
        self.num_bytes = 0
        self.epoch = 0  # moves with every eviction; see `put`
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: CodesKey) -> CodesArray | None:
        """Return the codes, which become the most recently used, or None."""
        with self._lock:
            codes = self._entries.get(key)
            if codes is not None:
                self._entries.move_to_end(key)
            return codes

    def put(self, key: CodesKey, codes: CodesArray, *, epoch: int) -> bool:
        """Keep codes that were looked up since `epoch`; return whether they are kept.

        After an eviction meanwhile they are not: it may have been theirs.
        """
        with self._lock:
            if epoch != self.epoch or codes.nbytes > self.max_bytes or not self.max_clips:
                return False
            self._remove(key)
            self._entries[key] = codes
            self.num_bytes += codes.nbytes
            while self.num_bytes > self.max_bytes or len(self._entries) > self.max_clips:
                self._remove(next(iter(self._entries)))
            return True

    def evict(self, clip_fingerprint: str) -> int:
        """Drop a clip's codes in every codec; return how many entries went."""
        with self._lock:
            self.epoch += 1
            keys = [key for key in self._entries if key[0] == clip_fingerprint]
            for key in keys:
                self._remove(key)
            return len(keys)

    def _remove(self, key: CodesKey) -> None:
        codes = self._entries.pop(key, None)
        if codes is not None:
            self.num_bytes -= codes.nbytes


_OVERLAP = 200
# What one worker keeps of voices' codes in memory.
CACHE_BYTES = 256_000_000
CACHE_CLIPS = 1000


class CodesLookup:
    """Find the codes of clips for one process."""

    def __init__(self, *, max_bytes: int = CACHE_BYTES, max_clips: int = CACHE_CLIPS) -> None:
        self.counters = Counters()
        self.cache = CodesCache(max_bytes=max_bytes, max_clips=max_clips)
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
            self._count_hit("memory_hit", clip)
            return codes
        row = ClipCodes.objects.filter(
            clip=clip, codec_fingerprint=codec, encoded_at__isnull=False
        ).first()
        return None if row is None else self.read(row, clip, keep=keep)

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

    def read(self, row: ClipCodes, clip: StoredClip, *, keep: bool) -> CodesArray | None:
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
        self._count_hit("storage_hit", clip)
        if keep:
            self.keep(row, clip, codes, epoch)
        return codes

    def keep(self, row: ClipCodes, clip: StoredClip, codes: CodesArray, epoch: int) -> None:
        """Keep codes in memory that were looked up since `epoch` of the cache."""
        self.cache.put((clip.fingerprint, row.codec_fingerprint, clip.tenant), codes, epoch=epoch)

    def _count_hit(self, where: str, clip: StoredClip) -> None:
        self.counters.add(where)
        logger.debug("%s: clip=%s", where, clip.fingerprint[:12])


def store_flac(folder: str, audio: AudioArray, sample_rate: int) -> str:
    """Write mono audio float32 [N] under a new name in `folder` and return its key.

    Samples beyond full scale are cut to it. Raises OSError where the storage cannot be written.
    """
    with _encoding:
        encoded = encode_flac(audio, sample_rate)
    return default_storage.save(f"{folder}/{uuid.uuid4().hex}.flac", ContentFile(encoded))


def encode_flac(audio: AudioArray, sample_rate: int) -> bytes:
    """Return mono audio float32 [N] as FLAC of 24 bits; samples beyond full scale are cut to it."""
    # Whole numbers here, in one pass over the samples: the encoder takes several times as long.
    scaled = np.rint(audio * np.float32(_FLAC_FULL_SCALE)).clip(
        -_FLAC_FULL_SCALE, _FLAC_FULL_SCALE - 1
    )
    samples = scaled.astype(np.int32) << 8  # the upper 24 bits count
    if not hasattr(os, "memfd_create"):
        buffer = io.BytesIO()
        soundfile.write(buffer, samples, sample_rate, format="FLAC", subtype="PCM_24")
        return buffer.getvalue()
    # A file descriptor: the encoder would call a Python buffer back for every block, and each call
    # takes the interpreter from the thread that drives the device.
    descriptor = os.memfd_create("flac")
    try:
        soundfile.write(
            descriptor, samples, sample_rate, format="FLAC", subtype="PCM_24", closefd=False
        )
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
