"""Name what a benchmark can run: every kernel beside its torch form, at the full model's shapes."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

BATCHES = (1, 8, 64)

Tensors = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class KernelCase:
    """Hold one kernel at one shape, ready to be called any number of times.

    Both callables compute the same from the same inputs and return the same tensors, which may be
    compared (a part of a cache that was written is returned too); neither takes arguments, and each
    call allocates its results. Inputs stay in a device's cache between calls unless they are larger
    or whoever measures clears it.
    """

    name: str  # of the kernel
    shape: str  # as a person reads it
    kernel: Callable[[], Tensors]
    torch_form: Callable[[], Tensors]
    num_bytes: int  # the fewest that must move: inputs read once, results written once


def bench_cases(device: torch.device, dtype: torch.dtype) -> list[KernelCase]:
    """Return the cases of all kernels, with random inputs on a device.

    Takes some gigabytes. Only where `is_available(device)`: kernels are imported.
    """
    return [case for module in case_modules() for case in module.cases(device, dtype)]


def case_modules() -> list[ModuleType]:
    """Return the modules of this package that have cases, in the order of their names."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)])]
    modules = [importlib.import_module(f"{__package__}.{name}") for name in names]
    return [module for module in modules if hasattr(module, "cases")]


def num_bytes(*tensors: Tensor) -> int:
    """Return the bytes of tensors together."""
    return sum(each.numel() * each.element_size() for each in tensors)


def random(*shape: int, device: torch.device, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """Return normal numbers; each call with the same shape gives the same ones."""
    generator = torch.Generator(device=device).manual_seed(sum(shape))
    drawn = torch.randn(shape, generator=generator, device=device, dtype=torch.float32)
    return drawn.mul_(scale).to(dtype)
