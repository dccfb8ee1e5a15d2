"""Test attention over a cache and along a frame, and layers of kernels, by the engine's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.bench.models.shapes import preset
from lab.gpu_check.torch_forms import (
    decode_attention_torch,
    frame_attention_torch,
    step_attention_torch,
    step_frame_torch,
    write_heads_torch,
)
from synth.engine.kernels.attention import split_for, step_attention
from synth.engine.kernels.frame import can_step, run_layers, step_frame
from synth.engine.loading.weights import load_dual_ar
from synth.engine.model import layers as attention
from synth.engine.model.dual_ar import DualAR, SlowAR, _attend
from synth.engine.model.kv_cache import FrameCache, KVCache
from synth.engine.model.layers import Attention, rope_table
from synth.engine.model.linear import LinearForm
from synth.engine.native.library import find_processor
from tests.synth.engine.kernels.closeness import DTYPES, assert_close, draw, sweep
from tests.synth.engine.random_checkpoint import write_checkpoint

SPLIT = 64  # small, so that few positions make many splits
Layer = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def make_layer(
    generator: torch.Generator,
    positions: list[int],
    length: int,
    *,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 16,
    dtype: torch.dtype = torch.float32,
) -> Layer:
    """Return qkv, the rotary table, a cache with NaN from every position on, and the positions."""
    device, batch = generator.device, len(positions)
    qkv = draw(generator, batch, (heads[0] + 2 * heads[1]) * head_dim, dtype=dtype)
    both = draw(generator, 2, 3, batch, heads[1], length, head_dim, dtype=dtype)
    position = torch.tensor(positions, device=device)
    last = position.clamp(max=length - 1)
    unseen = torch.arange(length, device=device) >= last[:, None]
    both.masked_fill_(unseen[:, None, :, None], float("nan"))
    rope = rope_table(torch.arange(length + 9, device=device), head_dim, 10_000.0)
    return qkv, rope, both[0, 1], both[1, 1], position  # views into the middle, as a layer's are


def check_against_torch_form(layer: Layer, tolerance: float, **options: Any) -> None:
    qkv, rope, keys, values, position = layer
    written = keys.clone(), values.clone()
    expected = step_attention_torch(qkv, rope, *written, position, split=SPLIT, **options)
    found = step_attention(*layer, split=SPLIT, **options)
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(keys, written[0], equal_nan=True, atol=1e-6, rtol=tolerance)
    torch.testing.assert_close(values, written[1], equal_nan=True, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("shape", "normed", "dtype"),
    sweep([((4, 2), 16), ((3, 1), 24), ((8, 2), 128), ((2, 2), 16)], [True, False], DTYPES),
)
def test_the_kernel_gives_and_writes_what_its_torch_form_does(
    generator: torch.Generator,
    shape: tuple[tuple[int, int], int],
    normed: bool,
    dtype: torch.dtype,
) -> None:
    heads, head_dim = shape
    positions = [0, 1, SPLIT - 1, SPLIT, 150, 199, 204]
    layer = make_layer(generator, positions, 200, heads=heads, head_dim=head_dim, dtype=dtype)
    weight = None
    if normed:
        size = (sum(heads), head_dim)
        weight = torch.rand(size, generator=generator, device=generator.device).to(dtype) + 0.5
    tolerance = 1.6e-2 if dtype == torch.bfloat16 else 3e-6  # of bfloat16: two units
    check_against_torch_form(layer, tolerance, weight=weight, eps=1e-6)


@pytest.mark.parametrize("length", [1, 17, 130])
def test_a_cache_need_not_be_a_multiple_of_a_split(generator: torch.Generator, length: int) -> None:
    check_against_torch_form(make_layer(generator, [0, length // 2, length - 1], length), 2e-6)


def test_neither_neighbours_nor_the_room_in_the_cache_change_a_bit(
    generator: torch.Generator,
) -> None:
    qkv, rope, keys, values, position = layer = make_layer(generator, [70, 9, 639], 640)
    near = [(keys[[s], :, :length], values[[s], :, :length]) for s, length in ((0, 128), (1, 16))]
    among = step_attention(*layer, split=SPLIT)
    for stream, cache in enumerate(near):
        part = slice(stream, stream + 1)
        alone = step_attention(qkv[part], rope, *cache, position[part], split=SPLIT)
        assert torch.equal(alone, among[part])


def test_a_split_of_16_bits_loses_no_more_than_the_final_rounding(
    generator: torch.Generator,
) -> None:
    qkv, rope, keys, values, position = layer = make_layer(
        generator, [150, 90], 200, dtype=torch.bfloat16
    )
    found = step_attention(*layer, split=SPLIT)
    # What was written and rotated is rounded already: attending to it alone is compared.
    q = write_heads_torch(qkv, rope, keys.clone(), values.clone(), position)
    exact = decode_attention_torch(q.float(), keys.float(), values.float(), position, split=SPLIT)
    assert ((found.float() - exact).abs() <= exact.abs() * 2**-8 + 2e-5).all()


def test_the_torch_form_is_the_engines_attention(generator: torch.Generator) -> None:
    qkv, rope, keys, values, position = make_layer(generator, [0, 63, 130], 150)
    q = write_heads_torch(qkv, rope, keys, values, position)
    found = decode_attention_torch(q, keys, values, position, split=SPLIT)
    mask = attention.step_mask(position, 150)
    expected = attention.step_attention(q, keys.nan_to_num(), values.nan_to_num(), mask)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_rows_of_any_stride_are_read_and_a_position_beyond_the_cache_is_its_last(
    generator: torch.Generator,
) -> None:
    qkv, rope, keys, values, position = layer = make_layer(generator, [80, 99], 100)
    width = qkv.shape[1]
    spread = torch.full((2, 3 * width), float("nan"), device=qkv.device)
    spread[:, 2 : 2 + width] = qkv
    beyond = position + torch.tensor([0, 7]).to(position)
    expected = step_attention(*layer)
    for rows, places in ((spread[:, 2 : 2 + width], position), (qkv, beyond)):
        assert torch.equal(step_attention(rows, rope, keys, values, places), expected)


def test_few_streams_are_cut_into_more_splits() -> None:
    assert [split_for(batch, 8, 132) for batch in (1, 2, 4, 64)] == [64, 128, 256, 256]
    assert split_for(1, 1, 132) == 64
    assert split_for(1, 8, 28) == 256  # a small device has work from the first stream on


TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 1.6e-2}  # of bfloat16: two units near 1
EPS = 1e-6


def _inputs(
    generator: torch.Generator,
    *,
    rows: int,
    streams: int,
    dtype: torch.dtype = torch.float32,
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


@pytest.mark.parametrize(
    ("shape", "place", "normed", "dtype"),
    sweep(
        [((4, 2), 16), ((3, 1), 24), ((3, 3), 6), ((8, 1), 2), ((8, 2), 128)],
        [(0, 1), (0, 2), (2, 1), (9, 1)],
        [True, False],
        DTYPES,
    ),
)
def test_the_kernel_of_a_frame_gives_and_writes_what_its_torch_form_does(
    generator: torch.Generator,
    shape: tuple[tuple[int, int], int],
    place: tuple[int, int],
    normed: bool,
    dtype: torch.dtype,
) -> None:
    (heads, head_dim), (position, span) = shape, place
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
    qkv, rope, cache = _inputs(generator, rows=4, streams=2)
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


def test_rows_of_any_stride_are_read_and_a_place_behind_the_last_is_a_mistake(
    generator: torch.Generator,
) -> None:
    qkv, rope, cache = _inputs(generator, rows=2, streams=2)
    spread = torch.full((2, 200), float("nan"), device=qkv.device)
    spread[:, 50:178] = qkv
    layer = (cache.keys[0], cache.values[0])
    found = step_frame(spread[:, 50:178], rope, *layer, 3)
    assert torch.equal(found, step_frame(qkv, rope, *layer, 3))
    with pytest.raises(AssertionError):
        step_frame(qkv, rope, cache.keys[0][:1], cache.values[0][:1], 9, span=2)


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
    qkv, rope, cache = _inputs(generator, rows=2, streams=2)
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
    attention, device = Attention(config).to(generator.device, dtype), generator.device
    for parameter in attention.parameters():
        parameter.data = draw(generator, *parameter.shape, dtype=dtype)
    attention.finalize(LinearForm.PLAIN)
    cache = KVCache.allocate(config, num_slots=3, num_positions=6, device=device, dtype=dtype)
    rope = rope_table(torch.arange(6), config.head_dim, 1e4).to(generator.device)
    x = draw(generator, 3, config.dim, dtype=dtype)
    position = torch.tensor([0, 5, 2], device=generator.device)
    ours = KVCache(cache.keys.clone(), cache.values.clone())

    layer, norm = (ours.keys[1], ours.values[1]), attention.qk_norm
    queries = write_heads_torch(attention.wqkv(x), rope, *layer, position, weight=norm, eps=EPS)

    q, k, v = attention.project(x, rope[position].unsqueeze(1), EPS)
    cache.write_step(1, cache.rows(position, torch.arange(len(position))), k, v)
    assert_close(queries, q)
    assert_close(ours.keys, cache.keys)
    assert torch.equal(ours.values, cache.values)


SHAPES: dict[str, dict[str, Any]] = {
    "as published": {},
    "biases, no q/k norm": dict.fromkeys(("attention_qkv_bias", "attention_o_bias"), True)
    | {"attention_qk_norm": False},
}
LENGTH = 64


def kernel_step(slow: SlowAR, streams: Streams, cache: KVCache) -> Tensor:
    x = slow.embed(streams.columns)
    return run_layers(slow, x, cache, streams.position, partial(step_attention, split=64))


@dataclass(frozen=True)
class Streams:
    columns: Tensor
    position: Tensor
    cache: KVCache


def streams_of(model: DualAR, batch: int, generator: torch.Generator) -> Streams:
    device, special = model.device, model.special
    sizes = {"num_slots": batch, "num_positions": LENGTH}
    text = model.config.text_config
    cache = KVCache.allocate(text, **sizes, device=device, dtype=model.dtype)
    for each in (cache.keys, cache.values):
        each.copy_(draw(generator, *each.shape, dtype=model.dtype))
    shape = (batch, 1 + model.slow.num_codebooks)
    columns = torch.randint(model.slow.codebook_size, shape, generator=generator, device=device)
    columns[:, 0] += special.semantic_begin
    ends = torch.tensor([0, LENGTH - 1, 5, 31], device=device)
    return Streams(columns, ends.repeat(batch)[:batch], cache)


@pytest.fixture(params=SHAPES)
def model(request: pytest.FixtureRequest, tmp_path: Path, device: torch.device) -> DualAR:
    fast_norm = {"attention_qk_norm": request.param != "as published"}
    write_checkpoint(tmp_path, text=SHAPES[request.param], audio=fast_norm)
    return load_dual_ar(tmp_path, device=device, dtype=torch.float32)[0]


@pytest.mark.parametrize("batch", [1, 3, 17])
@torch.inference_mode()
def test_slow_step_of_kernels_gives_the_states_and_the_cache_of_the_models_step(
    model: DualAR, generator: torch.Generator, batch: int
) -> None:
    streams = streams_of(model, batch, generator)
    ours = KVCache(streams.cache.keys.clone(), streams.cache.values.clone())
    assert all(can_step(layer) for layer in model.slow.blocks)
    found = kernel_step(model.slow, streams, ours)
    expected = model.slow.step(streams.columns, streams.position, streams.cache, length=LENGTH)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.keys, streams.cache.keys, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(ours.values, streams.cache.values, rtol=1e-4, atol=1e-4)


@pytest.mark.thorough
@pytest.mark.parametrize("batch", [1, 9])
@torch.inference_mode()
def test_frame_of_kernels_gives_the_logits_of_the_models_frame(
    model: DualAR, generator: torch.Generator, batch: int
) -> None:
    fast = model.fast
    hidden = draw(generator, batch, model.config.text_config.dim, dtype=torch.float32)
    codes = torch.randint(fast.codebook_size, (batch, 2), generator=generator, device=hidden.device)
    theirs, ours = fast.allocate_cache(batch), fast.allocate_cache(batch)

    start = torch.stack([hidden, fast.embeddings(codes[:, 0])], dim=1).flatten(0, 1)
    states = run_layers(fast, start, ours, 0, partial(step_frame, span=2))
    found = [fast.output(states.view(batch, 2, -1)[:, 1])]
    found.append(fast.output(run_layers(fast, fast.embeddings(codes[:, 1]), ours, 2, step_frame)))

    expected = [fast.first(hidden, codes[:, 0], theirs)]
    expected.append(fast.next(codes[:, 1], 2, theirs))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_bfloat16_step_of_kernels_is_as_close_to_float32_as_the_models_own(
    tmp_path: Path, device: torch.device, generator: torch.Generator
) -> None:
    write_checkpoint(tmp_path)
    wide = load_dual_ar(tmp_path, device=device, dtype=torch.float32)[0]
    narrow = load_dual_ar(tmp_path, device=device, dtype=torch.bfloat16)[0]
    exact, rounded = (streams_of(each, 2, generator.manual_seed(3)) for each in (wide, narrow))
    # Kept wider on a CPU, which kernels do not serve.
    ours = KVCache(rounded.cache.keys.bfloat16(), rounded.cache.values.bfloat16())

    found = kernel_step(narrow.slow, rounded, ours).float()

    reference = wide.slow.step(exact.columns, exact.position, exact.cache, length=LENGTH)
    torch_form = narrow.slow.step(rounded.columns, rounded.position, rounded.cache, length=LENGTH)
    error = (found - reference).norm() / reference.norm()
    assert error < 1.5 * (torch_form.float() - reference).norm() / reference.norm()


def test_packed_layer_is_not_taken_for_one_that_kernels_can_step(tmp_path: Path) -> None:
    if not find_processor().packing:
        pytest.skip("this PyTorch has no packed matrices")
    write_checkpoint(tmp_path)
    packed, _ = load_dual_ar(tmp_path, dtype=torch.float32, form=LinearForm.PACKED)
    assert not any(can_step(layer) for layer in packed.slow.blocks)
