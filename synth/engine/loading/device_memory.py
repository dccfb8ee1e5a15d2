"""Find how much memory a device has left, and when freed memory goes back to the system."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

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
    found = [_machine(root), *_groups(root)]
    tightest = min(found, key=lambda memory: memory.free)
    return DeviceMemory(tightest.free, min(memory.total for memory in found), tightest.source)


def _machine(root: Path) -> DeviceMemory:
    """Return the machine's own memory; all of it where the system does not say what is free."""
    lines = _lines(root / "proc" / "meminfo")
    if "MemTotal" not in lines or "MemAvailable" not in lines:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return DeviceMemory(total, total, "this machine")
    total, free = lines["MemTotal"] * 1024, lines["MemAvailable"] * 1024
    return DeviceMemory(free, total, "this machine")


def _groups(root: Path) -> Iterator[DeviceMemory]:
    """Yield the limits of the control groups of this process, from its own to the outermost."""
    try:
        content = (root / "proc" / "self" / "cgroup").read_text(encoding="utf-8")
    except OSError:
        return
    for line in content.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        else:
            continue
        for folder in _upwards(base, path):
            limit, used = _number(folder / names[0]), _number(folder / names[1])
            if limit is None or used is None or limit >= _NO_LIMIT:
                continue
            used -= _file_pages(folder / "memory.stat", names[2])
            free = max(limit - max(used, 0), 0)
            yield DeviceMemory(free, limit, "this container")


def _upwards(base: Path, path: str) -> Iterator[Path]:
    """Yield a group's folder and those above it; inside a container some are not to be seen."""
    parts = [part for part in path.split("/") if part and part != ".."]
    for count in range(len(parts), -1, -1):
        yield base.joinpath(*parts[:count])


def _file_pages(path: Path, prefix: str) -> int:
    found = _lines(path)
    return found.get(f"{prefix}inactive_file", 0) + found.get(f"{prefix}active_file", 0)


def _lines(path: Path) -> dict[str, int]:
    """Return the numbers of a file with a name and a number in each line; empty if unreadable."""
    try:
        rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return {}
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    """Return a file's number; None where it is missing or says that there is no limit."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


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
