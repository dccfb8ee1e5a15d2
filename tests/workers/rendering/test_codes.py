"""Codes are found in memory, then in storage, and made by one worker only when they are nowhere."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from safetensors.numpy import load, save

from synth.contract import CodesArray
from tests.factories import make_stored_clip
from tests.workers.pairs import counter
from tests.workers.rendering.takes_support import stored_files
from voices import transitions
from voices.models import CacheEviction, ClipCodes, StoredClip
from workers.audio.clips import DecodedClip
from workers.rendering.codes import (
    CodesCache,
    CodesLookup,
    CodesObjectError,
    Counters,
    pack_codes,
    unpack_codes,
)
from workers.site.clips import ClipBusyError, close_clip, open_clip
from workers.site.protocol import EncodedClip

pytestmark = pytest.mark.django_db
CODEC = "c" * 64
RATE = 16_000
CODES: CodesArray = np.arange(40, dtype=np.int16).reshape(10, 4)


@pytest.fixture
def clip() -> StoredClip:
    found = make_stored_clip()
    default_storage.save(found.original_key, ContentFile(b"a clip"))
    return found


def make_lookup(worker: str = "w1") -> CodesLookup:
    return CodesLookup()


@pytest.fixture
def lookup() -> CodesLookup:
    return make_lookup()


def make_encoder(**how: Any) -> Mock:
    """Return what stands where the engine would run, and counts."""
    return Mock(**how) if how else Mock(side_effect=encoded)


def encoded() -> EncodedClip:
    return EncodedClip(CODES.copy(), "builtin", DecodedClip(np.zeros(9, np.float32), RATE, {}))


def encode(lookup: CodesLookup, clip: StoredClip, encoder: Mock | None = None) -> CodesArray:
    opened = open_clip(lookup, clip, CODEC, worker="w1", keep=True)
    if opened.token is not None:
        made = (encoder or make_encoder())()
        close_clip(lookup, clip, opened, made, keep=True)
    row = ClipCodes.objects.get(clip=clip, codec_fingerprint=CODEC)
    with default_storage.open(row.key) as file:
        return unpack_codes(file.read(), {})


def test_codes_that_are_nowhere_are_not_found(lookup: CodesLookup, clip: StoredClip) -> None:
    assert lookup.find(clip, CODEC, keep=True) is None
    encode(lookup, clip)
    assert lookup.find(clip, "d" * 64, keep=True) is None, "another codec found them"


def test_encoder_runs_once_and_then_memory_answers(lookup: CodesLookup, clip: StoredClip) -> None:
    encoder = make_encoder()
    encode(lookup, clip, encoder)

    found = lookup.find(clip, CODEC, keep=True)
    lookup.counters.flush()

    assert found is not None and np.array_equal(found, CODES)
    assert encoder.call_count == 1
    assert (counter("encoder_run"), counter("memory_hit"), counter("storage_hit")) == (1, 1, 0)


@pytest.mark.parametrize("keep", [True, False])
def test_another_worker_finds_them_in_storage_and_then_in_memory_if_they_may_stay(
    lookup: CodesLookup, clip: StoredClip, keep: bool
) -> None:
    encode(lookup, clip)
    other = make_lookup("w2")

    for _ in range(2):
        assert np.array_equal(other.find(clip, CODEC, keep=keep), CODES)  # type: ignore[arg-type]
    other.counters.flush()

    assert (counter("storage_hit"), counter("memory_hit")) == ((1, 1) if keep else (2, 0))
    assert len(other.cache) == keep


def test_busy_clip_is_not_encoded_a_second_time(lookup: CodesLookup, clip: StoredClip) -> None:
    ClipCodes.objects.create(clip=clip, codec_fingerprint=CODEC)
    inner, outer = make_encoder(), make_encoder()

    def while_running() -> EncodedClip:
        with pytest.raises(ClipBusyError):
            encode(make_lookup("w2"), clip, inner)
        run: EncodedClip = outer()
        return run

    encode(lookup, clip, make_encoder(side_effect=while_running))

    assert (outer.call_count, inner.call_count) == (1, 0)


def test_run_that_cannot_be_published_gives_the_clip_back(
    lookup: CodesLookup, clip: StoredClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError), monkeypatch.context() as patch:
        patch.setattr(transitions, "finish_codes", Mock(side_effect=OSError("disk")))
        encode(lookup, clip)
    encoder = make_encoder()
    encode(make_lookup("w2"), clip, encoder)

    assert encoder.call_count == 1


@pytest.mark.parametrize("damage", ["missing", "cut", "of another clip"])
def test_object_that_is_lost_is_made_again(clip: StoredClip, damage: str) -> None:
    encode(make_lookup("w1"), clip)
    row = ClipCodes.objects.get(clip=clip)
    path = Path(default_storage.path(row.key))
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        other = content.replace(clip.fingerprint.encode(), b"e" * 64)
        path.write_bytes(content[:-3] if damage == "cut" else other)
    lookup, encoder = make_lookup("w2"), make_encoder()

    assert lookup.find(clip, CODEC, keep=True) is None
    assert np.array_equal(encode(lookup, clip, encoder), CODES)
    assert encoder.call_count == 1
    assert ClipCodes.objects.get(clip=clip).key != row.key


def test_run_whose_clip_was_removed_leaves_no_object(lookup: CodesLookup, clip: StoredClip) -> None:
    def remove_meanwhile() -> EncodedClip:
        ClipCodes.objects.all().delete()
        return encoded()

    with pytest.raises(ClipBusyError):
        encode(lookup, clip, make_encoder(side_effect=remove_meanwhile))

    assert stored_files(f"codes/{clip.fingerprint}") == []


def test_eviction_by_another_process_reaches_memory(lookup: CodesLookup, clip: StoredClip) -> None:
    lookup.drop_evicted()
    encode(lookup, clip)

    CacheEviction.objects.create(clip_fingerprint=clip.fingerprint)
    lookup.drop_evicted()

    assert len(lookup.cache) == 0


def test_eviction_is_heeded_once_even_when_a_later_one_was_seen_first(
    lookup: CodesLookup, clip: StoredClip
) -> None:
    lookup.drop_evicted()
    CacheEviction.objects.create(pk=1_000, clip_fingerprint="other")
    lookup.drop_evicted()
    encode(lookup, clip)

    CacheEviction.objects.create(pk=999, clip_fingerprint=clip.fingerprint)
    lookup.drop_evicted()
    assert len(lookup.cache) == 0
    encode(lookup, clip)
    lookup.drop_evicted()

    assert len(lookup.cache) == 1


def test_counts_survive_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = Counters()
    counters.add("memory_hit")

    with monkeypatch.context() as patch:
        patch.setattr(transitions, "count", Mock(side_effect=RuntimeError("away")))
        with pytest.raises(RuntimeError):
            counters.flush()
    counters.flush()
    counters.flush()

    assert counter("memory_hit") == 1


def test_object_says_whose_codes_it_holds(lookup: CodesLookup, clip: StoredClip) -> None:
    encode(lookup, clip)
    row = ClipCodes.objects.get(clip=clip)

    content = default_storage.open(row.key).read()

    assert (row.frames, row.resampler) == (4, "builtin")
    for text in (clip.fingerprint, CODEC, "builtin"):
        assert text.encode() in content


def filled(*names: str, max_bytes: int = 10_000, max_clips: int = 100) -> CodesCache:
    """Return a cache into which codes of a hundred bytes were put under these names."""
    cache = CodesCache(max_bytes=max_bytes, max_clips=max_clips)
    for name in names:
        put(cache, name)
    return cache


def put(cache: CodesCache, name: str, codec: str = "codec", *, frames: int = 5) -> bool:
    codes = np.zeros((10, frames), dtype=np.int16)
    return cache.put((name, codec), codes, epoch=cache.epoch)


def names(cache: CodesCache) -> set[str]:
    return {name for name in "abcd" if cache.get((name, "codec")) is not None}


def test_least_recently_used_clip_goes_first() -> None:
    cache = filled("a", "b", max_clips=2)

    cache.get(("a", "codec"))
    put(cache, "c")

    assert names(cache) == {"a", "c"}


def test_bytes_are_bounded_and_counted_once_for_a_name() -> None:
    cache = filled(*"abcdd", max_bytes=250)

    assert (names(cache), len(cache), cache.num_bytes) == ({"c", "d"}, 2, 200)
    assert not put(cache, "a", frames=20), "codes larger than the bound were kept"
    assert cache.num_bytes == 200


@pytest.mark.parametrize("bounds", [{"max_bytes": 0}, {"max_clips": 0}])
def test_zero_keeps_nothing(bounds: dict[str, int]) -> None:
    cache = filled(**bounds)
    assert not put(cache, "a")
    assert len(cache) == 0


def test_eviction_drops_a_clip_in_every_codec() -> None:
    cache = filled("a", "b")
    put(cache, "a", "two")

    assert cache.evict("a") == 2
    assert (names(cache), cache.num_bytes) == ({"b"}, 100)


def test_codes_looked_up_before_an_eviction_are_not_kept_after_it() -> None:
    cache = filled()
    epoch = cache.epoch

    cache.evict("a")

    assert not cache.put(("a", "codec"), np.zeros((10, 5), dtype=np.int16), epoch=epoch)


def test_many_threads_leave_the_books_balanced() -> None:
    cache = filled(max_bytes=1_500, max_clips=9)

    def work(number: int) -> None:
        for step in range(300):
            name = f"{(number + step) % 30}"
            if cache.get((name, "codec")) is None:
                put(cache, name)
            if step % 50 == 0:
                cache.evict(f"{step % 30}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))

    assert cache.num_bytes == 100 * len(cache)
    assert len(cache) <= 9


FRAMES = np.arange(30, dtype=np.int16).reshape(10, 3)
EXPECTED = {"clip": "a" * 64, "codec": "b" * 64}


def test_codes_come_back_as_they_were_from_plain_safetensors() -> None:
    content = pack_codes(FRAMES, **EXPECTED, resampler="builtin")

    codes = unpack_codes(content, EXPECTED | {"frames": "3"})

    assert codes.dtype == np.int16
    assert np.array_equal(codes, FRAMES)
    assert not codes.flags.writeable
    assert np.array_equal(load(content)["codes"], FRAMES)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        b"\xff" * 200,
        pack_codes(FRAMES, **EXPECTED)[:-1],
        pack_codes(FRAMES, clip="c" * 64, codec="b" * 64),
        pack_codes(FRAMES),
        save({"codes": FRAMES.astype(np.int32)}, metadata=EXPECTED | {"frames": "3"}),
        save({"codes": FRAMES[0]}, metadata=EXPECTED | {"frames": "3"}),
        save({"other": FRAMES}, metadata=EXPECTED | {"frames": "3"}),
    ],
    ids=["empty", "short", "noise", "cut", "other clip", "bare", "int32", "one row", "no codes"],
)
def test_what_is_not_those_codes_is_refused(content: bytes) -> None:
    with pytest.raises(CodesObjectError):
        unpack_codes(content, EXPECTED)
