"""Test convolution: whatever the shape, the chunks and the neighbours."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.native.convolution import (
    NativeSnake,
    NativeTaps,
    Then,
    convolve,
)
from tests.synth.engine.native.conftest import Convolution, close, numbers, split

pytestmark = [pytest.mark.compiler, pytest.mark.usefixtures("library")]

SHAPES = [(8, 8), (16, 16), (5, 3), (24, 1), (48, 48), (200, 130)]  # channels, outputs


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    x, alpha = x.double(), alpha.double()
    return x + (x * alpha).sin().square() / (alpha + 1e-9)


class Unit:
    """Hold the weights of a residual unit, its compiled form and what it is to give."""

    def __init__(self, channels: int, step: int, taps: int = 7) -> None:
        self.step, self.context = step, (taps - 1) * step
        self.alphas = [numbers(1, channels, 1, seed=seed).abs() + 0.5 for seed in (1, 2)]
        self.wide = numbers(channels, channels, taps, seed=3) * (taps * channels) ** -0.5
        self.narrow = numbers(channels, channels, 1, seed=4) * channels**-0.5
        self.biases = [numbers(channels, seed=seed) for seed in (5, 6)]
        self.compiled = Convolution(
            NativeTaps(self.wide, self.biases[0], step=step),
            first=NativeSnake(self.alphas[0]),
            then=Then.SNAKES,
            second=NativeSnake(self.alphas[1]),
            narrow=NativeTaps(self.narrow, self.biases[1]),
            adds=1,
        )

    def expected(self, x: Tensor) -> Tensor:
        y = F.pad(snake(x, self.alphas[0]), (self.context, 0))
        y = F.conv1d(y, self.wide.double(), self.biases[0].double(), dilation=self.step)
        y = F.conv1d(snake(y, self.alphas[1]), self.narrow.double(), self.biases[1].double())
        return x.double() + y


@pytest.mark.parametrize(("channels", "outputs"), SHAPES)
def test_a_convolution_is_that_of_pytorch(channels: int, outputs: int) -> None:
    weight, bias = numbers(outputs, channels, 7) * channels**-0.5, numbers(outputs, seed=1)
    compiled = Convolution(NativeTaps(weight, bias, step=3))
    for length in (1, 2, 15, 16, 17, 47, 48, 49, 333, 2500):
        x = numbers(2, channels, length, seed=2)
        padded = F.pad(x.double(), (18, 0))
        close(compiled(x), F.conv1d(padded, weight.double(), bias.double(), dilation=3))


@pytest.mark.parametrize("channels", [4, 8, 24, 96, 300])
def test_a_residual_unit_is_that_of_pytorch(channels: int) -> None:
    x = numbers(2, channels, 1001)
    for unit in [Unit(channels, step) for step in (1, 3, 9)]:
        close(unit.compiled(x), unit.expected(x))


def test_a_stride_makes_neighbouring_outputs_the_columns_of_one() -> None:
    x = numbers(2, 12, 90, seed=2)
    for stride in (2, 4, 8):
        weight, bias = numbers(6 * stride, 12, 2), numbers(6 * stride, seed=1)
        found = Convolution(NativeTaps(weight, bias), stride=stride)(x)
        assert found.shape == (2, 6, 90 * stride)
        apart = F.conv1d(F.pad(x.double(), (1, 0)), weight.double(), bias.double())
        close(found, apart.view(2, 6, stride, 90).transpose(2, 3).flatten(2))


def test_outputs_are_bound_by_the_hyperbolic_tangent() -> None:
    x = numbers(1, 1, 700) * torch.logspace(-6, 3, 700)
    found = Convolution(NativeTaps(torch.ones(1, 1, 1)), then=Then.TANGENTS)(x)
    torch.testing.assert_close(found.double(), x.double().tanh(), atol=3e-7, rtol=0)
    assert float(found.abs().max()) <= 1


def test_a_snake_is_exact_for_angles_of_any_size() -> None:
    alpha = torch.tensor([0.3, 1.0, 2.5]).view(1, 3, 1)
    taps = NativeTaps(torch.eye(3).unsqueeze(2), torch.zeros(3))
    for x in [numbers(1, 3, 4000) * scale for scale in (1e-3, 1.0, 100.0, 1e4, 1e5, 1e7)]:
        found = Convolution(taps, first=NativeSnake(alpha))(x)
        # Rounding the angle is float32's own affair: only what follows on it is looked at.
        angle = (x * alpha).double()
        expected = x.double() + angle.sin().square() / (alpha.double() + 1e-9)
        torch.testing.assert_close(found.double(), expected, atol=2e-6, rtol=2e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_so_and_reaches_no_earlier_column(bad: float) -> None:
    unit, x = Unit(8, 3), numbers(2, 8, 200)
    expected = unit.compiled(x)
    x[0, 5, 77] = bad
    found = unit.compiled(x)
    assert not found[0, :, 77].isfinite().any()
    assert torch.equal(found[0, :, :77], expected[0, :, :77])
    assert torch.equal(found[0, :, 96:], expected[0, :, 96:])  # behind the last tap
    assert torch.equal(found[1], expected[1])


@pytest.mark.parametrize("channels", [8, 96])
@pytest.mark.parametrize("sizes", [[1] * 130, [7, 60, 63], [129, 1], [2, 3, 125]])
def test_chunks_are_the_whole_in_every_bit(channels: int, sizes: list[int]) -> None:
    unit, x = Unit(channels, 9), numbers(2, channels, 130)
    room = torch.zeros(2, 10 + channels * unit.context)  # rows apart, as those of streams are
    before = room[:, 10:].view(2, channels, unit.context)
    pieces = [unit.compiled(piece, before) for piece in split(x, sizes)]
    assert torch.equal(torch.cat(pieces, dim=2), unit.compiled(x))
    newest = snake(x[..., -unit.context :], unit.alphas[0])
    torch.testing.assert_close(before.double(), newest, atol=1e-6, rtol=1e-6)
    assert not room[:, :10].any()


@pytest.mark.usefixtures("threads")
def test_neither_neighbours_nor_threads_nor_the_order_in_memory_change_a_bit() -> None:
    unit, x = Unit(24, 3), numbers(5, 24, 2100)
    together = unit.compiled(x)
    for row in range(5):
        assert torch.equal(unit.compiled(x[row : row + 1])[0], together[row])
    assert torch.equal(unit.compiled(x[:, :, :1000].contiguous()), together[:, :, :1000])
    assert torch.equal(unit.compiled(x.mT.contiguous().mT), together)

    unit, x = Unit(16, 9), numbers(2, 16, 9000)
    found = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        found.append(unit.compiled(x))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


def links(adds: list[int]) -> tuple[list[Convolution], list[Convolution]]:
    """Return a chain of steps that add so, and the same steps that add nothing.

    Where a step adds the input before its own, what lies between is wider, as ahead of attention.
    """
    chain, apart = [], []
    for place, added in enumerate(adds):
        wide = 40 if 2 in adds[place + 1 : place + 2] else 12
        taken = 40 if added == 2 else 12
        taps = NativeTaps(numbers(wide, taken, 3, seed=place) * (3 * taken) ** -0.5)
        chain.append(Convolution(taps, adds=added))
        apart.append(Convolution(taps))
    return chain, apart


ADDS = [[1], [1, 1, 1], [0, 2], [0, 0, 2, 1, 0, 2, 1, 0, 2, 1, 0], [0, 2] * 3, [0, 1, 1, 0, 2]]


@pytest.mark.parametrize("adds", ADDS)
def test_steps_of_a_chain_add_an_input_of_their_own_or_the_one_before_it(adds: list[int]) -> None:
    chain, apart = links(adds)
    inputs = [numbers(batch, 12, length, seed=length) for batch, length in [(2, 90), (1, 700)]]

    together = convolve(chain, inputs)

    for x, found in zip(inputs, together, strict=True):
        seen = [x]
        for step, added in zip(apart, adds, strict=True):
            y = step(seen[-1])
            seen.append(seen[-added] + y if added else y)
        assert torch.equal(found, seen[-1])
        assert torch.equal(convolve(chain, [x])[0], found)


def test_steps_of_a_chain_lengthen_what_the_next_ones_take() -> None:
    strides = [2, 1, 4, 1]
    steps = [
        Convolution(
            NativeTaps(numbers(12 * stride, 12, 2, seed=place) * 0.2),
            stride=stride,
            adds=int(stride == 1),
        )
        for place, stride in enumerate(strides)
    ]
    shapes = [(2, 17), (1, 300), (5, 1)]
    inputs = [numbers(batch, 12, length, seed=length) for batch, length in shapes]

    together = convolve(steps, inputs)

    for x, found in zip(inputs, together, strict=True):
        assert found.shape == (len(x), 12, 8 * x.shape[2])
        for step in steps:
            x = step(x)
        assert torch.equal(found, x)
