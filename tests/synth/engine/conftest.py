"""Share the golden folder, its model and random checkpoints among the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lab.golden.case import GoldenFolder
from lab.golden.models import Loaded, load
from synth.engine import Engine
from tests.synth.engine.engine_runs import CONFIG, Start

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


@pytest.fixture
def start() -> Iterator[Start]:
    """Start engines of the golden model, closed again when the test ends."""
    engines: list[Engine] = []

    def begin(**changes: object) -> Engine:
        engines.append(Engine.load(replace(CONFIG, **changes)))  # type: ignore[arg-type]  # by name
        return engines[-1]

    yield begin
    for engine in engines:
        engine.close()
