"""Let compiled code turn latents into samples on a CPU: the same layers, several in a call."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.decoder_layers import DecoderBlock, WaveDecoder
from synth.engine.codec.layers import CausalConv1d, CausalConvTranspose1d
from synth.engine.codec.residual import ResidualUnit, Snake
from synth.engine.codec.stream_state import Carried
from synth.engine.heap import trim_heap
from synth.engine.native.build import NotCompiledError
from synth.engine.native.convolution import (
    NativeConvolution,
    NativeSnake,
    NativeTaps,
    convolve,
    convolve_each,
)

logger = logging.getLogger(__name__)


class CompiledWave:
    """Run a wave decoder's layers, whose weights are laid out anew in their modules.

    What a row of a batch gives does not depend, in one bit, on the rows beside it.
    """

    def __init__(self, decoder: WaveDecoder) -> None:
        """Lay out a decoder's weights; raise NotCompiledError, having changed nothing."""
        self._steps: list[NativeConvolution] = []
        self._modules: list[nn.Module] = []  # that each step's state is kept under
        first, *blocks, snake, last, _ = decoder.model
        self._add(cast("CausalConv1d", first))
        for block in cast("list[DecoderBlock]", blocks):
            before, narrowing, *units = block.block
            self._add_transposed(cast("Snake", before), cast("CausalConvTranspose1d", narrowing))
            for unit in cast("list[ResidualUnit]", units):
                self._add_unit(unit)
        self._add(cast("CausalConv1d", last), first=cast("Snake", snake), tanh=True)

    def __call__(self, x: Tensor) -> Tensor:
        """Map latents [B, latent_dim, T] to samples [B, 1, T * prod(rates)]."""
        return convolve(self._steps, x)

    def each(self, latents: Sequence[Tensor]) -> list[Tensor]:
        """Map each latents [1, latent_dim, T], whatever its T, to samples; all in one call."""
        return convolve_each(self._steps, latents, ())

    def advance(self, x: Tensor, carried: Carried) -> Tensor:
        """Map latents that go on from a state to samples, and move the state on in place."""
        before = [carried[module][0] if module in carried else None for module in self._modules]
        return convolve(self._steps, x, before)

    def _add(self, conv: CausalConv1d, *, first: Snake | None = None, tanh: bool = False) -> None:
        snake = None if first is None else NativeSnake(first.alpha)
        self._append(NativeConvolution(_taps(conv), first=snake, tanh=tanh), conv)

    def _add_unit(self, unit: ResidualUnit) -> None:
        first, wide, second, narrow = unit.layers
        step = NativeConvolution(
            _taps(wide),
            first=NativeSnake(first.alpha),
            second=NativeSnake(second.alpha),
            narrow=_taps(narrow),
        )
        self._append(step, wide)

    def _add_transposed(self, snake: Snake, conv: CausalConvTranspose1d) -> None:
        """Add a transposed convolution as one whose outputs are each stride's columns in turn."""
        weight, stride = conv.conv.weight, conv.stride  # [in, out, taps * stride]
        channels, outputs, kernel = weight.shape
        assert kernel % stride == 0 and conv.conv.bias is not None
        # The first columns of a kernel meet the newest input, which is the last tap.
        taps = weight.view(channels, outputs, kernel // stride, stride).flip(2)
        wide = taps.permute(1, 3, 0, 2).reshape(outputs * stride, channels, kernel // stride)
        laid = NativeTaps(wide, conv.conv.bias.repeat_interleave(stride))
        _hand_over(conv, laid)
        step = NativeConvolution(laid, first=NativeSnake(snake.alpha), stride=stride)
        self._append(step, conv)

    def _append(self, step: NativeConvolution, module: nn.Module) -> None:
        self._steps.append(step)
        self._modules.append(module)


def compile_wave(decoder: CodecDecoder) -> None:
    """Let compiled code run a decoder's layers where there is some for it: float32 on a CPU.

    Their weights are then in its layout, and nothing else can run them.
    """
    if decoder.device.type != "cpu" or decoder.dtype is not torch.float32:
        return
    try:
        decoder.decoder.compiled = CompiledWave(decoder.decoder)
    except NotCompiledError as error:
        logger.info("PyTorch turns codes into audio, at half the speed: %s", error)


def _taps(conv: CausalConv1d) -> NativeTaps:
    inner = conv.conv
    assert conv.stride == 1 and inner.groups == 1 and inner.bias is not None
    taps = NativeTaps(inner.weight, inner.bias, step=inner.dilation[0])
    _hand_over(conv, taps)
    return taps


def _hand_over(conv: CausalConv1d | CausalConvTranspose1d, taps: NativeTaps) -> None:
    """Let a module hold its weights as they are laid out: memory for one copy is enough."""
    conv.conv.weight = nn.Parameter(taps.weight, requires_grad=False)
    conv.conv.bias = nn.Parameter(taps.bias, requires_grad=False)
    trim_heap()
