"""Test frame_cache: views that stay views."""

from __future__ import annotations

import torch

from synth.engine.model.config import TransformerConfig
from synth.engine.model.frame_cache import FrameCache


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
