"""Say where kernels can run, without importing triton."""

from __future__ import annotations

import importlib.util
import os

import torch

_MIN_CAPABILITY = (8, 0)  # the first with bfloat16


def is_available(device: torch.device | None = None) -> bool:
    """Say whether kernels run on a device; None means the first CUDA device, else the CPU."""
    return why_unavailable(device) is None


def why_unavailable(device: torch.device | None = None) -> str | None:
    """Return why kernels cannot run on a device, as a sentence, or None if they can.

    On a CPU they run only in Triton's interpreter, some 10,000 times slower than compiled: for
    tests, never for serving.
    """
    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: it comes with the CUDA build of PyTorch."
    if device.type == "cpu":
        return None if is_interpreted() else "Triton kernels need a CUDA device."
    if device.type != "cuda" or not torch.cuda.is_available():
        return f"Triton kernels need a CUDA device, not {device.type}."
    if is_interpreted():
        return "TRITON_INTERPRET is set: kernels would be interpreted, unset it to use them."
    found = torch.cuda.get_device_capability(device)
    if found < _MIN_CAPABILITY:
        return "Triton kernels need compute capability 8.0, this device has {}.{}.".format(*found)
    return None


def is_interpreted() -> bool:
    """Say whether kernels that are imported now run in Triton's interpreter.

    Triton decides this once, when a kernel is defined.
    """
    return os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "yes", "on", "y")
