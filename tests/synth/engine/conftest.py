"""Share the golden folder, its model and random checkpoints among the engine's tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from synth.engine.golden.case import GoldenFolder
from synth.engine.golden.models import Loaded, load

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
