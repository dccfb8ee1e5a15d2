"""Hold a convolution, with what goes before and behind it, in the form of the compiled code."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.native.library import (
    CodebooksC,
    ConvolutionC,
    DepthwiseC,
    Library,
    NormC,
    SnakeC,
    TapsC,
    WindowC,
    native_library,
)


class Then(IntEnum):
    """Say what becomes of the sums of a convolution's taps; as in the compiled code."""

    SUMS, SNAKES, GATES, GELUS, ROTATED, TANGENTS = range(6)


class NativeSnake:
    """Hold the numbers of a Snake, `alpha` [1, D, 1]."""

    def __init__(self, alpha: Tensor) -> None:
        self._alpha = alpha.detach().float().flatten().contiguous()
        self._inverse = 1 / (self._alpha + 1e-9)
        self.c = SnakeC(_address(self._alpha), _address(self._inverse))


class NativeNorm:
    """Hold a norm of columns: of the root mean square; with a bias of mean and deviation."""

    def __init__(self, weight: Tensor, eps: float, *, bias: Tensor | None = None) -> None:
        self._weight = weight.detach().float().contiguous()
        self._bias = None if bias is None else bias.detach().float().contiguous()
        at = None if self._bias is None else _address(self._bias)
        self.c = NormC(_address(self._weight), at, eps)


class NativeDepthwise:
    """Hold a convolution of each channel on its own, `weight` [D, 1, taps] and `bias` [D]."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight = weight.detach().float().contiguous()
        self._bias = bias.detach().float().contiguous()
        self.context = weight.shape[2] - 1
        self.c = DepthwiseC(_address(self._weight), _address(self._bias), weight.shape[2])


class NativeCodebooks:
    """Hold tables [size, width] one after the other; a code above its table means the last row."""

    def __init__(self, tables: Sequence[Tensor]) -> None:
        self._table = torch.cat([table.detach().float() for table in tables])
        sizes = [len(table) for table in tables]
        begins = list(accumulate(sizes, initial=0))[:-1]
        self._begins, self._sizes = torch.tensor(begins), torch.tensor(sizes)
        self.tables = torch.split(self._table, sizes)
        addresses = map(_address, (self._table, self._begins, self._sizes))
        self.c = CodebooksC(*addresses, len(tables), self._table.shape[1])


@dataclass(frozen=True, slots=True)
class NativeWindow:
    """Let each column see the newest `size` ones, its own included, with so many heads of 64."""

    heads: int
    size: int

    @property
    def c(self) -> WindowC:
        return WindowC(heads=self.heads, size=self.size)


class NativeTaps:
    """Hold a causal convolution's weight [out, in, taps] and bias [out], laid out.

    Outputs lie side by side in groups whose sums stay in registers; the last group is filled up.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, step: int = 1) -> None:
        """Lay out a weight; raise NotCompiledError where there is no compiled code.

        Args:
            bias: None stands for zeros.
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
        own = filled.new_zeros(self.num_outputs) if bias is None else bias.detach().float()
        self.bias = F.pad(own, (0, missing)).contiguous()
        addresses = map(_address, (self.weight, self.bias))
        self.c = TapsC(self.channels, self.num_outputs, self.taps, step, *addresses)


class NativeConvolution:
    """Run a causal convolution in one pass over memory with what goes before and behind it.

    Before it: `first`, a Snake of the input; a convolution of each channel of its own; rows of
    codebooks, where the input is codes [B, count, T]; or what a window shows, where the input is
    queries, keys and values [B, 3 * in, T]; then a norm. Behind it: `then`, where Snakes are those
    of `second`, of gates and what they open only the gates are left, and rotated are the queries
    and keys of `first`'s window; with `narrow` a convolution of one tap; with `stride` so many
    neighbouring outputs become the columns of one; then the input is added, or the one before it,
    where `adds` is 1 or 2. An output depends, in each bit, on its own row of the batch alone.
    """

    def __init__(
        self,
        wide: NativeTaps,
        *,
        first: NativeSnake | NativeDepthwise | NativeCodebooks | NativeWindow | None = None,
        norm: NativeNorm | None = None,
        then: Then = Then.SUMS,
        second: NativeSnake | None = None,
        narrow: NativeTaps | None = None,
        stride: int = 1,
        adds: int = 0,
    ) -> None:
        self.wide, self._kept = wide, (first, norm, second, narrow)
        last = wide if narrow is None else narrow
        self.num_outputs, self.stride, self.adds = last.num_outputs // stride, stride, adds
        self.window = first if isinstance(first, NativeWindow) else None
        self.context = first.context if isinstance(first, NativeDepthwise) else wide.context
        parts = {
            "first": first if isinstance(first, NativeSnake) else None,
            "depthwise": first if isinstance(first, NativeDepthwise) else None,
            "codebooks": first if isinstance(first, NativeCodebooks) else None,
            "window": self.window,
            "norm": norm,
            "second": second,
            "narrow": narrow,
        }
        found = {name: part.c for name, part in parts.items() if part is not None}
        self.form = ConvolutionC(wide=wide.c, stride=stride, then=int(then), **found)
        self.scratch = wide.library.scratch(self.form)


@dataclass(frozen=True, slots=True)
class Ahead:
    """Say where in memory lies what comes ahead of an input, to be moved on in place.

    `places` are each step's address of the first row of the batch, None where a step looks at
    nothing; `stride` the floats from row to row. Of a window with H heads and `size` columns they
    are keys and behind them values, [H, size - 1, 64] each; `frames`, int64 [B], counts the columns
    so far, beyond which there are none.
    """

    places: Sequence[int | None]
    stride: int
    frames: Tensor | None = None


def convolve(
    steps: Sequence[NativeConvolution],
    inputs: Sequence[Tensor],
    ahead: Ahead | None = None,
    *,
    rope: Tensor | None = None,
) -> list[Tensor]:
    """Run convolutions one after the other in one call, which leaves Python to other threads.

    Args:
        inputs: [B, in, T] of the first step, of different B and T.
        ahead: of an input that is the only one; None stands for zeros.
        rope: cos and sin of each row's columns, contiguous float32 [B or 1, S, 32, 2], S at least
            T; for steps with windows.

    Returns:
        What the last step gives for each input, [B, out, T times all strides].
    """
    outs = convolve_arrays(steps, [x.contiguous().numpy() for x in inputs], ahead, rope=rope)
    return [torch.from_numpy(out) for out in outs]


def convolve_arrays(
    steps: Sequence[NativeConvolution],
    inputs: Sequence[npt.NDArray[Any]],
    ahead: Ahead | None = None,
    *,
    rope: Tensor | None = None,
) -> list[npt.NDArray[np.float32]]:
    """Do so with contiguous arrays; as `convolve`.

    In between there is no operation of PyTorch: each would leave Python to other threads and wait
    for them, up to half a millisecond.
    """
    assert len(inputs) == 1 or ahead is None
    assert all(x.flags.c_contiguous for x in inputs)
    times = list(accumulate((step.stride for step in steps), mul, initial=1))
    targets = _targets(steps)
    columns = max(x.shape[0] * x.shape[2] for x in inputs)
    sizes = [0] * 3  # floats of a room for a column of an input; the last step needs none
    for index, step in enumerate(steps[:-1]):
        room = targets[index]
        sizes[room] = max(sizes[room], step.num_outputs * times[index + 1])
    rooms = [np.empty(columns * size, np.float32) for size in sizes]
    threads = torch.get_num_threads()
    scratch = np.empty(threads * max(step.scratch for step in steps), np.float32)
    width, longer = steps[-1].num_outputs, times[-1]
    outs = [np.empty((x.shape[0], width, x.shape[2] * longer), np.float32) for x in inputs]
    addresses, work = [room.ctypes.data for room in rooms], scratch.ctypes.data
    turns = None if rope is None else rope.data_ptr()
    # Other threads may run the same steps: each call has copies of its own.
    forms = b"".join(bytes(step.form) for step in steps)
    calls = (ConvolutionC * (len(steps) * len(inputs))).from_buffer_copy(forms * len(inputs))
    for number, (x, out) in enumerate(zip(inputs, outs, strict=True)):
        sources = [x.ctypes.data]  # of each step so far
        for index, step in enumerate(steps):
            call = calls[number * len(steps) + index]
            call.batch, call.length, call.threads = x.shape[0], x.shape[2] * times[index], threads
            call.scratch, call.x = work, sources[-1]
            if step.adds:
                call.added = sources[-step.adds]
            if step.window is not None and rope is not None:
                call.window.rope = turns
                call.window.rope_stride = rope.stride(0) if len(rope) > 1 else 0
            call.out = out.ctypes.data if index == len(steps) - 1 else addresses[targets[index]]
            sources.append(call.out)
            if ahead is not None and (place := ahead.places[index]) is not None:
                call.before, call.before_stride = place, ahead.stride
                if step.window is not None and ahead.frames is not None:
                    call.window.frames = ahead.frames.data_ptr()
    steps[0].wide.library.convolve(calls)
    return outs


def _targets(steps: Sequence[NativeConvolution]) -> list[int]:
    """Return which of up to three rooms each step fills: one that nobody reads any more."""
    filled: list[int] = []
    for index in range(len(steps)):
        # What this step reads, and what the next one adds besides reading this step's outputs.
        read = {index - 1, index - steps[index].adds}
        if index + 1 < len(steps):
            read.add(index + 1 - steps[index + 1].adds)
        busy = {filled[place] for place in read if 0 <= place < index}
        filled.append(next(room for room in range(3) if room not in busy))
    return filled


def _address(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())
