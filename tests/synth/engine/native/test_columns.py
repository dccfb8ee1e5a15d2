"""Test columns: norms, mixed taps, codebooks, gates and GELUs of columns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.codec.layers import ConvNeXtBlock
from synth.engine.native.convolution import (
    NativeCodebooks,
    NativeDepthwise,
    NativeNorm,
    NativeTaps,
    Then,
)
from tests.synth.engine.native.conftest import Convolution, close, numbers, split

pytestmark = [pytest.mark.compiler, pytest.mark.usefixtures("library")]

LENGTHS = [1, 15, 16, 17, 333]
CHUNKS = [[1] * 130, [1] * 20 + [110], [7, 60, 63], [129, 1], [2, 3, 125]]


def alone(width: int, **around: Any) -> Convolution:
    """Return a convolution that itself changes nothing, with what goes around it."""
    return Convolution(NativeTaps(torch.eye(width).unsqueeze(2)), **around)


def linear(outputs: int, channels: int, seed: int) -> Tensor:
    weight: Tensor = numbers(outputs, channels, 1, seed=seed) * channels**-0.5
    return weight


@pytest.mark.parametrize("width", [1, 2, 5, 24, 1024])
def test_a_norm_is_of_the_root_mean_square_and_with_a_bias_of_mean_and_deviation(
    width: int,
) -> None:
    weight, bias = numbers(width, seed=1), numbers(width, seed=2)
    plain = alone(width, norm=NativeNorm(weight, 1e-5))
    biased = alone(width, norm=NativeNorm(weight, 1e-6, bias=bias))
    # Where two channels nearly agree, rounding their mean is all that can be seen.
    far = 1e-3 if width == 2 else 2e-5
    for x in [numbers(2, width, length) * 3 + 1 for length in LENGTHS]:
        expected = F.rms_norm(x.double().mT, (width,), weight.double(), 1e-5).mT
        torch.testing.assert_close(plain(x).double(), expected, atol=2e-6, rtol=2e-6)
        if width > 1:
            x = x + 9
            sizes = ((width,), weight.double(), bias.double(), 1e-6)
            expected = F.layer_norm(x.double().mT, *sizes).mT
            torch.testing.assert_close(biased(x).double(), expected, atol=far, rtol=1e-5)


@pytest.mark.parametrize("bias", [None, torch.zeros(24)], ids=["squares", "deviation"])
def test_silence_stays_silent_behind_a_norm(bias: Tensor | None) -> None:
    norm = NativeNorm(torch.ones(24), 1e-5, bias=bias)
    assert not alone(24, norm=norm)(torch.zeros(1, 24, 40)).any()


@pytest.mark.parametrize("taps", [1, 2, 7])
@pytest.mark.parametrize("width", [1, 5, 24, 500])
def test_each_channels_own_taps_are_those_of_pytorch(width: int, taps: int) -> None:
    weight, bias = numbers(width, 1, taps, seed=1), numbers(width, seed=2)
    compiled = alone(width, first=NativeDepthwise(weight, bias))
    for x in [numbers(2, width, length) for length in LENGTHS]:
        padded = F.pad(x.double(), (taps - 1, 0))
        close(compiled(x), F.conv1d(padded, weight.double(), bias.double(), groups=width))


def block_of(width: int) -> tuple[ConvNeXtBlock, Convolution]:
    """Return a block in double precision and what is to give the same."""
    block = ConvNeXtBlock(width).requires_grad_(False)
    for seed, weight in enumerate(block.parameters()):
        fan_in = weight[0].numel() if weight.dim() > 1 else 1
        weight.copy_(numbers(*weight.shape, seed=seed) * fan_in**-0.5)
    mixed, gamma = block.dwconv.conv, block.gamma
    assert mixed.bias is not None
    scaled = block.pwconv2.weight * gamma[:, None]
    compiled = Convolution(
        NativeTaps(block.pwconv1.weight.unsqueeze(2), block.pwconv1.bias),
        first=NativeDepthwise(mixed.weight, mixed.bias),
        norm=NativeNorm(block.norm.weight, block.norm.eps, bias=block.norm.bias),
        then=Then.GELUS,
        narrow=NativeTaps(scaled.unsqueeze(2), block.pwconv2.bias * gamma),
        adds=1,
    )
    return block.double(), compiled


@pytest.mark.parametrize("width", [5, 24, 130])
def test_a_whole_block_is_that_of_pytorch(width: int) -> None:
    block, compiled = block_of(width)
    for x in [numbers(2, width, length, seed=9) for length in (1, 16, 49, 1001)]:
        torch.testing.assert_close(compiled(x).double(), block(x.double()), atol=5e-5, rtol=1e-5)


@pytest.mark.parametrize("sizes", CHUNKS)
def test_chunks_of_a_block_are_the_whole_in_every_bit(sizes: list[int]) -> None:
    _, compiled = block_of(24)
    x = numbers(2, 24, 130, seed=9)
    room = torch.zeros(2, 10 + 24 * 6)  # rows apart, as those of streams are
    before = room[:, 10:].view(2, 24, 6)
    pieces = [compiled(piece, before) for piece in split(x, sizes)]
    assert torch.equal(torch.cat(pieces, dim=2), compiled(x))
    assert torch.equal(before, x[..., -6:])
    assert not room[:, :10].any()


def test_codes_are_rows_of_tables_of_any_size_side_by_side() -> None:
    tables = [numbers(size, 5, seed=size) for size in (50, 1, 30, 7)]
    books = NativeCodebooks(tables)
    assert all(torch.equal(*pair) for pair in zip(books.tables, tables, strict=True))
    for length in LENGTHS:
        generator = torch.Generator().manual_seed(0)
        codes = torch.randint(0, 60, (2, 4, length), generator=generator)
        codes[0, 0, 0], codes[1, 3, -1] = 1 << 40, 49  # far above; within the first table alone
        rows = [
            F.embedding(codes[:, row].clamp(max=len(table) - 1), table)
            for row, table in enumerate(tables)
        ]
        assert torch.equal(alone(20, first=books)(codes), torch.cat(rows, dim=2).mT)


@pytest.mark.parametrize(("width", "inner"), [(8, 8), (24, 28), (5, 3), (130, 400)])
def test_gates_open_what_lies_beside_them(width: int, inner: int) -> None:
    gate, other, down = linear(inner, width, 1), linear(inner, width, 2), linear(width, inner, 3)
    weight = numbers(width, seed=4)
    compiled = Convolution(
        NativeTaps(torch.cat([gate, other])),
        norm=NativeNorm(weight, 1e-5),
        then=Then.GATES,
        narrow=NativeTaps(down),
        adds=1,
    )
    for x in [numbers(2, width, length) * 3 for length in LENGTHS]:
        normed = F.rms_norm(x.double().mT, (width,), weight.double(), 1e-5).mT
        opened = F.silu(F.conv1d(normed, gate.double())) * F.conv1d(normed, other.double())
        close(compiled(x), x.double() + F.conv1d(opened, down.double()))


def test_gates_far_from_zero_are_open_or_shut() -> None:
    gates = torch.linspace(-150, 150, 3001).view(1, 1, -1)
    x = torch.cat([gates, torch.ones_like(gates)], dim=1)
    found = alone(2, then=Then.GATES, narrow=NativeTaps(torch.ones(1, 1, 1)))(x)
    expected = F.silu(gates.double())
    torch.testing.assert_close(found.double(), expected, atol=1e-36, rtol=1e-6)


def test_a_gelu_is_the_exact_one() -> None:
    x = torch.cat([torch.linspace(-12, 12, 48001), numbers(5000) * 1e-3]).view(1, 1, -1)
    found = alone(1, then=Then.GELUS)(x).double()
    error = (found - F.gelu(x.double())).abs()
    assert bool((error <= 3e-7 * x.double().abs().clamp(min=1)).all())
    huge = [13.0, 1e10, 1e25, 3e38]  # of what is huge it is itself or nothing
    x = torch.tensor([*huge, float("inf"), *(-number for number in huge)]).view(1, 1, -1)
    torch.testing.assert_close(alone(1, then=Then.GELUS)(x), x.clamp(min=0), atol=1e-30, rtol=0)
    bad = torch.tensor([float("nan"), float("-inf")]).view(1, 1, -1)
    assert bool(alone(1, then=Then.GELUS)(bad).isnan().all())
