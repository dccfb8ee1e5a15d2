"""Bring what a pass has made to the host, waiting for the device once for all of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_ALIGNMENT = 64  # bytes between the starts of tensors in the buffer
_LEAST_BYTES = 1 << 20


class HostCopy:
    """Copy tensors through one pinned buffer, which the device can write while the host goes on.

    One thread at a time may use it. Without a CUDA device the tensors are copied as they are.
    """

    def __init__(self, device: torch.device, *, buffered: bool | None = None) -> None:
        """Prepare the copy; the buffer grows with what it is given.

        Args:
            buffered: go through the buffer, by default on CUDA.
        """
        self._device = device
        self._is_buffered = device.type == "cuda" if buffered is None else buffered
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def take(self, tensors: Sequence[Tensor]) -> list[npt.NDArray[Any]]:
        """Return the tensors as arrays, each in memory of its own.

        What was put on the current stream before has come; work put there later is not waited for.
        """
        if not self._is_buffered:
            return [np.array(_on_host(tensor).numpy()) for tensor in tensors]
        views = self._views(tensors)
        for view, tensor in zip(views, tensors, strict=True):
            view.copy_(tensor, non_blocking=True)
        self._wait()
        return [np.array(view.numpy()) for view in views]

    def _views(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return a part of the buffer for each tensor, as large and of its kind."""
        sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + math.ceil(size / _ALIGNMENT) * _ALIGNMENT)
        if starts[-1] > self._buffer.numel():
            room = max(_LEAST_BYTES, 1 << (starts[-1] - 1).bit_length())
            pinned = self._device.type == "cuda"
            self._buffer = torch.empty(room, dtype=torch.uint8, pin_memory=pinned)
        parts = (self._buffer[a : a + n] for a, n in zip(starts, sizes, strict=False))
        return [
            part.view(tensor.dtype).view(tensor.shape)
            for part, tensor in zip(parts, tensors, strict=True)
        ]

    def _wait(self) -> None:
        if self._device.type == "cuda":
            # The thread sleeps meanwhile: a core that spins is one that the frames' thread lacks.
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # torch's own
            event.record(torch.cuda.current_stream(self._device))
            event.synchronize()


def _on_host(tensor: Tensor) -> Tensor:
    """Return a tensor of the host, a copy of one that is elsewhere."""
    return tensor if tensor.device.type == "cpu" else tensor.cpu()
