"""Test frame_attention; the torch form is tested against the fast AR's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="kernels are written in triton, which is not installed")

from synth.engine.kernels.frame_attention import (
    frame_attention,
    frame_attention_torch,
    step_frame,
    step_frame_torch,
)
from synth.engine.model.fast_ar import _attend
from synth.engine.model.frame_cache import FrameCache
from synth.engine.model.layers import rope_table

TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 1.6e-2}  # of bfloat16: two units near 1


def _inputs(
    generator: torch.Generator,
    *,
    rows: int,
    streams: int,
    dtype: torch.dtype,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 16,
) -> tuple[Tensor, FrameCache]:
    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=generator.device).to(dtype)

    keys, values = drawn(2, 2, streams, heads[1], 10, head_dim)
    return drawn(rows, heads[0], head_dim), FrameCache(keys, values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "head_dim"), [((4, 2), 16), ((3, 1), 24), ((32, 8), 128)])
@pytest.mark.parametrize(("position", "span"), [(0, 2), (2, 1), (9, 1)])
def test_the_kernel_gives_what_its_torch_form_gives(
    generator: torch.Generator,
    heads: tuple[int, int],
    head_dim: int,
    position: int,
    span: int,
    dtype: torch.dtype,
) -> None:
    q, cache = _inputs(
        generator, rows=3 * span, streams=3, dtype=dtype, heads=heads, head_dim=head_dim
    )
    cache.keys[:, :, :, position + span :] = float("nan")
    cache.values[:, :, :, position + span :] = float("nan")

    found = frame_attention(q, cache.keys[1], cache.values[1], position, span=span)

    expected = frame_attention_torch(q, cache.keys[1], cache.values[1], position, span=span)
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)


def test_the_first_of_two_queries_does_not_see_the_second_ones_place(
    generator: torch.Generator,
) -> None:
    q, cache = _inputs(generator, rows=4, streams=2, dtype=torch.float32)
    before = frame_attention(q, cache.keys[0], cache.values[0], 0, span=2)

    cache.keys[0, :, :, 1] += 1
    cache.values[0, :, :, 1] += 1

    after = frame_attention(q, cache.keys[0], cache.values[0], 0, span=2)
    assert torch.equal(after[::2], before[::2])
    assert not torch.equal(after[1::2], before[1::2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_torch_form_is_the_fast_ars_attention(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    q, cache = _inputs(generator, rows=3, streams=3, dtype=dtype)

    found = frame_attention_torch(q, cache.keys[1], cache.values[1], 4)

    expected = _attend(q, cache.places[4][1])
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)


def test_a_place_behind_the_frames_last_is_a_mistake(generator: torch.Generator) -> None:
    q, cache = _inputs(generator, rows=2, streams=1, dtype=torch.float32)

    with pytest.raises(AssertionError):
        frame_attention(q, cache.keys[0], cache.values[0], 9, span=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "head_dim"), [((4, 2), 16), ((3, 1), 24), ((8, 2), 128)])
@pytest.mark.parametrize(("position", "span"), [(0, 2), (2, 1), (9, 1)])
def test_the_joined_kernel_gives_and_writes_what_its_torch_form_does(
    generator: torch.Generator,
    heads: tuple[int, int],
    head_dim: int,
    position: int,
    span: int,
    dtype: torch.dtype,
) -> None:
    q, cache = _inputs(
        generator, rows=3 * span, streams=3, dtype=dtype, heads=heads, head_dim=head_dim
    )
    k, v = torch.randn(
        2, 3 * span, heads[1], head_dim, generator=generator, device=generator.device
    )
    qkv = torch.cat([q, k.to(dtype), v.to(dtype)], dim=1).flatten(1)
    for each in (cache.keys, cache.values):
        each[:, :, :, position:] = float("nan")
    written = FrameCache(cache.keys.clone(), cache.values.clone())
    rope = rope_table(torch.arange(10, device=qkv.device), head_dim, 10_000.0)

    found = step_frame(qkv, rope, cache.keys[1], cache.values[1], position, span=span)

    expected = step_frame_torch(qkv, rope, written.keys[1], written.values[1], position, span=span)
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
    rtol = 8e-3 if dtype == torch.bfloat16 else 1e-6  # of bfloat16: one unit
    torch.testing.assert_close(cache.keys, written.keys, equal_nan=True, atol=1e-6, rtol=rtol)
    torch.testing.assert_close(cache.values, written.values, equal_nan=True, atol=0, rtol=0)


def test_joined_rows_of_any_stride_are_read(generator: torch.Generator) -> None:
    q, cache = _inputs(generator, rows=2, streams=2, dtype=torch.float32, heads=(8, 2))
    spread = torch.full((2, 200), float("nan"), device=q.device)
    spread[:, 50:178] = q.flatten(1)
    rope = rope_table(torch.arange(10, device=q.device), 16, 10_000.0)
    layer = (cache.keys[0], cache.values[0])

    found = step_frame(spread[:, 50:178], rope, *layer, 3)

    assert torch.equal(found, step_frame(q.flatten(1), rope, *layer, 3))
