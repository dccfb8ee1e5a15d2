"""Bytes and operations of a frame, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from lab.bench.roofline import (
    floor_seconds,
    frame_cost,
    layer_weights,
    position_bytes,
    prefill_flops,
)
from synth.engine.presets import preset

FULL_LAYER = 2560 * (32 + 16) * 128 + 4096 * 2560 + 3 * 2560 * 9728
FULL_WEIGHTS = 36 * FULL_LAYER + 4097 * 2560 + 9 * (4 * FULL_LAYER + 4096 * 2560)


def test_a_layer_and_a_position_of_the_published_shape() -> None:
    text = preset("full").config.text_config
    assert layer_weights(text) == FULL_LAYER == 100_925_440
    assert position_bytes(text, "bfloat16") == 147_456


def test_a_frame_reads_the_slow_weights_once_and_the_fast_ones_nine_times() -> None:
    cost = frame_cost(
        preset("full").config, weight_dtype="bfloat16", kv_dtype="bfloat16", batch=1, context=2048
    )
    assert cost.weight_bytes == 2 * FULL_WEIGHTS == 14_742_983_680
    assert cost.kv_bytes == 2048 * 147_456
    assert cost.num_bytes == 2 * FULL_WEIGHTS + 2048 * 147_456


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("bfloat16", 2), ("int8", 1)])
def test_weights_take_their_formats_bytes_and_each_stream_its_own_keys(
    dtype: str, size: int
) -> None:
    config = preset("tiny").config
    # tiny: 64 * 16 * (4 + 2 + 2 + 4) for attention, 3 * 64 * 160 and 3 * 64 * 96 behind it
    slow, fast = 2 * (12_288 + 30_720), 2 * (12_288 + 18_432)
    weights = slow + 257 * 64 + 9 * (fast + 256 * 64)

    cost = frame_cost(config, weight_dtype=dtype, kv_dtype="float32", batch=3, context=100)

    assert cost.weight_bytes == size * weights
    assert cost.kv_bytes == 3 * 100 * (2 * 2 * 2 * 16) * 4
    attended = 2 * 2 * (4 * 16) * 100  # scores and mixing, of two layers
    assert cost.flops == 3 * 2 * (weights + fast + attended)


def test_a_prompt_behind_a_cached_voice_skips_the_voices_products_but_sees_it() -> None:
    config = preset("tiny").config
    layers = 2 * (12_288 + 30_720)
    pairs = 4 * 2 * 4 * 16

    whole = prefill_flops(config, tokens=30, start=0)
    behind = prefill_flops(config, tokens=10, start=20)

    assert whole == 2 * 30 * layers + pairs * (30 * 31 // 2)
    assert behind == 2 * 10 * layers + pairs * (10 * 20 + 10 * 11 // 2)
    assert behind == whole - prefill_flops(config, tokens=20, start=0)


def test_the_floor_is_what_takes_longer() -> None:
    assert floor_seconds(100, 10, 50.0, 20.0) == (2.0, "memory")
    assert floor_seconds(100, 100, 50.0, 20.0) == (5.0, "arithmetic")
    assert floor_seconds(100, 100, 50.0, None) == (2.0, "memory")
