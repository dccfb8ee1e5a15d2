"""Time several contenders in turns, so that what disturbs the machine disturbs all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from lab.bench.report import Progress


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
    contenders: Sequence[Contender],
    *,
    windows: int,
    device: torch.device,
    progress: Progress,
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
