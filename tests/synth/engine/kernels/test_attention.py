"""Test attention; the torch form is tested against the engine's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="kernels are written in triton, which is not installed")

from synth.engine.kernels.attention import decode_attention, decode_attention_torch, split_for
from synth.engine.model.attention import step_attention, step_mask

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 8e-3}  # of bfloat16: one unit in the last place
SPLIT = 64  # small, so that few positions make many splits


def _inputs(
    generator: torch.Generator,
    *,
    positions: list[int],
    length: int,
    heads: tuple[int, int] = (4, 2),
    head_dim: int = 16,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return q, a layer of a cache with NaN behind every position, and the positions."""
    device, batch = generator.device, len(positions)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=device).to(dtype)

    q, joined = drawn(batch, heads[0], head_dim), drawn(2, 3, batch, heads[1], length, head_dim)
    position = torch.tensor(positions, device=device)
    unseen = torch.arange(length, device=device) > position[:, None]
    joined.masked_fill_(unseen[:, None, :, None], float("nan"))
    return q * 2, joined[0, 1], joined[1, 1], position  # views into the middle, as a layer's are


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("heads", "head_dim"), [((4, 2), 16), ((3, 1), 24), ((32, 8), 128), ((2, 2), 16)]
)
def test_the_kernel_gives_what_its_torch_form_gives(
    generator: torch.Generator, heads: tuple[int, int], head_dim: int, dtype: torch.dtype
) -> None:
    positions = [0, SPLIT - 1, SPLIT, 3 * SPLIT - 1]
    q, keys, values, position = _inputs(
        generator,
        positions=positions,
        length=3 * SPLIT,
        heads=heads,
        head_dim=head_dim,
        dtype=dtype,
    )

    found = decode_attention(q, keys, values, position, split=SPLIT)

    expected = decode_attention_torch(q, keys, values, position, split=SPLIT)
    torch.testing.assert_close(found, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def test_a_split_of_16_bits_loses_no_more_than_the_final_rounding(
    generator: torch.Generator,
) -> None:
    q, keys, values, position = _inputs(
        generator, positions=[150, 90], length=200, dtype=torch.bfloat16
    )

    found = decode_attention(q, keys, values, position, split=SPLIT)

    exact = decode_attention_torch(q.float(), keys.float(), values.float(), position, split=SPLIT)
    assert ((found.float() - exact).abs() <= exact.abs() * 2**-8 + 2e-5).all()


def test_the_torch_form_is_the_engines_attention(generator: torch.Generator) -> None:
    q, keys, values, position = _inputs(generator, positions=[0, 63, 130], length=150)
    mask = step_mask(position, 150)

    found = decode_attention_torch(q, keys, values, position, split=SPLIT)

    expected = step_attention(q, keys.nan_to_num(), values.nan_to_num(), mask)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [1, 17, 130])
def test_a_cache_need_not_be_a_multiple_of_a_split(generator: torch.Generator, length: int) -> None:
    q, keys, values, position = _inputs(
        generator, positions=[0, length // 2, length - 1], length=length
    )

    found = decode_attention(q, keys, values, position, split=SPLIT)

    expected = decode_attention_torch(q, keys, values, position, split=SPLIT)
    torch.testing.assert_close(found, expected, atol=2e-6, rtol=0)


def test_a_position_beyond_the_cache_is_taken_as_its_last(generator: torch.Generator) -> None:
    q, keys, values, position = _inputs(generator, positions=[80, 99], length=100)

    found = decode_attention(q, keys, values, position + torch.tensor([0, 7]).to(position))

    assert torch.equal(found, decode_attention(q, keys, values, position))


def test_neither_neighbours_nor_the_room_in_the_cache_change_a_bit(
    generator: torch.Generator,
) -> None:
    q, keys, values, position = _inputs(generator, positions=[70, 9, 639], length=640)

    among = decode_attention(q, keys, values, position, split=SPLIT)

    for stream, length in enumerate((128, 16, 640)):
        part = slice(stream, stream + 1)
        near = (keys[part, :, :length], values[part, :, :length])
        alone = decode_attention(q[part], *near, position[part], split=SPLIT)
        assert torch.equal(alone, among[part])


def test_queries_of_any_stride_are_read(generator: torch.Generator) -> None:
    q, keys, values, position = _inputs(generator, positions=[5, 70], length=80)
    spread = torch.full((2, 9, 16), float("nan"), device=q.device)
    spread[:, 2:6] = q

    found = decode_attention(spread[:, 2:6], keys, values, position)

    assert torch.equal(found, decode_attention(q, keys, values, position))


def test_few_streams_are_cut_into_more_splits() -> None:
    found = [split_for(batch, 8) for batch in (1, 2, 4, 64)]

    assert found == [64, 128, 256, 256]
    assert split_for(1, 1) == 64
