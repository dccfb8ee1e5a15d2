"""Ask the engine of the golden model for segments, and watch or disturb its frames."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from synth.contract import Reference, RenderSpec, Sampling
from synth.engine import Engine, EngineConfig
from synth.engine.model.decode_state import DecodeState
from synth.engine.slots.batch import SlotBatch

Start = Callable[..., Engine]  # takes what differs from CONFIG

TINY = Path(__file__).parents[2] / "data" / "golden" / "tiny-s2"
CONFIG = EngineConfig(checkpoint=TINY, device="cpu", slots=3, max_positions=512)


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


@dataclass
class Frames:
    """Stand in front of every frame: `before` and `after` it, with the state that is computed."""

    before: Callable[[DecodeState], None] = lambda state: None
    after: Callable[[DecodeState], None] = lambda state: None
    count: int = 0
    sizes: list[int] = field(default_factory=list)  # slots computed in each frame
    gate: threading.Event = field(default_factory=threading.Event)  # closed: no frame is begun

    def step(self, batch: SlotBatch, compute: Callable[[SlotBatch], None]) -> None:
        """Compute a frame."""
        assert self.gate.wait(180)
        self.before(batch.state)
        size = batch.bucket
        compute(batch)
        self.count += 1
        self.sizes.append(size)
        self.after(batch.state)


def watch_frames(monkeypatch: pytest.MonkeyPatch, *, is_open: bool = True) -> Frames:
    """Return what stands in front of the frames of all engines of this test."""
    frames = Frames()
    if is_open:
        frames.gate.set()
    compute = SlotBatch.step
    monkeypatch.setattr(SlotBatch, "step", lambda batch: frames.step(batch, compute))
    return frames
