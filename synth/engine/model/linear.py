"""Multiply by weight matrices in the form that suits the processor, chosen once when loading.

`F.linear` on a CPU packs the weight anew at every call; the packed forms do it once. All forms map
[..., in] to [..., out]; a packed form holds no second copy of its weight.
"""

from __future__ import annotations

import enum
import math
import warnings
from collections.abc import Callable
from ctypes import c_void_p
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.errors import InvalidSpecError
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

Linear = Callable[[Tensor], Tensor]
_ENDS = (-1.0, 1.0)
SMALLEST_RANGE = 1e-30  # the range of a vector, or of an output, of zeros
_GROUPS = {FLOAT32: 1, BFLOAT16: 2, INT8: 4}  # numbers of one output that lie side by side
_STEP = 4  # columns are filled up to a multiple of it
_ROWS_AT_ONCE = 1024  # of a matrix while it is rounded
_LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}  # numbers of 8 bits
# Inputs of up to so many rows keep their numbers; those of more are rounded to fp8 with the matrix.
KEPT_ROWS = 16


class LinearForm(enum.StrEnum):
    """Name how weight matrices are held and multiplied."""

    PLAIN = "plain"  # F.linear over the weight as it was loaded
    PACKED = "packed"  # oneDNN's own layout, in the weight's dtype
    INT8 = "int8"  # 8 bits, with one scale per output row and one per input vector
    INT8_ROWS = "int8-rows"  # 8 bits and one scale per output row; inputs keep their numbers
    FP8_ROWS = "fp8-rows"  # floats of 8 bits and one scale per output row; many inputs also
    NATIVE = "native"  # our own layout, in the weight's dtype, for compiled frames
    NATIVE_INT8 = "native-int8"  # the same in 8 bits

    @property
    def eight_bits(self) -> str | None:
        """Return the setting that asks for numbers of 8 bits as these, None for wider ones."""
        if self is LinearForm.FP8_ROWS:
            return "fp8"
        is_int8 = self in (LinearForm.INT8, LinearForm.INT8_ROWS, LinearForm.NATIVE_INT8)
        return "int8" if is_int8 else None

    @property
    def is_native(self) -> bool:
        return self in (LinearForm.NATIVE, LinearForm.NATIVE_INT8)


def make_linear(weight: Tensor, bias: Tensor | None, form: LinearForm) -> Linear:
    """Return the product with a weight [out, in] (and bias [out]) in a form."""
    if form.is_native:
        return NativeLinear(weight, bias, int8=form is LinearForm.NATIVE_INT8)
    if form is LinearForm.PACKED:
        return PackedLinear(weight, bias)
    if form is LinearForm.INT8:
        return Int8Linear(weight, bias)
    if form in (LinearForm.INT8_ROWS, LinearForm.FP8_ROWS):
        is_fp8 = form is LinearForm.FP8_ROWS
        return ScaledLinear(weight, bias, torch.float8_e4m3fn if is_fp8 else torch.int8)
    return PlainLinear(weight, bias)


class PlainLinear:
    """Multiply with the weight as it is."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class ScaledRows:
    """Hold a matrix in 8 bits: `numbers` [out, in] and what each row is multiplied by.

    `numbers` are int8, the largest of each row 127 or -127, or float8_e4m3fn, the largest 448 or
    -448; `scale` is float32 [out].
    """

    numbers: Tensor
    scale: Tensor

    @classmethod
    def of(cls, weight: Tensor, dtype: torch.dtype = torch.int8) -> ScaledRows:
        """Return a matrix [out, in] with each row rounded to 8 bits, some rows at a time."""
        scale = weight.new_empty(weight.shape[0], dtype=torch.float32)
        numbers = weight.new_empty(weight.shape, dtype=dtype)
        for start in range(0, weight.shape[0], _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            wide = weight[part].float()
            scale[part] = wide.abs().amax(1).clamp_(min=SMALLEST_RANGE) / _LARGEST[dtype]
            wide = wide / scale[part].unsqueeze(1)  # a float32 matrix itself stays as it is
            numbers[part] = wide if dtype.is_floating_point else wide.round_()
        return cls(numbers, scale)

    @property
    def is_fp8(self) -> bool:
        return self.numbers.dtype is torch.float8_e4m3fn

    @property
    def shape(self) -> torch.Size:
        return self.numbers.shape

    def is_contiguous(self) -> bool:
        return self.numbers.is_contiguous()


class ScaledLinear:
    """Multiply with a matrix in 8 bits whose rows have a scale.

    Inputs keep their numbers, but in fp8 those of more than KEPT_ROWS rows, each of which gets a
    scale as the matrix's rows have. Sums are float32, are scaled, and with the bias are rounded to
    the input's dtype once.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype = torch.int8
    ) -> None:
        self.weight = ScaledRows.of(weight.detach(), dtype)
        self.bias = None if bias is None else bias.detach()
        self.multiply: Callable[[Tensor, ScaledRows, Tensor | None], Tensor] = multiply_scaled

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        return self.multiply(rows, self.weight, self.bias).view(*x.shape[:-1], -1)


def multiply_scaled(
    x: Tensor, weight: ScaledRows, bias: Tensor | None, wide: Tensor | None = None
) -> Tensor:
    """Return x [B, in] @ weight.T, as `ScaledLinear` says, with PyTorch's own products.

    `wide` are the matrix's numbers in float32 where somebody keeps them.
    """
    rounded = ScaledRows.of(x, weight.numbers.dtype) if rounds_inputs(weight, len(x)) else None
    inputs = x if rounded is None else rounded.numbers
    numbers = weight.numbers.float() if wide is None else wide
    total = F.linear(inputs.float(), numbers).mul_(weight.scale)
    if rounded is not None:
        total.mul_(rounded.scale.unsqueeze(1))
    return (total if bias is None else total.add_(bias.float())).to(x.dtype)


def rounds_inputs(weight: ScaledRows, rows: int) -> bool:
    """Return whether so many rows of inputs are rounded to 8 bits as the matrix is."""
    return weight.is_fp8 and rows > KEPT_ROWS


class PackedLinear:
    """Multiply with a weight that oneDNN has laid out for its kernels once."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
        self._bias = None if bias is None else bias.detach()
        # The overload itself, so that it is not looked for at every call.
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = self._multiply(x, self._packed, self._bias, "none", [], "")
        return out


class Int8Linear:
    """Multiply in 8 bits: one scale per output row of the weight, one per input vector.

    An input vector is scaled to the range of -1 to 1 and gets both ends of it as two more numbers,
    with weights of zero: the library takes one range for all vectors at once, and this way it is
    always the same one, so that what a stream gets does not depend on its neighbours. Inputs have
    7 bits, as without VNNI two products are added in 16 bits. Input and output are float32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Quantise and pack; raise InvalidSpecError where PyTorch has no kernels for it."""
        wide = F.pad(weight.detach().float(), (0, len(_ENDS)))
        scale = wide.abs().amax(1).clamp_(min=SMALLEST_RANGE) / 127
        self._packed = _pack_int8(wide, scale)
        self._bias = None if bias is None else bias.detach().float()
        self._ends = torch.tensor(_ENDS)
        self.num_bytes = wide.numel()

    def __call__(self, x: Tensor) -> Tensor:
        """Map float32 [..., in] to float32 [..., out]."""
        largest = torch.linalg.vector_norm(x, ord=math.inf, dim=-1, keepdim=True)
        largest.clamp_(min=SMALLEST_RANGE)
        scaled = torch.cat([x / largest, self._ends.expand(*x.shape[:-1], -1)], dim=-1)
        out: Tensor = torch.ops.quantized.linear_dynamic(scaled, self._packed, True)
        out = out.mul_(largest)
        return out if self._bias is None else out.add_(self._bias)


def _pack_int8(weight: Tensor, scale: Tensor) -> object:
    """Return a float weight [out, in] in 8 bits, laid out for the library's kernels."""
    engines = torch.backends.quantized.supported_engines
    if "x86" not in engines:
        raise InvalidSpecError(
            "int8 needs an x86 build of PyTorch; set TTS_DTYPE to float32 or bfloat16."
        )
    before = torch.backends.quantized.engine
    zeros = torch.zeros(weight.shape[0], dtype=torch.int64)
    with warnings.catch_warnings():
        # The tensor type is said to go one day; the products that are needed here stay.
        warnings.filterwarnings("ignore", message=".*quantized tensor.*")
        try:
            torch.backends.quantized.engine = "x86"
            rows = torch.quantize_per_channel(weight, scale, zeros, 0, torch.qint8)
            return torch.ops.quantized.linear_prepack(rows, None)
        finally:
            torch.backends.quantized.engine = before


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
            scale = wide.abs().amax(1).clamp_(min=SMALLEST_RANGE) / 127
            weight = (wide / scale.unsqueeze(1)).round_().to(torch.int8)
            self.scale = _pad_rows(scale).contiguous()
            self.sums = _pad_rows(weight.sum(1, dtype=torch.int32)).contiguous()
        padded = -(-columns // _STEP) * _STEP
        if padded != columns:
            weight = F.pad(weight, (0, padded - columns))
        panels = _pad_rows(weight).view(-1, LANES, padded // _GROUPS[kind], _GROUPS[kind])
        self.weight = panels.permute(0, 2, 1, 3).contiguous()  # filled up with zeros
        self.bias = None if bias is None else _pad_rows(bias.detach().float()).contiguous()
        self.rows, self.columns = rows, columns
        self.c = MatrixC(
            kind=kind,
            rows=rows,
            columns=columns,
            padded=padded,
            weight=self.weight.data_ptr(),
            scale=_address(self.scale),
            sums=_address(self.sums),
            bias=_address(self.bias),
        )

    def __call__(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out], in x's dtype."""
        return self._multiply_rows(x, KEEP)[..., : self.rows]

    def _multiply_rows(self, x: Tensor, use: int) -> Tensor:
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
        panels = [_pad_rows(each.detach()).view(-1, LANES, columns) for each in (gate, up)]
        self._lay_out(torch.stack(panels, dim=1).flatten(0, 2), None, int8=int8)

    def __call__(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., 2 * H], the gates first."""
        both = super().__call__(x)
        halves = both.view(*both.shape[:-1], -1, 2, LANES).transpose(-2, -3)
        return halves.flatten(-2)[..., : self.hidden].flatten(-2)

    def gated(self, x: Tensor) -> Tensor:
        """Map [..., in] to silu(gate) * up, [..., H]."""
        return self._multiply_rows(x, GATE)[..., : self.hidden]


def _pad_rows(values: Tensor) -> Tensor:
    """Fill the first of one or two axes up to whole panels."""
    missing = -values.shape[0] % LANES
    return F.pad(values, (0, 0) * (values.ndim - 1) + (0, missing)) if missing else values


def _address(tensor: Tensor | None) -> c_void_p | None:
    return None if tensor is None else c_void_p(tensor.data_ptr())
