"""Attention along the codebooks of a frame is held to the fast AR's and the layers'."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="kernels are written in triton, which is not installed")

from lab.gpu_check.torch_forms import frame_attention_torch, step_frame_torch, write_heads_torch
from synth.engine.kernels.frame import step_frame
from synth.engine.model.config import TransformerConfig
from synth.engine.model.dual_ar import _attend
from synth.engine.model.kv_cache import FrameCache, KVCache
from synth.engine.model.layers import Attention, rope_table
from synth.engine.model.linear import LinearForm
from synth.engine.presets import preset
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw

TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 1.6e-2}  # of bfloat16: two units near 1
EPS = 1e-6


def _inputs(
    generator: torch.Generator,
    *,
    rows: int,
    streams: int,
    dtype: torch.dtype,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 16,
    cache_dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor, FrameCache]:
    """Return joined heads, the rotary table of ten positions, and a cache of random numbers."""
    shape = (2, 2, streams, heads[1], 10, head_dim)
    keys, values = draw(generator, *shape, dtype=cache_dtype or dtype)
    qkv = draw(generator, rows, (heads[0] + 2 * heads[1]) * head_dim, dtype=dtype)
    rope = rope_table(torch.arange(10, device=qkv.device), head_dim, 10_000.0)
    return qkv, rope, FrameCache(keys, values)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize(
    ("heads", "head_dim"), [((4, 2), 16), ((3, 1), 24), ((3, 3), 6), ((8, 1), 2), ((8, 2), 128)]
)
@pytest.mark.parametrize(("position", "span"), [(0, 1), (0, 2), (2, 1), (9, 1)])
def test_the_kernel_gives_and_writes_what_its_torch_form_does(
    generator: torch.Generator,
    heads: tuple[int, int],
    head_dim: int,
    position: int,
    span: int,
    normed: bool,
    dtype: torch.dtype,
) -> None:
    qkv, rope, cache = _inputs(
        generator, rows=3 * span, streams=3, dtype=dtype, heads=heads, head_dim=head_dim
    )
    weight = draw(generator, sum(heads), head_dim, dtype=dtype) if normed else None
    for each in (cache.keys, cache.values):
        each[:, :, :, position:] = float("nan")
    written = FrameCache(cache.keys.clone(), cache.values.clone())
    layer, other = (cache.keys[1], cache.values[1]), (written.keys[1], written.values[1])

    found = step_frame(qkv, rope, *layer, position, weight=weight, eps=EPS, span=span)

    expected = step_frame_torch(qkv, rope, *other, position, weight=weight, eps=EPS, span=span)
    bound = 3e-6 if normed and dtype is torch.float32 else TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, atol=bound, rtol=bound)
    # Of bfloat16: one unit, with a norm two, as the scale's last bit may move a rounding.
    rtol = (1.6e-2 if normed else 8e-3) if dtype == torch.bfloat16 else bound
    torch.testing.assert_close(cache.keys, written.keys, equal_nan=True, atol=1e-6, rtol=rtol)
    torch.testing.assert_close(cache.values, written.values, equal_nan=True, atol=0, rtol=0)


def test_the_first_of_two_queries_does_not_see_the_second_ones_place(
    generator: torch.Generator,
) -> None:
    qkv, rope, cache = _inputs(generator, rows=4, streams=2, dtype=torch.float32)
    layer = (cache.keys[0], cache.values[0])
    before = step_frame(qkv, rope, *layer, 0, span=2)

    qkv[1::2, 64:] += 1  # keys and values of the second positions

    after = step_frame(qkv, rope, *layer, 0, span=2)
    assert torch.equal(after[::2], before[::2])
    assert not torch.equal(after[1::2], before[1::2])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_torch_form_is_the_fast_ars_attention(
    generator: torch.Generator, dtype: torch.dtype
) -> None:
    qkv, _, cache = _inputs(generator, rows=3, streams=3, dtype=dtype)
    q = qkv[:, :64].reshape(3, 4, 16)

    found = frame_attention_torch(q, cache.keys[1], cache.values[1], 4)

    expected = _attend(q, cache.places[4][1])
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=0)


def test_a_place_behind_the_frames_last_is_a_mistake(generator: torch.Generator) -> None:
    qkv, rope, cache = _inputs(generator, rows=2, streams=1, dtype=torch.float32)
    with pytest.raises(AssertionError):
        step_frame(qkv, rope, cache.keys[0], cache.values[0], 9, span=2)


def test_rows_of_any_stride_are_read(generator: torch.Generator) -> None:
    qkv, rope, cache = _inputs(generator, rows=2, streams=2, dtype=torch.float32)
    spread = torch.full((2, 200), float("nan"), device=qkv.device)
    spread[:, 50:178] = qkv
    layer = (cache.keys[0], cache.values[0])

    found = step_frame(spread[:, 50:178], rope, *layer, 3)

    assert torch.equal(found, step_frame(qkv, rope, *layer, 3))


def test_wider_cache_holds_the_numbers_rounded_as_the_model_rounds(
    generator: torch.Generator,
) -> None:
    qkv, rope, cache = _inputs(
        generator, rows=2, streams=2, dtype=torch.bfloat16, cache_dtype=torch.float32
    )
    weight = draw(generator, 6, 16, dtype=torch.bfloat16)
    step_frame(qkv, rope, cache.keys[1], cache.values[1], 1, weight=weight, eps=EPS)
    for each in (cache.keys, cache.values):
        assert torch.equal(each[1, :, :, 1], each[1, :, :, 1].bfloat16().float())


def test_bucket_of_a_larger_cache_is_written_within_its_streams(generator: torch.Generator) -> None:
    qkv, rope, cache = _inputs(generator, rows=2, streams=2, dtype=torch.float32)
    larger = torch.full((2, 3, 5, 2, 10, 16), float("nan"), device=qkv.device)
    keys, values = larger[:, 2, :2]

    step_frame(qkv, rope, keys, values, 3)

    write_heads_torch(qkv, rope, cache.keys[0], cache.values[0], 3)
    assert_close(keys[:, :, 3], cache.keys[0, :, :, 3])
    assert_close(values[:, :, 3], cache.values[0, :, :, 3])
    larger[:, 2, :2, :, 3] = float("nan")
    assert larger.isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("normed", [True, False])
@torch.inference_mode()
def test_torch_form_is_what_layers_and_cache_do(
    generator: torch.Generator, dtype: torch.dtype, normed: bool
) -> None:
    tiny = preset("tiny").config.text_config
    config = replace(tiny, attention_qk_norm=normed)
    attention, cache = make_attention(config, generator, dtype), make_cache(config, dtype)
    rope = rope_table(torch.arange(6), config.head_dim, 1e4).to(generator.device)
    x = draw(generator, 3, config.dim, dtype=dtype)
    position = torch.tensor([0, 5, 2], device=generator.device)
    ours = KVCache(cache.keys.clone(), cache.values.clone())

    queries = write_heads_torch(
        attention.wqkv(x),
        rope,
        ours.keys[1],
        ours.values[1],
        position,
        weight=attention.qk_norm,
        eps=EPS,
    )

    q, k, v = attention.project(x, rope[position].unsqueeze(1), EPS)
    cache.write_step(1, cache.rows(position), k, v)
    assert_close(queries, q)
    assert_close(ours.keys, cache.keys)
    assert torch.equal(ours.values, cache.values)


def make_attention(
    config: TransformerConfig, generator: torch.Generator, dtype: torch.dtype
) -> Attention:
    """Return finished projections of random numbers."""
    attention = Attention(config).to(generator.device, dtype)
    for weight in attention.parameters():
        weight.data = draw(generator, *weight.shape, dtype=dtype)
    attention.finalize(LinearForm.PLAIN)
    return attention.requires_grad_(False)


def make_cache(config: TransformerConfig, dtype: torch.dtype) -> KVCache:
    """Return a cache of three streams of six positions."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return KVCache.allocate(config, num_slots=3, num_positions=6, device=device, dtype=dtype)
