"""Say what a run was measured on: processor, versions, commit, and the speed of its memory."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

import torch

from lab.bench.report import Progress
from lab.bench.roofline import EIGHT_BITS
from synth.engine.device import free_cached_memory
from synth.engine.native.library import find_processor


class Contender(Protocol):
    """Do one window's work over and over."""

    name: str

    def prepare(self) -> None:
        """Get ready for a window; not timed."""
        ...

    def work(self) -> int:
        """Do a window's work and wait for it; return the units done, frames for example."""
        ...


@dataclass(slots=True)
class Series:
    """Hold what one contender did, a value for each window.

    `rates` are units per second of wall time, `cpu_rates` per second of this process's CPU time.
    """

    rates: list[float] = field(default_factory=list)
    cpu_rates: list[float] = field(default_factory=list)

    def median(self) -> float:
        """Return the median rate."""
        return statistics.median(self.rates)

    def ratio_to(self, other: Series) -> Spread:
        """Return the ratio of neighbouring windows: what slows both leaves it alone."""
        return spread([a / b for a, b in zip(self.rates, other.rates, strict=True)])

    def cpu_ratio_to(self, other: Series) -> Spread:
        """Return the same of CPU time."""
        return spread([a / b for a, b in zip(self.cpu_rates, other.cpu_rates, strict=True)])


@dataclass(frozen=True, slots=True)
class Spread:
    """Hold the median and the extremes of some values."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the extremes."""
    return Spread(statistics.median(values), min(values), max(values))


def run_windows(
    contenders: Sequence[Contender], *, windows: int, device: torch.device, progress: Progress
) -> list[Series]:
    """Give every contender one warm-up and then one window after the other, in turns."""
    series = [Series() for _ in contenders]
    for window in range(-1, windows):
        for contender, kept in zip(contenders, series, strict=True):
            contender.prepare()
            wall, cpu, units = timed(contender.work, device)
            if window < 0:
                continue  # the first use builds primitives and touches pages
            kept.rates.append(units / wall)
            kept.cpu_rates.append(units / cpu if cpu > 0 else 0.0)
            progress(f"window {window + 1}/{windows}: {contender.name} {units / wall:.1f}/s")
    return series


def timed(work: Callable[[], int], device: torch.device) -> tuple[float, float, int]:
    """Return some work's wall and CPU seconds, until the device is done, and its units."""
    synchronize(device)
    wall, cpu = time.perf_counter(), time.process_time()
    units = work()
    synchronize(device)
    return time.perf_counter() - wall, time.process_time() - cpu, units


def synchronize(device: torch.device) -> None:
    """Wait for everything the device was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# The figures that every row has, or has a reason to lack.
FIGURES = ("frames_per_second", "ratio_to_baseline", "ratio_to_roofline")
COPY_BYTES = 1 << 28  # far above any last-level cache's share of a few cores
DEVICE_COPY_BYTES = 1 << 32  # a millisecond or two on a GPU, so that its launch does not count
COPY_ROUNDS = 5
MATMUL_SIZE = {"cpu": 1536, "cuda": 8192}


def run_facts(device: torch.device, *, seed: int, preset: str | None) -> dict[str, Any]:
    """Return what holds for a whole run, the measured speeds of memory and arithmetic included."""
    return {
        "preset": preset,
        "device": device_name(device),
        "processor": processor_name(),
        # Which row of published figures this processor belongs to.
        "cpu_class": "bf16" if find_processor().bf16 else "avx2",
        "torch": torch.__version__,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        **device_facts(device),
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "gomp_spincount": os.environ.get("GOMP_SPINCOUNT"),
        "commit": commit(),
        "seed": seed,
        "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "copy_gigabytes_per_second": copy_bandwidth(device) / 1e9,
    }


def make_row(
    facts: Mapping[str, Any], values: Mapping[str, Any], *, why_null: Mapping[str, str]
) -> dict[str, Any]:
    """Return a row: what every row carries, then the bench's own values.

    Args:
        why_null: for each figure of `FIGURES` that has no meaning here, one clause that says why.
    """
    row = {key: facts[key] for key in ("device", "torch", "threads", "commit")}
    row |= dict.fromkeys(("dtype", "batch", "context", "cache_length", *FIGURES))
    row |= dict(values)
    absent = {key for key in FIGURES if row[key] is None}
    if absent != set(why_null):
        raise ValueError(f"a reason is wanted for just these: {sorted(absent)}")
    return row | {"why_null": dict(why_null)}


def device_name(device: torch.device) -> str:
    """Return `cpu`, or the index and the product's name of a CUDA device."""
    if device.type == "cuda":
        return f"{device} {torch.cuda.get_device_name(device)}"
    return str(device)


def device_facts(device: torch.device) -> dict[str, Any]:
    """Return what a GPU says of itself; nothing for a CPU."""
    if device.type != "cuda":
        return {}
    found = torch.cuda.get_device_properties(device)
    return {
        "capability": f"{found.major}.{found.minor}",
        "multiprocessors": found.multi_processor_count,
        "device_gigabytes": found.total_memory / 1e9,
        "triton": _version("triton"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def processor_name() -> str:
    """Return the processor's name as the system has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@lru_cache(maxsize=1)
def commit() -> str | None:
    """Return the checkout's commit, marked where files differ from it; None outside of one."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def copy_bandwidth(device: torch.device) -> float:
    """Return a copy's bytes per second, those read and those written, the best of several."""
    size = COPY_BYTES if device.type == "cpu" else DEVICE_COPY_BYTES
    rate = _copy_rate(size, device)
    free_cached_memory(device)  # what is measured next may need the room
    return rate


def _copy_rate(size: int, device: torch.device) -> float:
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.ones_like(source)  # written once: the first touch of a page is no copy
    source.fill_(1)  # zeros of a fresh allocation may all be one page
    return 2 * size / _best_seconds(lambda: target.copy_(source), device)


@lru_cache
def matmul_rate(device: torch.device, dtype: str) -> float | None:
    """Return the operations per second of a large product of this format, the best of several.

    tf32 is float32 whose products may take TF32. None for matrices in 8 bits, of which torch has no
    product that shows the processor's limit.
    """
    if dtype in EIGHT_BITS:
        return None
    size, is_tf32 = MATMUL_SIZE[device.type], dtype == "tf32"
    wanted: torch.dtype = torch.float32 if is_tf32 else getattr(torch, dtype)
    a = torch.randn(size, size, device=device).to(wanted)
    b = torch.randn(size, size, device=device).to(wanted)
    with _tf32_products(is_tf32):
        return 2 * size**3 / _best_seconds(lambda: a @ b, device)


@contextmanager
def _tf32_products(allowed: bool) -> Iterator[None]:
    """Say for the products begun inside whether they may take TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _best_seconds(work: Callable[[], object], device: torch.device) -> float:
    best = float("inf")
    work()  # the first one loads a library and takes its workspace
    for _ in range(COPY_ROUNDS):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return best
