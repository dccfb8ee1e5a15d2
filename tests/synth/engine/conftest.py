"""Share the golden folder, its model and engines of it among the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lab.golden.case import GoldenFolder
from lab.golden.models import Loaded, load
from synth.engine import Engine
from synth.engine.slots.batch import SlotBatch
from tests.synth.engine.engine_runs import Frames, Start, engine_of

GOLDEN = Path(__file__).parents[2] / "data" / "golden"


@pytest.fixture(scope="session")
def golden() -> GoldenFolder:
    return GoldenFolder(GOLDEN)


@pytest.fixture(scope="session")
def loaded(golden: GoldenFolder) -> Loaded:
    return load(golden)


@pytest.fixture(scope="session")
def loaded_bf16(golden: GoldenFolder) -> Loaded:
    return load(golden, torch.bfloat16)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine of four slots for the tests of a module: none of them changes it."""
    shared = engine_of(slots=4)
    yield shared
    shared.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start engines of the golden model, closed again when the test ends."""
    engines: list[Engine] = []

    def begin(**changes: object) -> Engine:
        engines.append(engine_of(**changes))
        return engines[-1]

    yield begin
    for engine in engines:
        engine.close()


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> Frames:
    """What stands in front of the frames of all engines of this test; its gate is open."""
    found, compute = Frames(), SlotBatch.step
    found.gate.set()
    monkeypatch.setattr(SlotBatch, "step", lambda *args: found.step(args[0], compute, args[1]))
    return found


@pytest.fixture
def held(frames: Frames) -> Frames:
    """The same with a closed gate: no frame is begun before the test opens it."""
    frames.gate.clear()
    return frames
