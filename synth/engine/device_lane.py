"""Give each of the engine's threads an own order of work on the device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_URGENT, _USUAL = -1, 0  # CUDA's priorities of streams


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
