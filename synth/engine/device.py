"""Order work on a device: a lane for each thread, copies to and from it, memory that runs out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

_URGENT, _USUAL = -1, 0  # CUDA's priorities of streams
_ALIGNMENT = 64  # bytes between the starts of tensors in the buffer
_LEAST_BYTES = 1 << 20


class DeviceLane:
    """Hold one thread's CUDA stream; on a CPU there is none and nothing needs waiting for.

    Work of an urgent lane goes first wherever the device has to choose.
    """

    def __init__(self, device: torch.device, *, is_urgent: bool) -> None:
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            priority = _URGENT if is_urgent else _USUAL
            self._stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]  # torch's own

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put this thread's work into the lane, behind what was begun outside of it."""
        if self._stream is None:
            yield
            return
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.device(self._stream.device), torch.cuda.stream(self._stream):
            yield

    def mark(self) -> torch.cuda.Event | None:
        """Return an event that has come when all work begun so far in the lane is done."""
        if self._stream is None:
            return None
        return new_event(self._stream)

    def wait_for(self, mark: torch.cuda.Event | None) -> None:
        """Put work that follows behind another lane's mark, without waiting here."""
        if self._stream is not None and mark is not None:
            self._stream.wait_event(mark)

    def adopt(self, tensor: Tensor) -> None:
        """Keep the memory of another lane's tensor until what is begun here with it is done."""
        if self._stream is not None and tensor.device.type == "cuda":
            tensor.record_stream(self._stream)


def new_event(stream: torch.cuda.Stream | None = None) -> torch.cuda.Event:
    """Return an event recorded now, on this thread's stream when none is named."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's own
    event.record(stream)
    return event


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Return values of the host on a device; what is there already is returned as it is."""
    if device.type == "cuda" and values.device.type == "cpu":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def copy_to(target: Tensor, values: Tensor) -> None:
    if target.is_cuda:
        target.copy_(values.pin_memory(), non_blocking=True)
    else:
        target.copy_(values)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the device or the host has no memory left."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # Torch has no class of its own for it on a CPU, nor for what CUDA takes without the allocator.
    texts = ("can't allocate memory", "CUDA error: out of memory")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in texts)


def free_cached_memory(device: torch.device) -> None:
    """Give back what torch's allocator keeps for later."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


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
