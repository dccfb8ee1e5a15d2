"""Compile the kernels of every benchmark case for a device that is not there.

Usage: python -m tests.synth.engine.kernels.compile_cases CAPABILITY [MODULE ...], such as 90 for an
H100 or H200 and 75 for a T4, for which models are in float16. Each line names a kernel and what it
takes: registers of a thread, bytes spilled of them, shared memory of a program. Triton must not be
interpreting; it brings the assembler along.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.gpu_check import kernel_cases


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


def compile_modules(capability: int, names: list[str]) -> dict[str, str]:
    """Compile what the cases of kernel modules launch: what each kernel takes, by its name.

    No names mean all modules.
    """
    dtype = torch.bfloat16 if capability >= 80 else torch.float16
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    driver.set_active(AbsentDevice(capability))
    torch.Tensor.is_cuda = True  # what some kernels are chosen by
    launch, found = JITFunction.run, {}

    def only_compile(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
        constants = ", ".join(f"{n}={v}" for n, v in kwargs.items() if isinstance(v, int))
        in_8_bits = any(isinstance(a, Tensor) and a.dtype is torch.int8 for a in args)
        name = f"{self.__name__}{' of 8 bits' if in_8_bits else ''}({constants})"
        found[name] = _usage(kernel)
        return kernel

    JITFunction.run = only_compile
    # Nobody reads the numbers, and no kernel is compiled anew for another batch.
    vars(kernel_cases).update(random=_any_numbers, BATCHES=(1,))
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


def _usage(kernel: Any) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(tool), "--dump-resource-usage", file.name]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    numbers = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", said))
    return (
        f"{numbers['REG']} registers, {numbers['STACK']} B stack, {kernel.metadata.shared} B shared"
    )


if __name__ == "__main__":
    for kernel, usage in compile_modules(int(sys.argv[1]), sys.argv[2:]).items():
        sys.stdout.write(f"{kernel}: {usage}\n")
