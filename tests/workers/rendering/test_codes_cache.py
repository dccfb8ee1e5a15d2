"""The memory of codes is bounded both ways, forgets the least used first, and heeds evictions."""

from __future__ import annotations

import threading

import numpy as np

from synth.contract import CodesArray
from workers.rendering.codes import CodesCache


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
