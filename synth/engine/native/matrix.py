"""Hold weight matrices in the layout of the compiled code, and multiply with them."""

from __future__ import annotations

from ctypes import c_void_p

import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.native.library import (
    BFLOAT16,
    FLOAT32,
    GATE,
    INT8,
    KEEP,
    LANES,
    Library,
    MatrixC,
    native_library,
)

_GROUPS = {FLOAT32: 1, BFLOAT16: 2, INT8: 4}  # numbers of one output that lie side by side
_STEP = 4  # columns are filled up to a multiple of it
_TINY = 1e-30  # the range of an output of zeros


class NativeLinear:
    """Multiply with a weight [out, in] laid out in panels of 16 outputs.

    A bfloat16 or float32 weight keeps its numbers. In int8 each output has a scale of its own, as
    each row that is multiplied gets one; sums are whole numbers, so that no order matters. What a
    row gives does not depend, in one bit, on the rows beside it.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, int8: bool = False) -> None:
        """Lay out a weight; raise NotCompiledError where there is no compiled code."""
        self.library: Library = native_library()
        self._lay_out(weight.detach(), bias, int8=int8)

    def _lay_out(self, weight: Tensor, bias: Tensor | None, *, int8: bool) -> None:
        rows, columns = weight.shape
        self.dtype = torch.float32 if int8 else weight.dtype
        kind = INT8 if int8 else BFLOAT16 if weight.dtype == torch.bfloat16 else FLOAT32
        self.scale = self.sums = None
        if int8:
            wide = weight.float()
            scale = wide.abs().amax(1).clamp_(min=_TINY) / 127
            weight = (wide / scale.unsqueeze(1)).round_().to(torch.int8)
            self.scale = _padded(scale)
            self.sums = _padded(weight.sum(1, dtype=torch.int32))
        self.weight = _in_panels(weight, _GROUPS[kind])
        self.bias = None if bias is None else _padded(bias.detach().float())
        self.rows, self.columns = rows, columns
        self.num_bytes = self.weight.numel() * self.weight.element_size()
        self.c = MatrixC(
            kind=kind,
            rows=rows,
            columns=columns,
            padded=-(-columns // _STEP) * _STEP,
            weight=self.weight.data_ptr(),
            scale=_address(self.scale),
            sums=_address(self.sums),
            bias=_address(self.bias),
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out], in x's dtype."""
        return self._multiplied(x, KEEP)[..., : self.rows]

    def _multiplied(self, x: Tensor, use: int) -> Tensor:
        """Return products of x [..., in] in x's dtype, the outputs filled up to whole panels."""
        wide = x.reshape(-1, self.columns).to(torch.float32).contiguous()
        outputs = -(-self.rows // LANES) * LANES // (2 if use == GATE else 1)
        out = torch.empty(wide.shape[0], outputs)
        self.library.multiply(
            self.c,
            wide.data_ptr(),
            wide.shape[0],
            out.data_ptr(),
            use=use,
            rounds=self.dtype == torch.bfloat16,
            threads=torch.get_num_threads(),
        )
        return out.to(x.dtype).view(*x.shape[:-1], outputs)


class NativeGate(NativeLinear):
    """Hold gates and what they let through, [H, in] each, panel by panel in turns.

    `gated` is a feed-forward's inner half: silu(gate) * up, rounded as PyTorch's steps are.
    """

    def __init__(self, gate: Tensor, up: Tensor, *, int8: bool = False) -> None:
        """Lay out both matrices together; errors as for NativeLinear."""
        self.library = native_library()
        self.hidden = gate.shape[0]
        columns = gate.shape[1]
        panels = [_rows_padded(each.detach()).view(-1, LANES, columns) for each in (gate, up)]
        self._lay_out(torch.stack(panels, dim=1).flatten(0, 2), None, int8=int8)

    def __call__(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., 2 * H], the gates first."""
        both = super().__call__(x)
        halves = both.view(*both.shape[:-1], -1, 2, LANES).transpose(-2, -3)
        return halves.flatten(-2)[..., : self.hidden].flatten(-2)

    def gated(self, x: Tensor) -> Tensor:
        """Map [..., in] to silu(gate) * up, [..., H]."""
        return self._multiplied(x, GATE)[..., : self.hidden]


def _in_panels(weight: Tensor, group: int) -> Tensor:
    """Return a weight as [panels, columns / group, 16, group], filled up with zeros."""
    columns = -(-weight.shape[1] // _STEP) * _STEP
    if columns != weight.shape[1]:
        weight = F.pad(weight, (0, columns - weight.shape[1]))
    panels = _rows_padded(weight).view(-1, LANES, columns // group, group)
    return panels.permute(0, 2, 1, 3).contiguous()


def _rows_padded(weight: Tensor) -> Tensor:
    missing = -weight.shape[0] % LANES
    return F.pad(weight, (0, 0, 0, missing)) if missing else weight


def _padded(values: Tensor) -> Tensor:
    return F.pad(values, (0, -values.shape[0] % LANES)).contiguous()


def _address(tensor: Tensor | None) -> c_void_p | None:
    return None if tensor is None else c_void_p(tensor.data_ptr())
