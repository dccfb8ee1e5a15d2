"""Make Triton's interpreter round to bfloat16 and fp8 as devices do, and spend less on inner calls.

As released it cuts the last bits off, which no device does: over many layers that is another
result, and no comparison with PyTorch could be exact.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch


def round_like_a_device(patch: pytest.MonkeyPatch) -> None:
    """Replace the interpreter's conversions from and to bfloat16 and fp8 while a patch lasts.

    Its products of bfloat16 too: as released they are those of the bits, taken as whole numbers.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    released = interpreter._convert_float

    def convert(
        data: npt.NDArray[Any], source: Any, target: Any, mode: Any
    ) -> npt.NDArray[np.generic]:
        if (source, target) == (tl.float32, tl.bfloat16):
            return to_bfloat16(np.ascontiguousarray(data).view(np.uint32))
        if (source, target) == (tl.bfloat16, tl.float32):
            return np.ascontiguousarray(data).view(np.uint16).astype(np.uint32) << 16
        if tl.float8e4nv in (source, target):
            wide = {tl.float32: torch.float32, tl.bfloat16: torch.bfloat16}
            assert len({source, target} - {*wide, tl.float8e4nv}) == 0
            return between_fp8(data, wide.get(source), wide.get(target))
        return released(data, source, target, mode)  # type: ignore[no-any-return]  # untyped

    def product(self: Any, a: Any, b: Any, total: Any, *more: Any) -> Any:
        wide = [
            interpreter.TensorHandle(
                convert(each.data, tl.bfloat16, tl.float32, None).view(np.float32), tl.float32
            )
            if each.dtype.scalar is tl.bfloat16
            else each
            for each in (a, b)
        ]
        if total.data.dtype != np.float32:
            return multiply(self, *wide, total, *more)
        # In float32 numpy's order of summing, and so the last bit, depends on the processor and on
        # a column's place, which is no property of a kernel; in float64 it is rounded away.
        left, right = (each.data.astype(np.float64) for each in wide)
        sums = np.matmul(left, right).astype(np.float32) + total.data
        return interpreter.TensorHandle(sums, total.dtype.scalar)

    multiply = interpreter.InterpreterBuilder.create_dot
    patch.setattr(interpreter, "_convert_float", convert)
    patch.setattr(interpreter.InterpreterBuilder, "create_dot", product)


def between_fp8(
    data: npt.NDArray[Any], source: torch.dtype | None, target: torch.dtype | None
) -> npt.NDArray[np.generic]:
    """Return the bits of numbers between fp8, which None stands for, and another format.

    What is too large becomes the largest number, as of a device.
    """
    fp8 = torch.float8_e4m3fn
    bits = torch.from_numpy(np.ascontiguousarray(data).view(np.uint8)).view(source or fp8)
    if target is None:
        bits = bits.float().clamp(-448, 448)
    found = bits.to(target or fp8).view(torch.uint8).numpy()
    size = (target or fp8).itemsize
    return found.view(f"uint{8 * size}").reshape(data.shape)


def to_bfloat16(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint16]:
    """Return the bits of the nearest bfloat16 of float32 bits, of ties the even; NaN stays NaN."""
    wide = bits.astype(np.uint64)
    rounded = (wide + 0x7FFF + ((wide >> 16) & 1)) >> 16
    is_nan = (wide & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, 0x7FC0, rounded).astype(np.uint16)


def hasten(patch: pytest.MonkeyPatch) -> None:
    """Put the interpreter's language in place once a kernel, and not at every inner call.

    It also takes an exclusive or over an axis at once: number by number, a top-k takes seconds.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    slow, put_in_place = interpreter.ReduceOps.generic_reduce, interpreter._patch_lang
    both = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    scopes: list[Any] = []

    def reduce(self: Any, operands: Any) -> Any:
        if self.combine_fn is not tl.standard._xor_combine:
            return slow(self, operands)
        data = operands[0].handle.data
        found = np.bitwise_xor.reduce(data, axis=self.axis, keepdims=self.keep_dims)
        return self.to_tensor(found, operands[0].dtype)

    def once(_: Any) -> Any:
        if scopes:
            return SimpleNamespace(restore=lambda: None)
        scopes.append(put_in_place(both))
        return SimpleNamespace(restore=lambda: scopes.pop().restore())

    patch.setattr(interpreter.ReduceOps, "generic_reduce", reduce)
    patch.setattr(interpreter, "_patch_lang", once)
