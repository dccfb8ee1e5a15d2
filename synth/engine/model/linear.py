"""Multiply by weight matrices in the form that suits the processor, chosen once when loading.

`F.linear` on a CPU packs the weight anew at every call; the packed forms do it once. All forms map
[..., in] to [..., out]; a packed form holds no second copy of its weight.
"""

from __future__ import annotations

import enum
import importlib
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from synth.engine.errors import InvalidSpecError

Linear = Callable[[Tensor], Tensor]
NATIVE = "synth.engine.native.matrix"  # it asks this module what the processor can do

_ENDS = (-1.0, 1.0)
_TINY = 1e-30  # the range of a vector of zeros
_BF16_ISAS = ("AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX10")


class LinearForm(enum.StrEnum):
    """Name how weight matrices are held and multiplied."""

    PLAIN = "plain"  # F.linear over the weight as it was loaded
    PACKED = "packed"  # oneDNN's own layout, in the weight's dtype
    INT8 = "int8"  # 8 bits, with one scale per output row and one per input vector
    NATIVE = "native"  # our own layout, in the weight's dtype, for compiled frames
    NATIVE_INT8 = "native-int8"  # the same in 8 bits

    @property
    def is_int8(self) -> bool:
        """Return whether matrices have 8 bits."""
        return self in (LinearForm.INT8, LinearForm.NATIVE_INT8)

    @property
    def is_native(self) -> bool:
        """Return whether matrices are laid out for compiled frames."""
        return self in (LinearForm.NATIVE, LinearForm.NATIVE_INT8)


@dataclass(frozen=True, slots=True)
class Processor:
    """Hold what this processor can do as far as PyTorch's libraries are allowed to use it."""

    bf16: bool  # multiplies bfloat16 in hardware
    packing: bool  # oneDNN is there
    packs_bf16: bool  # it packs bfloat16 too, in hardware or not
    simd: str

    @property
    def cpu_class(self) -> str:
        """Return bf16 or avx2: which row of published figures this processor belongs to."""
        return "bf16" if self.bf16 else "avx2"


def find_processor() -> Processor:
    """Look at the processor and at the limits that environment variables put on libraries."""
    simd = torch.backends.cpu.get_cpu_capability()
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "ALL").upper()
    packing = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    wide = simd.startswith("AVX512")
    bf16 = wide and _has("_is_avx512_bf16_supported") and _allows(limit, _BF16_ISAS)
    packs_bf16 = packing and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return Processor(bf16=packs_bf16 and bf16, packing=packing, packs_bf16=packs_bf16, simd=simd)


def make_linear(weight: Tensor, bias: Tensor | None, form: LinearForm) -> Linear:
    """Return the product with a weight [out, in] (and bias [out]) in a form."""
    if form.is_native:
        made: Linear = importlib.import_module(NATIVE).NativeLinear(weight, bias, int8=form.is_int8)
        return made
    if form is LinearForm.PACKED:
        return PackedLinear(weight, bias)
    if form is LinearForm.INT8:
        return Int8Linear(weight, bias)
    return PlainLinear(weight, bias)


class PlainLinear:
    """Multiply with the weight as it is."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        self.num_bytes = weight.numel() * weight.element_size()

    def __call__(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]."""
        return F.linear(x, self.weight, self.bias)


class PackedLinear:
    """Multiply with a weight that oneDNN has laid out for its kernels once."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
        self._bias = None if bias is None else bias.detach()
        # The overload itself, so that it is not looked for at every call.
        self._multiply = torch.ops.mkldnn._linear_pointwise.default
        self.num_bytes = weight.numel() * weight.element_size()

    def __call__(self, x: Tensor) -> Tensor:
        """Map [..., in] to [..., out]."""
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
        scale = wide.abs().amax(1).clamp_(min=_TINY) / 127
        self._packed = _pack_int8(wide, scale)
        self._bias = None if bias is None else bias.detach().float()
        self._ends = torch.tensor(_ENDS)
        self.num_bytes = wide.numel()

    def __call__(self, x: Tensor) -> Tensor:
        """Map float32 [..., in] to float32 [..., out]."""
        largest = torch.linalg.vector_norm(x, ord=math.inf, dim=-1, keepdim=True).clamp_(min=_TINY)
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


def int8_error(weight: Tensor, x: Tensor) -> float:
    """Return the error of an 8-bit product as a share of the exact product's norm."""
    exact = F.linear(x.double(), weight.double())
    found = Int8Linear(weight, None)(x.float())
    return float((found - exact).norm() / exact.norm())


def _has(name: str) -> bool:
    look = getattr(torch.cpu, name, None)  # not part of every PyTorch version
    return bool(look is not None and look())


def _allows(limit: str, isas: tuple[str, ...]) -> bool:
    return limit in ("ALL", "DEFAULT", "") or limit.startswith(isas)
