"""Ask engines of the golden model for segments, and watch or disturb their frames."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from synth.contract import Reference, RenderSpec, Sampling, SegmentAudio
from synth.engine import Engine, EngineConfig
from synth.engine.loading.loaded_models import LoadedModels, load_models
from synth.engine.model.decode_state import DecodeState
from synth.engine.slots.batch import SlotBatch

Start = Callable[..., Engine]  # takes what differs from CONFIG

HOP = 2048
TINY = Path(__file__).parents[2] / "data" / "golden" / "tiny-s2"
CONFIG = EngineConfig(checkpoint=TINY, device="cpu", slots=3, max_positions=512)
_loaded = cache(load_models)


def models_of(config: EngineConfig) -> LoadedModels:
    """Return a configuration's models, loaded once: who changes a weight puts it back."""
    return _loaded(
        replace(config, slots=0, max_positions=0, strict=False, graphs="auto", threads=0)
    )


def engine_of(**changes: Any) -> Engine:
    config = replace(CONFIG, **changes)
    return Engine(config, models_of(config))


def voice(number: int = 0, frames: int = 12) -> Reference:
    """Return a voice with codes of its own."""
    codes = np.random.default_rng(number).integers(0, 256, (10, frames), dtype=np.int16)
    return Reference(f"Voice {number}.", codes)


def spec(
    text: str = "Hello there.", reference: Reference | None = None, /, **sampling: float
) -> RenderSpec:
    """Return a request for 6 frames, or as `sampling` says."""
    values = {"max_frames": 6, "seed": 1, **sampling}
    return RenderSpec(text, reference, Sampling(**values))  # type: ignore[arg-type]  # mixed numbers


def wait_until(condition: Callable[[], bool], seconds: float = 180.0) -> None:
    """Wait for a condition, or fail the test."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def wait_for_slots(engine: Engine, number: int) -> None:
    wait_until(lambda: engine.describe()["slots_in_use"] == number)


def begin(engine: Engine, request: RenderSpec, **options: Any) -> Future[SegmentAudio]:
    """Ask for a segment; return when it is the one that has a slot."""
    future = engine.submit(request, **options)
    wait_for_slots(engine, 1)
    return future


def render(engine: Engine, specs: Iterable[RenderSpec]) -> list[SegmentAudio]:
    """Return what segments become that are asked for together."""
    return [future.result(120) for future in [engine.submit(one) for one in specs]]


def lengths(futures: Iterable[Future[SegmentAudio]]) -> list[int]:
    """Wait for segments; return their frames."""
    return [future.result(120).codes.shape[1] for future in futures]


def assert_same_codes(found: Sequence[SegmentAudio], expected: Sequence[SegmentAudio]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one.codes, other.codes)
        assert one.finish_reason is other.finish_reason


@dataclass
class Frames:
    """Stand in front of every frame: `before` and `after` it, with the state that is computed."""

    before: Callable[[DecodeState], object] = lambda state: None
    after: Callable[[DecodeState], object] = lambda state: None
    count: int = 0
    sizes: list[int] = field(default_factory=list)  # slots computed in each frame
    begun: list[Future[SegmentAudio]] = field(default_factory=list)  # in the order of first frames
    gate: threading.Event = field(default_factory=threading.Event)  # closed: no frame is begun

    def step(self, batch: SlotBatch, compute: Callable[[SlotBatch, int], int], bucket: int) -> int:
        """Compute a frame of the first slots."""
        assert self.gate.wait(180)
        self.before(batch.state)
        self.begun += [one.future for one in batch.running if one.future not in self.begun]
        number = compute(batch, bucket)
        self.count += 1
        self.sizes.append(bucket)
        self.after(batch.state)
        return number
