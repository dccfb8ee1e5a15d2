"""Test attention; its torch form is tested against the engine's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="kernels are written in triton, which is not installed")

from lab.gpu_check.torch_forms import (
    decode_attention_torch,
    step_attention_torch,
    write_heads_torch,
)
from synth.engine.kernels.attention import split_for, step_attention
from synth.engine.model import layers as attention
from synth.engine.model.layers import rope_table

SPLIT = 64  # small, so that few positions make many splits
EPS = 1e-6


def _layer(
    generator: torch.Generator,
    *,
    positions: list[int],
    length: int,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 16,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return qkv, the rotary table, a cache with NaN from every position on, and the positions."""
    device, batch = generator.device, len(positions)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    qkv = drawn(batch, (heads[0] + 2 * heads[1]) * head_dim)
    both = drawn(2, 3, batch, heads[1], length, head_dim)
    position = torch.tensor(positions, device=device)
    last = position.clamp(max=length - 1)
    unseen = torch.arange(length, device=device) >= last[:, None]
    both.masked_fill_(unseen[:, None, :, None], float("nan"))
    rope = rope_table(torch.arange(length + 9, device=device), head_dim, 10_000.0)
    return qkv, rope, both[0, 1], both[1, 1], position  # views into the middle, as a layer's are


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize(
    ("heads", "head_dim"), [((4, 2), 16), ((3, 1), 24), ((8, 2), 128), ((2, 2), 16)]
)
def test_the_kernel_gives_and_writes_what_its_torch_form_does(
    generator: torch.Generator,
    heads: tuple[int, int],
    head_dim: int,
    normed: bool,
    dtype: torch.dtype,
) -> None:
    positions = [0, 1, SPLIT - 1, SPLIT, 150, 199, 204]
    qkv, rope, keys, values, position = _layer(
        generator, positions=positions, length=200, heads=heads, head_dim=head_dim, dtype=dtype
    )
    weight = None
    if normed:
        shape = (sum(heads), head_dim)
        weight = torch.rand(shape, generator=generator, device=qkv.device).to(dtype) + 0.5
    other_keys, other_values = keys.clone(), values.clone()

    found = step_attention(qkv, rope, keys, values, position, weight=weight, eps=EPS, split=SPLIT)

    expected = step_attention_torch(
        qkv, rope, other_keys, other_values, position, weight=weight, eps=EPS, split=SPLIT
    )
    tolerance = 1.6e-2 if dtype == torch.bfloat16 else 3e-6  # of bfloat16: two units
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    torch.testing.assert_close(keys, other_keys, equal_nan=True, atol=1e-6, rtol=tolerance)
    torch.testing.assert_close(values, other_values, equal_nan=True, atol=0, rtol=0)


def test_neither_neighbours_nor_the_room_in_the_cache_change_a_bit(
    generator: torch.Generator,
) -> None:
    qkv, rope, keys, values, position = _layer(generator, positions=[70, 9, 639], length=640)
    near = [(keys[[s], :, :length], values[[s], :, :length]) for s, length in ((0, 128), (1, 16))]
    among = step_attention(qkv, rope, keys, values, position, split=SPLIT)
    for stream, cache in enumerate(near):
        part = slice(stream, stream + 1)
        alone = step_attention(qkv[part], rope, *cache, position[part], split=SPLIT)
        assert torch.equal(alone, among[part])


def test_a_split_of_16_bits_loses_no_more_than_the_final_rounding(
    generator: torch.Generator,
) -> None:
    qkv, rope, keys, values, position = _layer(
        generator, positions=[150, 90], length=200, dtype=torch.bfloat16
    )

    found = step_attention(qkv, rope, keys, values, position, split=SPLIT)

    # What was written and rotated is rounded already: attending to it alone is compared.
    other_keys, other_values = keys.clone(), values.clone()
    q = write_heads_torch(qkv, rope, other_keys, other_values, position)
    exact = decode_attention_torch(q.float(), keys.float(), values.float(), position, split=SPLIT)
    assert ((found.float() - exact).abs() <= exact.abs() * 2**-8 + 2e-5).all()


def test_the_torch_form_is_the_engines_attention(generator: torch.Generator) -> None:
    qkv, rope, keys, values, position = _layer(generator, positions=[0, 63, 130], length=150)
    q = write_heads_torch(qkv, rope, keys, values, position)

    found = decode_attention_torch(q, keys, values, position, split=SPLIT)

    mask = attention.step_mask(position, 150)
    expected = attention.step_attention(q, keys.nan_to_num(), values.nan_to_num(), mask)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [1, 17, 130])
def test_a_cache_need_not_be_a_multiple_of_a_split(generator: torch.Generator, length: int) -> None:
    qkv, rope, keys, values, position = _layer(
        generator, positions=[0, length // 2, length - 1], length=length
    )
    other_keys, other_values = keys.clone(), values.clone()

    found = step_attention(qkv, rope, keys, values, position, split=SPLIT)

    expected = step_attention_torch(qkv, rope, other_keys, other_values, position, split=SPLIT)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


def test_a_position_beyond_the_cache_is_taken_as_its_last(generator: torch.Generator) -> None:
    qkv, rope, keys, values, position = _layer(generator, positions=[80, 99], length=100)
    beyond = position + torch.tensor([0, 7]).to(position)
    found = step_attention(qkv, rope, keys, values, beyond)
    assert torch.equal(found, step_attention(qkv, rope, keys, values, position))


def test_rows_of_any_stride_are_read(generator: torch.Generator) -> None:
    qkv, rope, keys, values, position = _layer(generator, positions=[5, 70], length=80)
    spread = torch.full((2, 3 * qkv.shape[1]), float("nan"), device=qkv.device)
    spread[:, 2 : 2 + qkv.shape[1]] = qkv

    found = step_attention(
        spread[:, 2 : 2 + qkv.shape[1]], rope, keys, values, position, split=SPLIT
    )

    expected = step_attention(qkv, rope, keys, values, position, split=SPLIT)
    assert torch.equal(found, expected)


def test_few_streams_are_cut_into_more_splits() -> None:
    found = [split_for(batch, 8) for batch in (1, 2, 4, 64)]
    assert found == [64, 128, 256, 256]
    assert split_for(1, 1) == 64
