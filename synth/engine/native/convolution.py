"""Hold a convolution with its Snakes in the form of the compiled code, and run it."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p
from itertools import accumulate
from operator import mul

import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.native.library import ConvolutionC, Library, SnakeC, TapsC, native_library


class NativeSnake:
    """Hold the numbers of a Snake, `alpha` [1, D, 1]."""

    def __init__(self, alpha: Tensor) -> None:
        self._alpha = alpha.detach().float().flatten().contiguous()
        self._inverse = 1 / (self._alpha + 1e-9)
        self.c = SnakeC(_address(self._alpha), _address(self._inverse))


class NativeTaps:
    """Hold a causal convolution's weight [out, in, taps] and bias [out], laid out.

    Outputs lie side by side in groups whose sums stay in registers; the last group is filled up.
    """

    def __init__(self, weight: Tensor, bias: Tensor, *, step: int = 1) -> None:
        """Lay out a weight; raise NotCompiledError where there is no compiled code.

        Args:
            step: columns from tap to tap, known as dilation.
        """
        self.library: Library = native_library()
        self.num_outputs, self.channels, self.taps = weight.shape
        self.context = (self.taps - 1) * step
        group = self.library.outputs
        missing = -self.num_outputs % group
        filled = weight.detach().float()
        if missing:  # else it would be copied twice
            filled = F.pad(filled, (0, 0, 0, 0, 0, missing))
        groups = filled.view(-1, group, self.channels, self.taps)
        self.weight = groups.permute(0, 2, 3, 1).contiguous()
        self.bias = F.pad(bias.detach().float(), (0, missing)).contiguous()
        self.c = TapsC(
            self.channels,
            self.num_outputs,
            self.taps,
            step,
            _address(self.weight),
            _address(self.bias),
        )


class NativeConvolution:
    """Run Snake and a causal convolution in one pass over memory, and what follows on it.

    With `narrow` that is a second Snake and a convolution of one tap, whose outputs are added to
    the input; with `stride` so many neighbouring outputs become the columns of one; with `tanh`
    each output's. An output depends, in each bit, on its own row of the batch alone.
    """

    def __init__(
        self,
        wide: NativeTaps,
        *,
        first: NativeSnake | None = None,
        second: NativeSnake | None = None,
        narrow: NativeTaps | None = None,
        stride: int = 1,
        tanh: bool = False,
    ) -> None:
        self.wide, self._kept = wide, (first, second, narrow)
        self.num_outputs, self.stride = wide.num_outputs // stride, stride
        self.form = ConvolutionC(
            wide=wide.c,
            stride=stride,
            is_tanh=tanh,
            **{
                name: part.c
                for name, part in (("first", first), ("second", second), ("narrow", narrow))
                if part is not None
            },
        )
        self.scratch = wide.library.scratch(self.form)

    def __call__(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Map float32 [B, in, T] to [B, out, T * stride]; as `convolve`."""
        return convolve([self], x, [before])


def convolve(
    steps: Sequence[NativeConvolution], x: Tensor, before: Sequence[Tensor | None] = ()
) -> Tensor:
    """Run convolutions one after the other in one call, which leaves Python to other threads.

    Args:
        x: float32 [B, in, T] of the first one.
        before: for each step float32 [B, in, context], what comes of its first Snake ahead of its
            input, each row contiguous; then what lies ahead of the next columns. None stands for
            zeros, as does an empty sequence for all steps.

    Returns:
        What the last one gives, [B, out, T times all strides].
    """
    (out,) = convolve_each(steps, [x], before)
    return out


def convolve_each(
    steps: Sequence[NativeConvolution], inputs: Sequence[Tensor], before: Sequence[Tensor | None]
) -> list[Tensor]:
    """Do so with several inputs of different lengths, all in one call; as `convolve`.

    Args:
        before: of an input that is the only one.
    """
    assert len(inputs) == 1 or not before
    inputs = [x.contiguous() for x in inputs]
    times = list(accumulate((step.stride for step in steps), mul, initial=1))
    rows = zip(steps, times[1:], strict=True)
    widths = [step.num_outputs * columns for step, columns in rows]  # for each column of an input
    columns = [x.shape[0] * x.shape[2] for x in inputs]
    rooms = [torch.empty(max(columns) * max(widths[parity:-1:2], default=0)) for parity in (0, 1)]
    threads = torch.get_num_threads()
    scratch = torch.empty(threads * max(step.scratch for step in steps))
    outs = [torch.empty(x.shape[0], steps[-1].num_outputs, x.shape[2] * times[-1]) for x in inputs]
    # Other threads may run the same steps: each call has copies of its own.
    forms = b"".join(bytes(step.form) for step in steps)
    calls = (ConvolutionC * (len(steps) * len(inputs))).from_buffer_copy(forms * len(inputs))
    for number, (x, out) in enumerate(zip(inputs, outs, strict=True)):
        assert x.dtype is torch.float32 and x.shape[1] == steps[0].wide.channels
        own = range(number * len(steps), (number + 1) * len(steps))
        source = x.data_ptr()
        for index, (place, step) in enumerate(zip(own, steps, strict=True)):
            call = calls[place]
            call.batch, call.length, call.threads = x.shape[0], x.shape[2] * times[index], threads
            call.scratch, call.x = scratch.data_ptr(), source
            target = out if index == len(steps) - 1 else rooms[index % 2]
            source = call.out = target.data_ptr()
            if before and (ahead := before[index]) is not None:
                assert ahead.shape == (x.shape[0], step.wide.channels, step.wide.context)
                assert ahead[0].is_contiguous()
                call.before, call.before_stride = ahead.data_ptr(), ahead.stride(0)
    steps[0].wide.library.convolve(calls)
    return outs


def _address(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())
