"""Make Triton's interpreter spend less on kernels that sort or call other functions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest


def hasten(patch: pytest.MonkeyPatch) -> None:
    """Put the interpreter's language in place once a kernel, and not at every inner call.

    It also takes an exclusive or over an axis at once: number by number, a top-k takes seconds.
    """
    import numpy as np
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
        inner = SimpleNamespace(restore=lambda: None)
        outer = SimpleNamespace(restore=lambda: scopes.pop().restore())
        if scopes:
            return inner
        scopes.append(put_in_place(both))
        return outer

    patch.setattr(interpreter.ReduceOps, "generic_reduce", reduce)
    patch.setattr(interpreter, "_patch_lang", once)
