"""Test prefix_cache: what is kept, what goes, and which prefixes are the same."""

from __future__ import annotations

import torch

from lab.golden.models import Loaded
from synth.engine.model.decode_state import DecodeState
from synth.engine.model.prefix_cache import KeptPrefix, PrefixCache, PrefixKeys

ONE = 2 * 2 * 3 * 4 * 5 * 4  # bytes of the prefix below


def _prefix() -> KeptPrefix:
    return KeptPrefix(torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4, 5))


def test_the_least_recently_used_prefix_goes_first() -> None:
    cache = PrefixCache(3 * ONE)
    for key in "abc":
        cache.put(key, _prefix())

    cache.get("a")
    cache.put("d", _prefix())

    assert [key in cache for key in "abcd"] == [True, False, True, True]
    assert cache.num_bytes == 3 * ONE


def test_a_prefix_above_the_budget_is_not_kept_and_drives_no_other_out() -> None:
    cache = PrefixCache(ONE)
    cache.put("small", _prefix())

    cache.put("large", KeptPrefix(torch.ones(2, 3, 9, 5), torch.ones(2, 3, 9, 5)))

    assert "small" in cache
    assert "large" not in cache
    assert cache.num_bytes == ONE


def test_a_budget_of_nothing_keeps_nothing() -> None:
    cache = PrefixCache(0)

    cache.put("a", _prefix())

    assert (len(cache), cache.num_bytes, cache.get("a")) == (0, 0, None)


def test_a_prefix_put_twice_takes_its_bytes_once() -> None:
    cache = PrefixCache(4 * ONE)

    cache.put("a", _prefix())
    cache.put("a", _prefix())

    assert (len(cache), cache.num_bytes) == (1, ONE)


def test_forgotten_prefixes_give_their_memory_back() -> None:
    cache = PrefixCache(4 * ONE)
    for key in "abc":
        cache.put(key, _prefix())

    cache.forget(["a", "c", "never kept"])
    assert (len(cache), cache.num_bytes) == (1, ONE)

    cache.clear()
    assert (len(cache), cache.num_bytes) == (0, 0)


def test_hits_and_misses_are_counted() -> None:
    cache = PrefixCache(ONE)
    cache.put("a", _prefix())

    for key in ("a", "b", "a"):
        cache.get(key)

    assert (cache.hits, cache.misses) == (2, 1)


def test_prefixes_that_differ_in_one_code_have_two_keys() -> None:
    keys = PrefixKeys("model")
    prefix = torch.arange(11 * 6).view(11, 6)
    again, other = prefix.clone(), prefix.clone()
    other[10, 5] += 1

    assert keys.key(prefix) == keys.key(again)
    assert keys.key(prefix) != keys.key(other)
    assert keys.key(prefix) != keys.key(prefix.view(6, 11))
    assert keys.key(prefix.T.contiguous().T) == keys.key(prefix)


def test_another_model_format_or_attention_has_other_keys(
    loaded: Loaded, loaded_bf16: Loaded
) -> None:
    def key(one: Loaded, fingerprint: str = "f", *, strict: bool = False) -> str:
        state = DecodeState.allocate(one.model, num_slots=1, max_positions=8, strict=strict)
        return PrefixKeys.of(fingerprint, one.model, state).key(torch.zeros(11, 3).long())

    found = [key(loaded), key(loaded, "g"), key(loaded_bf16), key(loaded, strict=True)]

    assert len(set(found)) == 4
    assert found[0] == key(loaded)
