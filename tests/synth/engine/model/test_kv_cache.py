"""Test kv_cache: what is written in one place is read there alone, and copies stay as they were."""

from __future__ import annotations

import pytest
import torch

from synth.engine.model.config import TransformerConfig
from synth.engine.model.kv_cache import Cache, FrameCache, KVCache

CONFIG = TransformerConfig(1, 16, 2, 4, 2, 8, 24, False, False, False)
CPU = torch.device("cpu")


@pytest.fixture
def cache() -> KVCache:
    return KVCache.allocate(CONFIG, num_slots=3, num_positions=6, device=CPU, dtype=torch.float32)


@pytest.fixture
def frames() -> FrameCache:
    return FrameCache.allocate(
        CONFIG, num_slots=3, num_positions=5, device=CPU, dtype=torch.float32
    )


def test_a_step_writes_each_stream_at_its_own_position(cache: KVCache) -> None:
    k, v = torch.randn(2, 3, 2, 8)

    cache.write_step(1, cache.rows(torch.tensor([0, 5, 2]), torch.arange(3)), k, v)

    for slot, position in enumerate((0, 5, 2)):
        assert torch.equal(cache.keys[1, slot, :, position], k[slot])
        assert torch.equal(cache.values[1, slot, :, position], v[slot])
    assert int(cache.keys.count_nonzero()) == int(cache.values.count_nonzero()) == k.numel()


def test_a_prefix_read_from_one_slot_and_written_to_another_is_a_copy(cache: KVCache) -> None:
    k, v = torch.randn(2, 4, 2, 8)
    for layer in range(2):
        cache.write_step(layer, cache.rows(torch.arange(4), torch.tensor([0])), k, v)
    keys, values = cache.read_prefix(0, 4)

    cache.write_prefix(2, keys, values)

    assert torch.equal(cache.keys[:, 2], cache.keys[:, 0])
    assert torch.equal(cache.values[:, 2], cache.values[:, 0])
    cache.keys.fill_(1.0)
    assert torch.equal(keys[0], k.transpose(0, 1))  # what was read does not change with the cache


def test_wiping_a_slot_leaves_its_neighbours(cache: KVCache) -> None:
    for tensor in (cache.keys, cache.values):
        tensor.fill_(float("nan"))

    cache.wipe(1)

    for tensor in (cache.keys, cache.values):
        assert not tensor[:, 1].any()
        assert tensor[:, [0, 2]].isnan().all()


def test_what_is_written_at_a_place_is_read_there_and_behind_it(frames: FrameCache) -> None:
    k, v = torch.randn(2, 3, 2, 8)

    frames.places[2][1].key.copy_(k)
    frames.places[2][1].value.copy_(v)

    later = frames.places[4][1]
    assert torch.equal(later.keys.view(3, 2, 8, 5)[..., 2], k)
    assert torch.equal(later.values.view(3, 2, 5, 8)[:, :, 2], v)
    assert frames.places[1][1].keys.shape == (6, 8, 2)
    assert int(frames.keys.count_nonzero()) == k.numel()


@pytest.mark.parametrize("kind", ["cache", "frames"])
def test_the_first_streams_share_the_memory(kind: str, request: pytest.FixtureRequest) -> None:
    whole: Cache = request.getfixturevalue(kind)

    whole.first(2).keys.fill_(1.0)

    assert (whole.keys[:, :2] == 1).all()
    assert not whole.keys[:, 2].any()
