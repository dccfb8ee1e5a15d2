"""Name the convolutions of the codec's decoder at full size, and call the kernel on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from synth.engine.codec.layers import RESIDUAL_DILATIONS
from synth.engine.kernels.convolution import SnakeNumbers, Taps, Tile, choose_tile, convolve


@dataclass(frozen=True, slots=True)
class ConvLayer:
    """Name one kind of convolution.

    `columns` go in for each frame, and `outs` numbers come out for each column. A residual unit's
    narrow one `adds` to the residual stream. `snake` channels go into the next layer; 0 behind the
    last. The decoder has `count` of this size.
    """

    name: str
    ins: int
    outs: int
    taps: int
    columns: int
    dilation: int = 1
    count: int = 1
    adds: bool = False
    keeps: bool = False
    snake: int = 0

    @property
    def flops(self) -> int:
        """Return the operations of one frame in one of them."""
        return 2 * self.columns * self.taps * self.ins * self.outs


def conv_layers() -> Iterator[ConvLayer]:
    """Yield every kind of convolution of the full decoder once, in their order."""
    columns, width, units = 4, 1536, len(RESIDUAL_DILATIONS)
    yield ConvLayer("first", 1024, width, 7, columns, snake=width)
    for rate in (8, 8, 4, 2):
        yield ConvLayer(
            "longer", width, rate * width // 2, 2, columns, keeps=True, snake=width // 2
        )
        columns, width = columns * rate, width // 2
        widest = max(RESIDUAL_DILATIONS)
        yield ConvLayer("wide", width, width, 7, columns, dilation=widest, count=units, snake=width)
        yield ConvLayer(
            "narrow", width, width, 1, columns, count=units, adds=True, keeps=True, snake=width
        )
    yield ConvLayer("last", width, 1, 7, columns, keeps=True)


class ConvCall:
    """Call the kernel of one layer on the same inputs again and again; each allocates its results.

    Args:
        draw: returns random numbers of a shape, with `dtype` and `scale`.
    """

    def __init__(
        self,
        layer: ConvLayer,
        batch: int,
        frames: int,
        draw: Callable[..., Tensor],
        dtype: torch.dtype,
    ) -> None:
        self.shape = f"{batch} x {frames} frames"
        self.tile = choose_tile(batch * frames * layer.columns, layer.outs)
        length, products = frames * layer.columns, layer.taps * layer.ins
        weight = draw(layer.outs, layer.ins, layer.taps, dtype=torch.float32, scale=products**-0.5)
        bias = draw(layer.outs, dtype=torch.float32)
        self._taps = Taps.lay(weight, bias, dtype, layer.dilation)
        self._x = draw(batch, self._taps.left + length, layer.ins, dtype=dtype)
        sums = (batch, length, layer.outs)
        self._sums = sums if layer.keeps else None
        self._residual = draw(*sums, dtype=torch.float32) if layer.adds else None
        self._snake, self._active = None, None
        if layer.snake:
            alpha = draw(layer.snake, dtype=torch.float32).abs() + 0.5
            self._snake = SnakeNumbers(alpha, 1 / alpha)
            self._active = (batch, length * layer.outs // layer.snake, layer.snake)
        # Of each sum: read from the residual, written to it, written for the next layer.
        moved = 4 * layer.adds + 4 * layer.keeps + 2 * bool(layer.snake)
        self.num_bytes = (
            self._x.nbytes + self._taps.weight.nbytes + moved * batch * length * (layer.outs)
        )

    def __call__(self, tile: Tile | None = None) -> tuple[Tensor, ...]:
        return self.with_form(convolve, tile=tile)

    def with_form(self, form: Callable[..., None], **more: Tile | None) -> tuple[Tensor, ...]:
        """Return the sums and what the next layer reads, as far as the layer writes them."""
        x = self._x
        out = x.new_empty(self._sums, dtype=torch.float32) if self._sums else None
        active = x.new_empty(self._active) if self._active else None
        form(
            x, self._taps, residual=self._residual, out=out, snake=self._snake, active=active,
            **more,
        )  # fmt: skip
        return tuple(each for each in (out, active) if each is not None)
