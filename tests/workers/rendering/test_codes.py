"""Codes are found in memory, then in storage, and made by one worker only when they are nowhere."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from django.core.files.storage import default_storage
from safetensors.numpy import load, save

from synth.contract import CodesArray
from tests.factories import make_stored_clip
from tests.workers.pairs import counter
from voices.models import CacheEviction, ClipCodes, StoredClip
from workers.process.held_claims import HeldClaims
from workers.rendering.codes import (
    ClipBusyError,
    CodesCache,
    CodesLookup,
    CodesObjectError,
    Counters,
    EncoderRun,
    pack_codes,
    unpack_codes,
)

pytestmark = pytest.mark.django_db
CODEC = "c" * 64
CODES: CodesArray = np.arange(40, dtype=np.int16).reshape(10, 4)


@pytest.fixture
def clip() -> StoredClip:
    return make_stored_clip()


def make_lookup(worker: str = "w1") -> CodesLookup:
    return CodesLookup(CodesCache(max_bytes=10_000, max_clips=10), Counters(), worker=worker)


class Encoder:
    """Stands where the engine would run, and counts."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self) -> EncoderRun:
        self.runs += 1
        return EncoderRun(CODES.copy(), "builtin")


def encode(lookup: CodesLookup, clip: StoredClip, encoder: Encoder) -> CodesArray:
    return lookup.find_or_encode(clip, CODEC, keep=True, held=HeldClaims(), encode=encoder)


def test_codes_that_are_nowhere_are_not_found(clip: StoredClip) -> None:
    assert make_lookup().find(clip, CODEC, keep=True) is None


def test_encoder_runs_once_and_then_memory_answers(clip: StoredClip) -> None:
    lookup, encoder = make_lookup(), Encoder()
    encode(lookup, clip, encoder)

    found = lookup.find(clip, CODEC, keep=True)
    lookup.counters.flush()

    assert found is not None and np.array_equal(found, CODES)
    assert encoder.runs == 1
    assert (counter("encoder_run"), counter("memory_hit"), counter("storage_hit")) == (1, 1, 0)


def test_another_worker_finds_them_in_storage_and_then_in_memory(clip: StoredClip) -> None:
    encode(make_lookup("w1"), clip, Encoder())
    other = make_lookup("w2")

    for _ in range(2):
        assert np.array_equal(other.find(clip, CODEC, keep=True), CODES)  # type: ignore[arg-type]
    other.counters.flush()

    assert (counter("storage_hit"), counter("memory_hit")) == (1, 1)


def test_another_codec_does_not_find_them(clip: StoredClip) -> None:
    lookup = make_lookup()
    encode(lookup, clip, Encoder())

    assert lookup.find(clip, "d" * 64, keep=True) is None


def test_codes_that_must_not_stay_in_memory_do_not(clip: StoredClip) -> None:
    encode(make_lookup("w1"), clip, Encoder())
    other = make_lookup("w2")

    for _ in range(2):
        other.find(clip, CODEC, keep=False)
    other.counters.flush()

    assert len(other.cache) == 0
    assert counter("storage_hit") == 2


def test_busy_clip_is_not_encoded_a_second_time(clip: StoredClip) -> None:
    ClipCodes.objects.create(clip=clip, codec_fingerprint=CODEC)
    inner, outer = Encoder(), Encoder()

    def while_running() -> EncoderRun:
        with pytest.raises(ClipBusyError):
            encode(make_lookup("w2"), clip, inner)
        return outer()

    make_lookup("w1").find_or_encode(
        clip, CODEC, keep=True, held=HeldClaims(), encode=while_running
    )

    assert (outer.runs, inner.runs) == (1, 0)


def test_failed_run_gives_the_clip_back(clip: StoredClip) -> None:
    def fail() -> EncoderRun:
        raise OSError("disk")

    with pytest.raises(OSError):
        make_lookup().find_or_encode(clip, CODEC, keep=True, held=HeldClaims(), encode=fail)
    encoder = Encoder()
    encode(make_lookup("w2"), clip, encoder)

    assert encoder.runs == 1


@pytest.mark.parametrize("damage", ["missing", "cut", "of another clip"])
def test_object_that_is_lost_is_made_again(clip: StoredClip, damage: str) -> None:
    encode(make_lookup("w1"), clip, Encoder())
    row = ClipCodes.objects.get(clip=clip)
    path = Path(default_storage.path(row.key))
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        other = content.replace(clip.fingerprint.encode(), b"e" * 64)
        path.write_bytes(content[:-3] if damage == "cut" else other)
    lookup, encoder = make_lookup("w2"), Encoder()

    assert lookup.find(clip, CODEC, keep=True) is None
    assert np.array_equal(encode(lookup, clip, encoder), CODES)
    assert encoder.runs == 1
    assert ClipCodes.objects.get(clip=clip).key != row.key


def test_run_whose_clip_was_removed_leaves_no_object(clip: StoredClip) -> None:
    def remove_meanwhile() -> EncoderRun:
        ClipCodes.objects.all().delete()
        return EncoderRun(CODES.copy(), "builtin")

    with pytest.raises(ClipBusyError):
        make_lookup().find_or_encode(
            clip, CODEC, keep=True, held=HeldClaims(), encode=remove_meanwhile
        )

    folder = Path(default_storage.path(f"codes/{clip.fingerprint}"))
    assert list(folder.iterdir()) == []


def test_eviction_by_another_process_reaches_memory(clip: StoredClip) -> None:
    lookup = make_lookup()
    lookup.drop_evicted()
    encode(lookup, clip, Encoder())

    CacheEviction.objects.create(clip_fingerprint=clip.fingerprint)
    lookup.drop_evicted()

    assert len(lookup.cache) == 0


def test_eviction_is_heeded_once_even_when_a_later_one_was_seen_first(clip: StoredClip) -> None:
    lookup = make_lookup()
    lookup.drop_evicted()
    CacheEviction.objects.create(pk=1_000, clip_fingerprint="other")
    lookup.drop_evicted()
    encode(lookup, clip, Encoder())

    CacheEviction.objects.create(pk=999, clip_fingerprint=clip.fingerprint)
    lookup.drop_evicted()
    encode(lookup, clip, Encoder())
    lookup.drop_evicted()

    assert len(lookup.cache) == 1


def test_counts_survive_a_database_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    from voices import transitions

    counters = Counters()
    counters.add("memory_hit")
    real = transitions.count

    def away(name: str, amount: int) -> None:
        raise RuntimeError("away")

    monkeypatch.setattr(transitions, "count", away)
    with pytest.raises(RuntimeError):
        counters.flush()
    monkeypatch.setattr(transitions, "count", real)
    counters.flush()
    counters.flush()

    assert counter("memory_hit") == 1


def test_object_says_whose_codes_it_holds(clip: StoredClip) -> None:
    encode(make_lookup(), clip, Encoder())
    row = ClipCodes.objects.get(clip=clip)

    content = default_storage.open(row.key).read()

    assert (row.frames, row.resampler) == (4, "builtin")
    for text in (clip.fingerprint, CODEC, "builtin"):
        assert text.encode() in content


def codes(frames: int = 5) -> CodesArray:
    return np.zeros((10, frames), dtype=np.int16)


def test_least_recently_used_clip_goes_first() -> None:
    cache = CodesCache(max_bytes=10_000, max_clips=2)
    for name in "ab":
        cache.put((name, "codec"), codes(), epoch=cache.epoch)

    cache.get(("a", "codec"))
    cache.put(("c", "codec"), codes(), epoch=cache.epoch)

    assert cache.get(("a", "codec")) is not None
    assert cache.get(("b", "codec")) is None


def test_bytes_are_bounded_and_counted() -> None:
    cache = CodesCache(max_bytes=250, max_clips=100)

    for name in "abcd":
        cache.put((name, "codec"), codes(), epoch=cache.epoch)

    assert len(cache) == 2
    assert cache.num_bytes == 200


def test_codes_larger_than_the_bound_are_not_kept() -> None:
    cache = CodesCache(max_bytes=250, max_clips=100)

    assert not cache.put(("a", "codec"), codes(frames=20), epoch=cache.epoch)
    assert cache.num_bytes == 0


def test_zero_keeps_nothing() -> None:
    for bounds in ({"max_bytes": 0, "max_clips": 9}, {"max_bytes": 9_999, "max_clips": 0}):
        cache = CodesCache(**bounds)
        assert not cache.put(("a", "codec"), codes(), epoch=cache.epoch)
        assert len(cache) == 0


def test_same_key_twice_is_counted_once() -> None:
    cache = CodesCache(max_bytes=1_000, max_clips=9)

    for _ in range(2):
        cache.put(("a", "codec"), codes(), epoch=cache.epoch)

    assert cache.num_bytes == 100


def test_eviction_drops_a_clip_in_every_codec() -> None:
    cache = CodesCache(max_bytes=1_000, max_clips=9)
    for key in (("a", "one"), ("a", "two"), ("b", "one")):
        cache.put(key, codes(), epoch=cache.epoch)

    assert cache.evict("a") == 2
    assert cache.get(("b", "one")) is not None
    assert cache.num_bytes == 100


def test_codes_looked_up_before_an_eviction_are_not_kept_after_it() -> None:
    cache = CodesCache(max_bytes=1_000, max_clips=9)
    epoch = cache.epoch

    cache.evict("a")

    assert not cache.put(("a", "codec"), codes(), epoch=epoch)


def test_many_threads_leave_the_books_balanced() -> None:
    cache = CodesCache(max_bytes=1_500, max_clips=9)

    def work(number: int) -> None:
        for step in range(300):
            key = (f"{(number + step) % 30}", "codec")
            if cache.get(key) is None:
                cache.put(key, codes(), epoch=cache.epoch)
            if step % 50 == 0:
                cache.evict(f"{step % 30}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert cache.num_bytes == 100 * len(cache)
    assert len(cache) <= 9


FRAMES = np.arange(30, dtype=np.int16).reshape(10, 3)
EXPECTED = {"clip": "a" * 64, "codec": "b" * 64}


def test_codes_come_back_as_they_were() -> None:
    content = pack_codes(FRAMES, **EXPECTED, resampler="builtin")

    codes = unpack_codes(content, EXPECTED | {"frames": "3"})

    assert codes.dtype == np.int16
    assert np.array_equal(codes, FRAMES)
    assert not codes.flags.writeable


def test_object_is_plain_safetensors() -> None:
    assert np.array_equal(load(pack_codes(FRAMES, **EXPECTED))["codes"], FRAMES)


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
