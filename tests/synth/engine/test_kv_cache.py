"""Test kv_cache."""

from __future__ import annotations

import pytest
import torch

from synth.engine.model.config import TransformerConfig
from synth.engine.model.kv_cache import FrameCache, KVCache


@pytest.fixture
def cache() -> KVCache:
    config = TransformerConfig(1, 16, 2, 4, 2, 8, 24, False, False, False)
    return KVCache.allocate(
        config, num_slots=3, num_positions=6, device=torch.device("cpu"), dtype=torch.float32
    )


def test_a_step_writes_each_stream_at_its_own_position(cache: KVCache) -> None:
    k, v = torch.randn(2, 3, 2, 8)

    cache.write_step(1, cache.rows(torch.tensor([0, 5, 2])), k, v)

    for slot, position in enumerate((0, 5, 2)):
        assert torch.equal(cache.keys[1, slot, :, position], k[slot])
        assert torch.equal(cache.values[1, slot, :, position], v[slot])
    assert int((cache.keys != 0).sum()) == k.numel()


def test_a_prefix_read_from_one_slot_and_written_to_another_is_the_same(cache: KVCache) -> None:
    k, v = torch.randn(2, 4, 2, 8)
    for layer in range(2):
        cache.write_prompt(layer, 0, 0, k, v)

    cache.write_prefix(2, *cache.read_prefix(0, 4))

    assert torch.equal(cache.keys[:, 2], cache.keys[:, 0])
    assert torch.equal(cache.values[:, 2], cache.values[:, 0])
    assert int(cache.keys[:, 1].count_nonzero()) == 0


def test_a_prefix_that_was_read_does_not_change_with_the_cache(cache: KVCache) -> None:
    keys, _ = cache.read_prefix(0, 2)

    cache.keys.fill_(1.0)

    assert int(keys.count_nonzero()) == 0


def test_wiping_a_slot_leaves_its_neighbours(cache: KVCache) -> None:
    cache.keys.fill_(float("nan"))
    cache.values.fill_(float("nan"))

    cache.wipe(1)

    for tensor in (cache.keys, cache.values):
        assert tensor[:, 1].isfinite().all()
        assert tensor[:, [0, 2]].isnan().all()


def test_the_bytes_are_those_of_both_tensors(cache: KVCache) -> None:
    assert cache.num_bytes == 2 * 2 * 3 * 2 * 6 * 8 * 4


def _cache() -> FrameCache:
    config = TransformerConfig(1, 16, 2, 4, 2, 8, 24, False, False, False)
    return FrameCache.allocate(
        config, num_slots=3, num_positions=5, device=torch.device("cpu"), dtype=torch.float32
    )


def test_what_is_written_at_a_place_is_read_there_and_behind_it() -> None:
    cache = _cache()
    k, v = torch.randn(2, 3, 2, 8)

    cache.places[2][1].key.copy_(k)
    cache.places[2][1].value.copy_(v)

    later = cache.places[4][1]
    assert torch.equal(later.keys.view(3, 2, 8, 5)[..., 2], k)
    assert torch.equal(later.values.view(3, 2, 5, 8)[:, :, 2], v)
    assert cache.places[1][1].keys.shape == (6, 8, 2)
    assert int(cache.keys.count_nonzero()) == k.numel()


def test_the_first_streams_share_the_memory() -> None:
    cache = _cache()

    cache.first(2).places[0][0].key.fill_(1.0)

    assert (cache.keys[0, :2, :, 0] == 1).all()
    assert int(cache.keys.count_nonzero()) == 2 * 2 * 8
    assert cache.num_bytes == 2 * 2 * 3 * 2 * 5 * 8 * 4
