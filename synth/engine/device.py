"""Know a device: a lane for each thread, copies to and from it, and the memory it has left."""

from __future__ import annotations

import ctypes
import gc
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
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
        return None if self._stream is None else new_event(self._stream)

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
    if device.type == "cuda":
        torch.cuda.empty_cache()


class HostCopy:
    """Copy tensors through one pinned buffer, which the device can write while the host goes on.

    One thread at a time may use it. Without a CUDA device the tensors are copied as they are.
    """

    def __init__(self, device: torch.device, *, buffered: bool | None = None) -> None:
        """Prepare the copy, which goes through the buffer on CUDA or where that is asked for."""
        self._device = device
        self._is_buffered = device.type == "cuda" if buffered is None else buffered
        self._buffer = torch.empty(0, dtype=torch.uint8)

    def take(self, tensors: Sequence[Tensor]) -> list[npt.NDArray[Any]]:
        """Return the tensors as arrays, each in memory of its own.

        What was put on the current stream before has come; work put there later is not waited for.
        """
        if not self._is_buffered:
            return [np.array(tensor.cpu().numpy()) for tensor in tensors]
        starts = [0]
        for tensor in tensors:
            starts.append(starts[-1] + math.ceil(tensor.nbytes / _ALIGNMENT) * _ALIGNMENT)
        on_cuda = self._device.type == "cuda"
        if starts[-1] > self._buffer.numel():
            room = max(_LEAST_BYTES, 1 << (starts[-1] - 1).bit_length())
            self._buffer = torch.empty(room, dtype=torch.uint8, pin_memory=on_cuda)
        views = [
            self._buffer[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for start, tensor in zip(starts, tensors, strict=False)
        ]
        for view, tensor in zip(views, tensors, strict=True):
            view.copy_(tensor, non_blocking=True)
        if on_cuda:
            # The thread sleeps meanwhile: a core that spins is one that the frames' thread lacks.
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]  # torch's own
            event.record(torch.cuda.current_stream(self._device))
            event.synchronize()
        return [np.array(view.numpy()) for view in views]


class DeviceCopy:
    """Copy tensors to a device through two pinned buffers, one of which is filled meanwhile.

    A file that is mapped is read at the speed of its disk, as the device never waits for pages.
    One thread at a time may use it.
    """

    def __init__(self, device: torch.device, *, buffer_bytes: int = 64 * 2**20) -> None:
        on_cuda = device.type == "cuda"
        self._device = device
        self._buffers = [
            torch.empty(buffer_bytes, dtype=torch.uint8, pin_memory=on_cuda) for _ in range(2)
        ]
        self._sent: list[torch.cuda.Event | None] = [None, None]
        self._turn = 0

    def __call__(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the host on the device, in memory of its own."""
        source = tensor.contiguous().view(-1).view(torch.uint8)
        target = torch.empty(source.shape, dtype=torch.uint8, device=self._device)
        size = self._buffers[0].numel()
        for start in range(0, source.numel(), size):
            buffer, sent = self._buffers[self._turn], self._sent[self._turn]
            if sent is not None:
                sent.synchronize()  # what was in the buffer has left it
            part = source[start : start + size]
            filled = buffer[: part.numel()]
            filled.copy_(part)
            target[start : start + size].copy_(filled, non_blocking=True)
            if target.is_cuda:
                self._sent[self._turn] = new_event(torch.cuda.current_stream(self._device))
            self._turn = 1 - self._turn
        return target.view(tensor.dtype).view(tensor.shape)


def give_back_memory(device: str) -> None:
    """Free what nobody refers to any more, and return to the system what can be returned."""
    gc.collect()  # an engine's parts refer to each other
    free_cached_memory(torch.device(device))
    trim_heap()


_NO_LIMIT = 1 << 60  # how the older interface spells it: the largest whole number of pages
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names for them
_KEPT_BYTES = 128 * 2**20  # free at a heap's end
_MAPPED_BYTES = 32 * 2**20  # the largest bound there is: what takes more is mapped by itself
_OWN_CHOICES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Hold a device's memory in bytes; `source` says for people what bounds it."""

    free: int
    total: int
    source: str


def find_memory(device: torch.device, *, root: Path = Path("/")) -> DeviceMemory:
    """Return what can still be allocated on a device, and what it has in all.

    On the CPU the tightest of the machine's available memory and every limit of the control
    groups that this process is in; pages of files count as free, as the kernel gives them back.

    Args:
        root: where `proc` and `sys` are looked for.
    """
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return DeviceMemory(free, total, str(device))
    found = [_find_machine(root), *_find_groups(root)]
    tightest = min(found, key=lambda memory: memory.free)
    return DeviceMemory(tightest.free, min(memory.total for memory in found), tightest.source)


def _find_machine(root: Path) -> DeviceMemory:
    """Return the machine's own memory; all of it where the system does not say what is free."""
    numbers = _read_numbers(root / "proc" / "meminfo")
    if "MemTotal" in numbers and "MemAvailable" in numbers:
        total, free = numbers["MemTotal"] * 1024, numbers["MemAvailable"] * 1024
    else:
        total = free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DeviceMemory(free, total, "this machine")


def _find_groups(root: Path) -> Iterator[DeviceMemory]:
    """Yield the limits of the control groups of this process, from its own to the outermost."""
    for line in _read(root / "proc" / "self" / "cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        # A group's folder and those above it; inside a container some are not to be seen.
        parts = [part for part in path.split("/") if part and part != ".."]
        for count in range(len(parts), -1, -1):
            folder = base.joinpath(*parts[:count])
            limit, used = (_read(folder / name).strip() for name in names[:2])
            if not limit.isdigit() or not used.isdigit() or int(limit) >= _NO_LIMIT:
                continue  # unreadable, or without a limit
            stat = _read_numbers(folder / "memory.stat")
            pages = [stat.get(f"{names[2]}{kind}_file", 0) for kind in ("inactive", "active")]
            free = max(int(limit) - max(int(used) - sum(pages), 0), 0)
            yield DeviceMemory(free, int(limit), "this container")


def _read(path: Path) -> str:
    """Return a file's text, empty if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _read_numbers(path: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number in each line."""
    rows = [line.split() for line in _read(path).splitlines()]
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def trim_heap() -> None:
    """Return the heap's free pages to the system; does nothing where the C library cannot.

    Weights up to 32 MB come from the C library's heap, and what a layer frees while it takes its
    final form is cut up by what follows: without this a third of a small model is held for nothing.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)


def keep_heap() -> None:
    """Let this process keep what its heaps free, up to a bound; nothing where that is set already.

    Tensors between two layers are made and let go of all the time. By itself the C library gives
    their pages back and gets them anew, zeroed, each time: of the codec's time on a CPU that took a
    tenth, and while one thread waits for pages so do the others.
    """
    if any(os.environ.get(name) for name in _OWN_CHOICES):
        return
    choose = getattr(ctypes.CDLL(None), "mallopt", None)  # of glibc alone
    if choose is not None:
        choose(_TRIM_THRESHOLD, _KEPT_BYTES)
        choose(_MMAP_THRESHOLD, _MAPPED_BYTES)
