"""Test the decoder's convolution by its torch form, and this by PyTorch's layers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed")

from lab.gpu_check.torch_forms import convolve_torch
from synth.engine.kernels.convolution import (
    TILES,
    SnakeNumbers,
    Taps,
    Tile,
    choose_tile,
    convolve,
)
from tests.synth.engine.kernels.closeness import draw, sweep

CLOSE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2, torch.float32: 1e-5}
# Input and output channels, taps, dilation, streams, columns, and phases of the output.
SIZES = [(24, 40, 7, 3, 2, 37, 1), (64, 64, 1, 1, 3, 70, 1), (16, 48, 2, 1, 2, 5, 4)]
SIZES += [(5, 3, 7, 9, 1, 1, 1), (96, 96, 7, 1, 1, 130, 1), (8, 1, 7, 1, 5, 9, 1)]
SMALL = Tile(64, 16, 16, 4, 2)


class Layer:
    """Hold a convolution's inputs, on the device of a generator."""

    def __init__(
        self, generator: torch.Generator, sizes: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        ins, outs, taps, dilation, batch, self.length, phases = sizes
        weight = draw(generator, outs, ins, taps, dtype=torch.float32, scale=(ins * taps) ** -0.5)
        bias = draw(generator, outs, dtype=torch.float32)
        self.taps = Taps.lay(weight, bias, dtype, dilation)
        before = self.taps.left
        self.x = draw(generator, batch, before + self.length, ins, dtype=dtype)
        self.sums = (batch, self.length, outs)
        self.channels = outs // phases
        alpha = draw(generator, self.channels, dtype=torch.float32, scale=3.0)
        self.snake = SnakeNumbers(alpha, 1 / (alpha + 1e-9))
        self.residual = draw(generator, *self.sums, dtype=torch.float32)

    def run(self, form: object, *, adds: bool, keeps: bool, snakes: bool, **more: object) -> Tensor:
        """Return the sums and, behind two columns of something else, what the next layer reads."""
        assert callable(form)
        batch, length, outs = self.sums
        room = self.x.new_zeros(batch, 2 + length * outs // self.channels, self.channels)
        out = self.residual.clone() if keeps else None
        form(
            self.x, self.taps, residual=self.residual if adds else None, out=out,
            snake=self.snake if snakes else None, active=room[:, 2:], **more,
        )  # fmt: skip
        assert not room[:, :2].any()
        return torch.cat([room.float().flatten(), *([out.flatten()] if out is not None else [])])


@pytest.mark.parametrize(
    ("sizes", "dtype", "adds", "keeps", "snakes"),
    sweep(SIZES, [torch.float16, torch.bfloat16], [False, True], [False, True], [False, True]),
)
def test_sums_and_what_the_next_layer_reads_are_those_of_the_torch_form(
    generator: torch.Generator,
    sizes: tuple[int, ...],
    dtype: torch.dtype,
    adds: bool,
    keeps: bool,
    snakes: bool,
) -> None:
    layer = Layer(generator, sizes, dtype)
    found, expected = (
        layer.run(form, adds=adds, keeps=keeps, snakes=snakes)
        for form in (convolve, convolve_torch)
    )
    torch.testing.assert_close(found, expected, atol=CLOSE[dtype], rtol=CLOSE[dtype])
    if keeps:  # the sums are float32, whatever the products are of
        sums = layer.residual.numel()
        torch.testing.assert_close(found[-sums:], expected[-sums:], atol=1e-4, rtol=1e-5)


def test_the_residual_may_be_written_over(generator: torch.Generator) -> None:
    layer = Layer(generator, SIZES[0], torch.float16)
    expected = layer.residual.clone()
    convolve_torch(layer.x, layer.taps, residual=expected, out=expected)
    convolve(layer.x, layer.taps, residual=layer.residual, out=layer.residual)
    torch.testing.assert_close(layer.residual, expected, atol=1e-4, rtol=1e-5)


def test_a_column_does_not_depend_on_its_tile_its_place_nor_its_neighbours(
    generator: torch.Generator,
) -> None:
    layer = Layer(generator, (48, 24, 7, 3, 3, 40, 1), torch.float16)
    expected = torch.empty(layer.sums, device=layer.x.device)
    convolve(layer.x, layer.taps, out=expected, tile=SMALL)
    for tile in (Tile(128, 32, 16, 4, 2), Tile(64, 16, 64, 4, 2)):
        found = torch.empty_like(expected)
        convolve(layer.x, layer.taps, out=found, tile=tile)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for start in (0, 7, 33):
        part = layer.x[1:2, start : start + layer.taps.left + 7].contiguous()
        found = torch.empty(1, 7, 24, device=part.device)
        convolve(part, layer.taps, out=found, tile=SMALL)
        assert torch.equal(found[0], expected[1, start : start + 7])


def test_float16_holds_its_largest_where_a_number_is_larger(device: torch.device) -> None:
    weight, bias = torch.full((1, 16, 1), 1e9, device=device), torch.zeros(1, device=device)
    taps = Taps.lay(weight, bias, torch.float16)
    assert float(taps.weight.max()) == 65504
    x = torch.full((1, 3, 16), 100.0, device=device, dtype=torch.float16)
    x[0, 1], x[0, 2, 0] = -100.0, torch.nan
    active = torch.empty(1, 3, 1, device=device, dtype=torch.float16)
    snake = SnakeNumbers(torch.ones(1, device=device), torch.ones(1, device=device))
    convolve(x, taps, active=active, snake=snake)
    assert active[0, :2, 0].tolist() == [65504, -65504]
    assert active[0, 2, 0].isnan()  # what is no number stays none


def test_laid_weights_are_pytorchs_convolution(generator: torch.Generator) -> None:
    weight = draw(generator, 6, 4, 7, dtype=torch.float32)
    bias, x = (
        draw(generator, 6, dtype=torch.float32),
        draw(generator, 2, 4, 30, dtype=torch.float32),
    )
    taps = Taps.lay(weight, bias, torch.float32, dilation=3)
    before = F.pad(x, (taps.left, 0))
    out = torch.empty(2, 30, 6, device=x.device)
    convolve(before.transpose(1, 2).contiguous(), taps, out=out, tile=SMALL)
    expected = F.conv1d(before, weight, bias, dilation=3).transpose(1, 2)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_every_size_has_a_tile_that_all_cards_hold() -> None:
    assert {choose_tile(rows, outs) for rows in (1, 10**4, 10**7) for outs in (1, 96, 192, 6144)}
    for tile in TILES:
        numbers = tile.ins * (tile.rows + tile.outs) * tile.stages
        assert 2 * numbers <= 99 * 1024 and tile.rows >= 64 and tile.warps >= 4
