"""Turn latents into samples by one kernel: each convolution with what lies before the next one.

Activations lie channels-last in 16 bits, each once through its Snake; sums and what residual units
add to are float32.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from synth.engine.codec.layers import CausalConv1d, CausalConvTranspose1d, Past, ResidualUnit, Snake
from synth.engine.codec.stages import DecoderBlock, WaveDecoder

if TYPE_CHECKING:
    from synth.engine.kernels.convolution import SnakeNumbers, Taps

KERNEL = "synth.engine.kernels.convolution"  # it imports triton, which is not everywhere
# float16 has the mantissa that TF32 has, in half the bytes; what it cannot hold is its largest.
OPERANDS = {"tf32": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """Hold one convolution and what is done with its sums.

    `rate` columns come out for each that goes in. The sums are added to the residual where the step
    `adds`, kept as the residual where it `keeps`, and go through `snake` into the next step.
    """

    taps: Taps
    conv: CausalConv1d | CausalConvTranspose1d
    rate: int = 1
    adds: bool = False
    keeps: bool = False
    snake: SnakeNumbers | None = None

    @property
    def ins(self) -> int:
        return self.taps.weight.shape[0] // self.taps.taps

    def room(self, batch: int, length: int, dtype: torch.dtype, past: Past | None) -> Tensor:
        """Return room for the step's inputs, [B, left + length, in], with those before in place."""
        left = self.taps.left
        room = self.taps.bias.new_empty(batch, left + length, self.ins, dtype=dtype)
        before = None if past is None else past.inputs(self.conv)
        if before is None:
            room[:, :left] = 0
        else:
            room[:, :left] = before.transpose(1, 2)
        return room

    def carry(self, x: Tensor, past: Past | None) -> None:
        """Leave the newest inputs for the chunk after this one."""
        before = None if past is None else past.inputs(self.conv)
        if past is not None and before is not None:
            past.keep(before, x.transpose(1, 2))


class FusedLinear(nn.Module):
    """Map vectors as a linear layer does, which it replaces: products of 16 bits, float32 sums."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        super().__init__()
        self._kernel, self._dtype = importlib.import_module(KERNEL), dtype
        bias = linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias
        self._taps = self._kernel.Taps.lay(linear.weight[:, :, None], bias, dtype)
        self.weight = nn.Parameter(self._taps.weight, requires_grad=False)
        self.bias = nn.Parameter(self._taps.bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map float32 [..., in] to [..., out]."""
        # Of one stream's columns this is a view that is still turned round.
        rows = self._kernel.to_operands(x, self._dtype).reshape(1, -1, x.shape[-1]).contiguous()
        out = x.new_empty(1, rows.shape[1], self._taps.outs)
        self._kernel.convolve(rows, self._taps, out=out)
        return out.view(*x.shape[:-1], -1)


def fuse_linears(module: nn.Module, dtype: torch.dtype) -> None:
    """Replace the float32 linear layers inside a module; other ones are PyTorch's business."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear) and child.weight.dtype is torch.float32:
                setattr(parent, name, FusedLinear(child, dtype))


class FusedWaves:
    """Run a wave decoder's layers, whose weights are laid out anew in their modules."""

    def __init__(self, decoder: WaveDecoder, dtype: torch.dtype) -> None:
        """Lay out a decoder's weights in the operands' dtype, one of `OPERANDS`."""
        self._kernel, self._dtype = importlib.import_module(KERNEL), dtype
        self._steps = _lay_steps(decoder, dtype)

    def __call__(self, latents: Tensor, past: Past | None) -> Tensor:
        """Map [B, latent_dim, T] to samples float32 [B, 1, T * prod(rates)]."""
        batch, _, length = latents.shape
        x = self._steps[0].room(batch, length, self._dtype, past)
        numbers = self._kernel.to_operands(latents.transpose(1, 2), self._dtype)
        x[:, self._steps[0].taps.left :] = numbers
        wide: Tensor | None = None
        for step, following in zip(self._steps, [*self._steps[1:], None], strict=True):
            step.carry(x, past)
            room = active = None
            if following is not None:
                room = following.room(batch, length * step.rate, self._dtype, past)
                active = room[:, following.taps.left :]
            if step.keeps and not step.adds:
                wide = step.taps.bias.new_empty(batch, length, step.taps.outs)
            out = wide if step.keeps else None
            residual = wide if step.adds else None  # each program reads it where it writes
            self._kernel.convolve(
                x, step.taps, residual=residual, out=out, snake=step.snake, active=active
            )
            length *= step.rate
            if step.adds and not step.keeps:
                wide = None
            if wide is not None:
                wide = wide.view(batch, length, -1)  # of a transposed convolution, its phases
            if room is not None:
                x = room
        assert wide is not None
        return wide.tanh_().transpose(1, 2)


def _lay_steps(decoder: WaveDecoder, dtype: torch.dtype) -> list[_Step]:
    """Lay out the convolutions in their order; the Snake before each is done by the one before."""
    steps: list[_Step] = []
    for step, before in _convolutions(decoder, importlib.import_module(KERNEL), dtype):
        if before is not None:
            steps[-1] = replace(steps[-1], snake=before)
        steps.append(step)
    return steps


def _convolutions(
    decoder: WaveDecoder, kernel: ModuleType, dtype: torch.dtype
) -> Iterator[tuple[_Step, SnakeNumbers | None]]:
    """Yield each convolution as a step, with the numbers of the Snake that stands before it."""

    def snake(module: nn.Module) -> SnakeNumbers:
        alpha = cast("Snake", module).alpha.float().flatten()
        numbers: SnakeNumbers = kernel.SnakeNumbers(alpha, 1 / (alpha + 1e-9))
        return numbers

    def plain(module: nn.Module, *, adds: bool = False, keeps: bool = False) -> _Step:
        conv = cast("CausalConv1d", module)
        inner = conv.conv
        assert conv.stride == 1 and inner.groups == 1 and inner.bias is not None
        taps = kernel.Taps.lay(inner.weight, inner.bias, dtype, dilation=inner.dilation[0])
        return _Step(_hand_over(inner, taps), conv, adds=adds, keeps=keeps)

    def transposed(module: nn.Module) -> _Step:
        conv = cast("CausalConvTranspose1d", module)
        inner, rate = conv.conv, conv.stride
        assert inner.bias is not None
        # Of an output's phase each stride-th number meets an input; the first one is the newest.
        phases = inner.weight.view(*inner.weight.shape[:2], -1, rate).flip(
            2
        )  # [in, out, taps, rate]
        weight = phases.permute(3, 1, 0, 2).flatten(0, 1)
        taps = kernel.Taps.lay(weight, inner.bias.repeat(rate), dtype)
        return _Step(_hand_over(inner, taps), conv, rate=rate, keeps=True)

    first, *blocks, final, last, _ = decoder.model
    yield plain(first), None
    for block in cast("list[DecoderBlock]", blocks):
        before, narrowing, *units = block.block
        yield transposed(narrowing), snake(before)
        for unit in cast("list[ResidualUnit]", units):
            own, wide, second, narrow = unit.layers
            yield plain(wide), snake(own)
            # Behind the last unit of a block nobody adds to the sums.
            yield plain(narrow, adds=True, keeps=unit is not units[-1]), snake(second)
    yield plain(last, keeps=True), snake(final)


def _hand_over(module: nn.Conv1d | nn.ConvTranspose1d, taps: Taps) -> Taps:
    """Let a module hold its weights as they are laid out: memory for one copy is enough."""
    module.weight = nn.Parameter(taps.weight, requires_grad=False)
    module.bias = nn.Parameter(taps.bias, requires_grad=False)
    return taps
