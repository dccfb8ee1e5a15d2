"""Triton kernels of a decode step and of the codec, and where they can run.

Nothing here imports triton: modules with kernels are imported only where `why_unavailable` is None.
What each computes is specified in plain torch by `lab.gpu_check.torch_forms`.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import os
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import torch

_MIN_CAPABILITY = (8, 0)  # the first with bfloat16
_COMPILE_SECONDS = 60  # it takes a tenth of one
_MULTIPROCESSORS = 132  # of an H100 or H200
# What Triton compiles at its first start: a Python extension that asks the driver for kernels.
_EXTENSION = """\
#include <stdbool.h>
#include <stdio.h>
#include <dlfcn.h>
#include <Python.h>
PyObject *launch(PyObject *self, PyObject *args) { return PyLong_FromLong(printf("")); }
"""


def why_unavailable(device: torch.device | None = None) -> str | None:
    """Return why kernels cannot run on a device, as a sentence, or None if they can.

    No device means the first of CUDA, else the CPU.

    On a CPU they run only in Triton's interpreter, some 10,000 times slower than compiled: for
    tests, never for serving.
    """
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed; it comes with the CUDA build of PyTorch."
    if device.type == "cpu":
        return None if is_interpreted() else "Triton kernels need a CUDA device."
    if device.type != "cuda" or not torch.cuda.is_available():
        return f"Triton kernels need a CUDA device, not {device.type}."
    if is_interpreted():
        return "TRITON_INTERPRET is set, so kernels would be interpreted; unset it to use them."
    found = torch.cuda.get_device_capability(device)
    if found < _MIN_CAPABILITY:
        version = ".".join(map(str, found))
        return f"Triton kernels need compute capability 8.0, but this device has {version}."
    return why_nothing_compiles() or why_nothing_runs(device)


@functools.cache
def why_nothing_runs(device: torch.device) -> str | None:
    """Return why a device does not run a small kernel as it should, as a sentence, or None.

    What it compiles is kept in Triton's cache like all other kernels.
    """
    try:
        rowwise = importlib.import_module(f"{__name__}.rowwise")  # here Triton itself is imported
        with torch.cuda.device(device):
            found = rowwise.swiglu(torch.ones(1, 2, device=device)).tolist()
    except Exception as error:  # of Triton, of what it compiles with, or of the driver  # noqa: BLE001
        text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
        return f"Triton cannot run a kernel on {device} ({text})."
    right = 1 / (1 + math.exp(-1))
    if abs(found[0][0] - right) < 1e-5:
        return None
    return f"Triton's kernels compute wrong numbers on {device}; update its driver."


@functools.cache
def why_nothing_compiles() -> str | None:
    """Return why Triton cannot compile its launchers here, as a sentence, or None if it can.

    It does so at a first start, and again whenever its cache was emptied. A small extension is
    compiled as Triton does: by CC, gcc or clang, with the headers of this Python.
    """
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return "Triton finds no C compiler; run apt-get install gcc libc6-dev, or set CC."
    scheme = sysconfig.get_default_scheme()  # the headers that Triton takes are those of another
    scheme = "posix_prefix" if scheme == "posix_local" else scheme
    headers = sysconfig.get_paths(scheme=scheme)["include"]
    with tempfile.TemporaryDirectory(prefix="ttsweb-launcher-") as folder:
        source = Path(folder) / "launcher.c"
        source.write_text(_EXTENSION, encoding="ascii")
        command = [compiler, str(source), "-shared", "-fPIC", "-o", f"{folder}/launcher.so"]
        try:
            done = subprocess.run(
                [*command, f"-I{headers}"],
                capture_output=True,
                text=True,
                timeout=_COMPILE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return (
                f"Triton's C compiler {compiler} cannot be run ({error}); run apt-get install gcc."
            )
    if done.returncode == 0:
        return None
    if "Python.h" in done.stderr:
        return (
            f"Triton finds no Python.h in {headers}; run apt-get install "
            "python3-dev, or use a Python that includes its headers."
        )
    lines = [line for line in done.stderr.splitlines() if "error" in line.lower()]
    reason = lines[0][:300] if lines else f"it ended with code {done.returncode}"
    return f"Triton's C compiler {compiler} fails ({reason}); run apt-get install gcc libc6-dev."


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """Return a device's number of multiprocessors, which decides how kernels cut their work.

    Where there is no device, as when kernels are compiled ahead of time, it is that of an H200.
    """
    if device.type != "cuda":
        return _MULTIPROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


def is_interpreted() -> bool:
    """Say whether kernels that are imported now run in Triton's interpreter.

    Triton decides this once, when a kernel is defined.
    """
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")
