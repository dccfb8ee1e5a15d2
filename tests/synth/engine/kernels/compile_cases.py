"""Compile the kernels of every benchmark case for a device that is not there.

Usage: python -m tests.synth.engine.kernels.compile_cases CAPABILITY [MODULE ...], such as 90 for an
H100 or H200 and 75 for a T4, for which models are in float16. Each line names a kernel and what it
takes: registers of a thread, bytes spilled of them, shared memory of a program; and of one that
multiplies blocks, whether matrix units do it. Triton must not be interpreting; it brings the
assembler along.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.gpu_check import kernel_cases

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True, slots=True)
class Usage:
    """Hold what a kernel takes: a thread's `registers`, a program's bytes of `shared` memory.

    Of a thread's bytes of `stack` some are `spilled` registers; the others are arrays, as a sine
    has one. `products` say how blocks are multiplied: not at all, or with matrix units, or without.
    """

    registers: int
    stack: int
    spilled: int
    shared: int
    products: str

    def __str__(self) -> str:
        stack = f"{self.stack} B stack, {self.spilled} B spilled"
        return f"{self.registers} registers, {stack}, {self.shared} B shared, {self.products}"

    @classmethod
    def read(cls, line: str) -> Usage:
        """Return what a line says."""
        *sizes, products = line.split(", ")
        registers, stack, spilled, shared = (int(size.split()[0]) for size in sizes)
        return cls(registers, stack, spilled, shared, products)

    def worst(self, other: Usage) -> Usage:
        """Return the larger of each; of two kernels of one name the products are alike."""
        return Usage(
            max(self.registers, other.registers),
            max(self.stack, other.stack),
            max(self.spilled, other.spilled),
            max(self.shared, other.shared),
            max(self.products, other.products),
        )


NO_PRODUCTS, WITH_UNITS, WITHOUT_UNITS = "no products", "with matrix units", "without matrix units"


class AbsentDevice:
    """Answer what Triton asks of a driver before it launches."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_modules(capability: int, names: list[str]) -> dict[str, Usage]:
    """Compile what the cases of kernel modules launch: what each kernel takes, by its name.

    No names mean all modules. Of kernels of one name, such as with and without a norm, the most.
    """
    dtype = torch.bfloat16 if capability >= 80 else torch.float16
    from triton import knobs
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    knobs.nvidia.dump_ptxas_log = True  # printed
    driver.set_active(AbsentDevice(capability))
    torch.Tensor.is_cuda = True  # what some kernels are chosen by
    launch, seen = JITFunction.run, set()
    found: dict[str, Usage] = {}

    def only_compile(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        with redirect_stdout(io.StringIO()) as said:
            kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
        if kernel.hash not in seen:
            seen.add(kernel.hash)
            constants = ", ".join(f"{n}={v}" for n, v in kwargs.items() if isinstance(v, int))
            dtypes = {a.dtype for a in args if isinstance(a, Tensor)}
            eight = " of int8" * (torch.int8 in dtypes) + " of fp8" * (FP8 in dtypes)
            name, usage = f"{self.__name__}{eight}({constants})", _usage(kernel, said.getvalue())
            found[name] = usage.worst(found.get(name, usage))
        return kernel

    JITFunction.run = only_compile
    # Nobody reads the numbers, and no kernel is compiled anew for another batch.
    has_fp8 = capability >= 89
    vars(kernel_cases).update(random=_any_numbers, BATCHES=(1,), has_fp8=lambda device: has_fp8)
    with tempfile.TemporaryDirectory() as folder:
        knobs.cache.dir = folder  # of what was compiled before the assembler says nothing
        for name in names or kernel_cases.CASES:
            for case in _cases(name, dtype):
                case.kernel()
    return found


def _cases(name: str, dtype: torch.dtype) -> list[kernel_cases.KernelCase]:
    """Return a module's cases; convolutions take float16 where other numbers are bfloat16, too."""
    dtypes = (dtype, torch.float16) if name == "convolution" else (dtype,)
    cpu = torch.device("cpu")
    return [case for each in dict.fromkeys(dtypes) for case in kernel_cases.CASES[name](cpu, each)]


def _any_numbers(*shape: int, device: torch.device, dtype: torch.dtype, scale: float = 1) -> Tensor:
    return torch.empty(shape, device=device, dtype=dtype)


def _usage(kernel: Any, said: str) -> Usage:
    """Return what a kernel takes by what the assembler said of it."""
    stack, spilled = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", said)[0]
    products = NO_PRODUCTS
    if "tt.dot" in kernel.asm["ttir"]:
        units = re.search(r"mma\.sync|wgmma\.mma_async", kernel.asm["ptx"])
        products = WITH_UNITS if units else WITHOUT_UNITS
    registers = re.findall(r"Used (\d+) registers", said)[0]
    return Usage(int(registers), int(stack), int(spilled), kernel.metadata.shared, products)


if __name__ == "__main__":
    for kernel, usage in compile_modules(int(sys.argv[1]), sys.argv[2:]).items():
        sys.stdout.write(f"{kernel}: {usage}\n")
