"""Bring numbers of the host to the device so that neither side waits for the other.

On CUDA they go through pinned memory, which torch keeps until the copy has been made; a copy of
pageable memory would first wait for all frames that are queued.
"""

from __future__ import annotations

import torch
from torch import Tensor


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return values of the host on a device; what is there already is returned as it is."""
    if device.type == "cuda" and values.device.type == "cpu":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def copy_to(target: Tensor, values: Tensor) -> None:
    """Copy values of the host to where they belong."""
    if target.is_cuda:
        target.copy_(values.pin_memory(), non_blocking=True)
    else:
        target.copy_(values)
