"""Do one window's work of a decode benchmark: the engine's step, or the plain loop's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from lab.bench.baseline import CACHE_LENGTH, BaselineLoop
from lab.bench.report import Options
from lab.bench.stepping import DecodeBatch
from lab.bench.windows import Series
from synth.contract import Sampling


@dataclass(eq=False)
class Ours:
    """Measure the engine's step at one batch, context and shared beginning."""

    name: str
    batch: DecodeBatch
    context: int
    shared: int
    graphs: bool
    kernels: bool

    def prepare(self) -> None:
        """Go back to where the prompts ended."""
        self.batch.rewind()

    def work(self) -> int:
        """Make the frames; return how many."""
        return self.batch.decode()


@dataclass(eq=False)
class Plain:
    """Measure the plain loop in one dtype."""

    name: str
    dtype: str
    loop: BaselineLoop
    start: int
    frames: int
    sampling: Sampling

    def prepare(self) -> None:
        """Go back to where the prompts ended."""
        self.loop.rewind(self.start)

    def work(self) -> int:
        """Make the frames; return how many."""
        return self.loop.decode(self.frames, self.sampling)


def faster(plain: Sequence[Plain], series: Sequence[Series]) -> tuple[str, Series] | None:
    """Return the dtype and the windows of the faster plain loop, None where none was measured."""
    if not plain:
        return None
    best = max(range(len(plain)), key=lambda index: series[index].median())
    return plain[best].dtype, series[best]


def baseline_dtypes(options: Options, device: torch.device) -> list[str]:
    """Return the formats of the plain loop: on CUDA float32 is slower and takes 18 GB more."""
    both = ["bfloat16", "float32"]
    return options["baseline_dtype"] or (both[:1] if device.type == "cuda" else both)


def baseline_facts(options: Options) -> dict[str, Any]:
    """Return what a report says of the plain loop."""
    return {
        "what": "eager plain loop, batch 1, attention over the whole cache, full head and sorts",
        "cache_length": CACHE_LENGTH,
        "frames_per_window": options["baseline_frames"],
        "dtypes_measured": options["baseline_dtype"],
    }
